"""The machine of measurements, from their names or their GPUs."""

from collections.abc import Sequence

from ringside.sim.record import Record, RecordError
from ringside.topologies import MAKERS, load, make, num_machines, ranks
from ringside.topologies.load import parse_name
from ringside.topologies.machine import box_of, machines

_MIXED = " + "  # joins the names where the GPUs of a run differ


def infer_machine(records: Sequence[Record]) -> tuple[str, str]:
    """Return the named machine, and the evidence; raise `RecordError` if it cannot be identified."""
    clusters = sorted({record.cluster for record in records})
    if len(clusters) == 1 and clusters[0] in MAKERS:
        return clusters[0], "which the records name"
    gpus = sorted({record.fingerprint.get("gpu", "") for record in records})
    if gpus in ([], [""]):
        raise RecordError("unknown cluster: the measurements name no GPU; add --cluster, for example star:4")
    if len(gpus) > 1 or _MIXED in gpus[0]:
        raise RecordError(f"measurements of several GPUs, {', '.join(gpus)}; add --cluster")
    return _of_gpu(gpus[0], records)


def other_gpus(records: Sequence[Record], cluster: str) -> list[str]:
    """Return the GPUs of the records that the named cluster's machines do not have."""
    if not parse_name(cluster).gpu_in_logs:
        return []
    names = {name for record in records for name in record.fingerprint.get("gpu", "").split(_MIXED) if name}
    return sorted(name for name in names if not _has(cluster, name))


def check_one_cluster(records: Sequence[Record], cluster: str, *, pool_sites: bool) -> None:
    """Refuse records of several machines, or of several sites unless pooled."""
    if not records:
        raise RecordError("no record with a usable time; measure some, or name other files")
    clusters = sorted({record.cluster for record in records})
    if len(clusters) > 1:
        raise RecordError(f"records of several clusters cannot be mixed: {', '.join(clusters)}")
    name, gpu = parse_name(cluster).machine, records[0].fingerprint.get("gpu")  # logs name GPUs, not machines
    if clusters[0] not in (name, gpu) and clusters[0] in MAKERS and name in MAKERS:
        raise RecordError(f"the records are of {clusters[0]}, not of {name}; write --cluster {clusters[0]}")
    sites = sorted({record.site for record in records})
    if len(sites) > 1 and not pool_sites:
        raise RecordError(f"records of several sites, {', '.join(sites)}; add --pool-sites to pool them")


def _has(cluster: str, gpu: str) -> bool:
    """Return whether the GPUs of the named cluster's machines may be called so."""
    pattern = parse_name(cluster).gpu_in_logs
    return pattern is not None and pattern.search(gpu.upper()) is not None


def with_nodes(cluster: str, nodes: int) -> str:
    """Return the cluster with a record's number of machines, where known; a drawn graph has its own."""
    machine, _, counts, _ = parse_name(cluster)
    if not nodes:
        return machine
    if counts is not None:
        return f"{machine}:{nodes}" if counts == "nodes" else machine
    drawn = num_machines(load(machine))
    if drawn != nodes:
        raise RecordError(
            f"NCCL was measured on {nodes} nodes, but {machine} has {drawn} machines; write a graph of "
            f"{nodes}, or describe one machine in ten lines (ringside topo --example)"
        )
    return machine


def gpus_in(machine: str) -> int:
    """Return the number of GPUs of the named machine."""
    return len(ranks(make(machine, 1)))


def _of_gpu(gpu: str, records: Sequence[Record]) -> tuple[str, str]:
    having = [machine for machine in machines() if _has(machine, gpu)]
    if not having:
        raise RecordError(f"no named machine has {gpu}; add --cluster with one, or a file of your own")
    if any(not record.num_nodes for record in records):
        return _one_of(having, gpu, "on an unknown number of nodes")
    each = max(-(-record.ranks // record.num_nodes) for record in records)
    nodes = max(record.num_nodes for record in records)
    where = f"{each} a node" + (f" on {nodes} nodes" if nodes > 1 else "")
    fitting = [machine for machine in having if gpus_in(machine) >= each]
    alike = [machine for machine in box_of(fitting[0]) if machine in fitting] if fitting else []
    if nodes == 1 and len(fitting) > 1 and len(alike) == len(fitting):
        return alike[0], f"by {gpu}, {where}; inside a node the same as {', '.join(alike[1:])}"
    return _one_of(fitting, gpu, where)


def _one_of(machines: list[str], gpu: str, where: str) -> tuple[str, str]:
    if len(machines) != 1:
        fits = f"fits {', '.join(machines)}" if machines else "fits no named machine"
        raise RecordError(f"{gpu}, {where}, {fits}; choose one with --cluster")
    return machines[0], f"by {gpu}, {where}"
