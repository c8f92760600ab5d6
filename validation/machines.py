"""The machine of measurements, from their names or their GPUs."""

from collections.abc import Sequence

from ringside.sim.calibration import shipped
from ringside.sim.record import Record, RecordError
from ringside.topologies import MAKERS, load, num_machines
from ringside.topologies.graph import ranks as ranks_of
from ringside.topologies.load import parse_name
from ringside.topologies.machine import box_of, machines
from ringside.validation.readers.nccl_tests_text import CLOUDS

_MIXED = " + "  # joins the names where the GPUs of a run differ
_OF_CLOUDS = tuple(f"{name.lower()}-" for name in CLOUDS)


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


def with_nodes(cluster: str, nodes: int, ranks: int) -> str:
    """Return the cluster with a record's number of machines, where known; a drawn graph has its own."""
    machine, _, counts, *_ = parse_name(cluster)
    if not nodes:
        return machine
    if counts is not None:
        return f"{machine}:{domains(machine, nodes, ranks)}" if counts == "nodes" else machine
    drawn, measured = num_machines(load(machine)), domains(machine, nodes, ranks)
    if drawn != measured:
        raise RecordError(
            f"NCCL was measured on {measured} nodes, but {machine} has {drawn} machines; write a graph of "
            f"{measured}, or describe one machine in ten lines (ringside topo --example)"
        )
    return machine


def domains(machine: str, nodes: int, ranks: int) -> int:
    """Return the number of machines that hold the ranks of ``nodes`` hosts: one where NVLink joins them all.

    Hosts fill one machine after another. A count too small for hosts with so many ranks is of machines, as
    NCCL itself counts.
    """
    hosts = parse_name(machine).hosts
    if hosts == 1 or ranks * hosts > nodes * gpus_in(machine):
        return nodes
    return -(-nodes // hosts)


def gpus_in(machine: str) -> int:
    """Return the number of GPUs of one of the cluster's machines."""
    graph = load(machine, nodes=1)
    return len(ranks_of(graph)) // num_machines(graph)


def said(records: Sequence[Record], fact: str) -> str:
    """Return what the records' fingerprints agree on; empty where they do not, or say nothing."""
    texts = {record.fingerprint.get(fact, "") for record in records}
    return texts.pop() if len(texts) == 1 else ""


def network_of(records: Sequence[Record]) -> str:
    """Return the network that a log's NET lines tell, in words; empty where there are none."""
    cards, gbps = said(records, "cards"), said(records, "card_gbps")
    parts = (
        said(records, "network"),
        f"{cards} cards{f' of {gbps} Gb/s' if gbps else ''} a node" if cards else "",
        " ".join(filter(None, (said(records, "cloud"), said(records, "instance")))),
    )
    return ", ".join(filter(None, parts))


def _of_gpu(gpu: str, records: Sequence[Record]) -> tuple[str, str]:
    having = [machine for machine in machines() if _has(machine, gpu)]
    if not having:
        raise RecordError(f"no named machine has {gpu}; add --cluster with one, or a file of your own")
    having = _of_network(having, gpu, records)
    if any(not record.num_nodes for record in records):
        return _one_of(having, gpu, "on an unknown number of nodes")
    each = max(-(-record.ranks // record.num_nodes) for record in records)
    nodes = max(record.num_nodes for record in records)
    network = network_of(records) if nodes > 1 else ""
    where = ", ".join(filter(None, (f"{each} a node{f' on {nodes} nodes' if nodes > 1 else ''}", network)))
    fitting = [machine for machine in having if gpus_in(machine) >= each]
    alike = [machine for machine in box_of(fitting[0]) if machine in fitting] if fitting else []
    alike.sort(key=lambda machine: (machine.startswith(_OF_CLOUDS), shipped(machine) is None))
    if nodes == 1 and len(fitting) > 1 and len(alike) == len(fitting):
        return alike[0], f"by {gpu}, {where}; inside a node the same as {', '.join(alike[1:])}"
    return _one_of(fitting, gpu, where)


def _of_network(having: list[str], gpu: str, records: Sequence[Record]) -> list[str]:
    """Return the machines that have the log's network; an instance of a cloud is no DGX of the same GPU."""
    cloud, instance = said(records, "cloud"), said(records, "instance")
    if not cloud:
        own = [machine for machine in having if not machine.startswith(_OF_CLOUDS)]
        return own if own and said(records, "network") else having
    own = [machine for machine in having if machine.startswith(f"{cloud.lower()}-")]
    if instance:
        own = [machine for machine in own if machine == f"{cloud.lower()}-{instance.partition('.')[0]}"]
    if own or all(record.num_nodes == 1 for record in records):
        return own or having
    raise RecordError(
        f"an instance of {cloud}{f', {instance},' if instance else ''} with {gpu}: the catalogue has no such "
        "machine, and another with the same GPU has other cards; describe it in ten lines (ringside topo "
        f"--example), or add --cluster with the one most like it: {', '.join(having)}"
    )


def _one_of(machines: list[str], gpu: str, where: str) -> tuple[str, str]:
    if len(machines) != 1:
        fits = f"fits {', '.join(machines)}" if machines else "fits no named machine"
        raise RecordError(f"{gpu}, {where}, {fits}; choose one with --cluster")
    return machines[0], f"by {gpu}, {where}"
