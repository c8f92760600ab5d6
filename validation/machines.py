"""The machine of measurements, from their names or their GPUs."""

import re
from collections.abc import Sequence

from ringside.sim.calibration import BOXES
from ringside.sim.record import Record, RecordError
from ringside.topologies import MAKERS, load, make, num_machines, ranks
from ringside.topologies.catalogue import split
from ringside.topologies.load import counts, in_catalogue

_A100_40, _A100_80 = r"A100-SXM4?(?!-80GB)", r"A100-SXM4?(?!-40GB)"
_H100 = r"\bH100(?!.*(PCIE|NVL|64GB))"

GPUS = {
    **dict.fromkeys(("dgx1-v100", "abci-v100", "summit-v100"), r"V100-SXM2"),
    "dgx2-v100": r"V100-SXM3",
    **dict.fromkeys(("dgx-a100", "perlmutter-a100"), f"{_A100_40}|{_A100_80}"),
    **dict.fromkeys(("abci-a100", "polaris-a100", "aws-p4d", "azure-ndv4"), _A100_40),
    "aws-p4de": _A100_80,
    "a100-pcie4": r"A100.*PCIE",
    **dict.fromkeys(("dgx-h100", "aws-p5", "gcp-a3mega", "azure-ndv5", "kestrel-h100", "h100-1gpu"), _H100),
    "mn5-h100": r"\bH100( 64GB)?$",  # the driver does not say that they are of 64 GB
    "dgx-h200": r"\bH200",
    "alps-gh200": r"\bGH200",
    **dict.fromkeys(("dgx-b200", "gcp-a4"), r"\bB200"),
    "gb200-nvl72": r"\bGB200",
    "hgx-h800": r"\bH800",
    "hgx-h20": r"\bH20\b",
    "rtx4090-pcie": r"RTX 4090(?! D)",
    "mi300x": r"\bMI300X",
}
"""A pattern per machine for the names of its GPUs in capitals; plain networks have none."""

_MIXED = " + "  # joins the names where the GPUs of a run differ


def infer_machine(records: Sequence[Record]) -> tuple[str, str]:
    """Return the named machine, and the evidence; raise `RecordError` if it cannot be identified."""
    clusters = sorted({record.cluster for record in records})
    if len(clusters) == 1 and clusters[0] in MAKERS:
        return clusters[0], "which the records name"
    gpus = sorted({record.fingerprint.get("gpu", "") for record in records})
    if gpus in ([], [""]):
        raise RecordError(
            "what did the measurements run on? they name no GPU; add --cluster, for example star:4"
        )
    if len(gpus) > 1 or _MIXED in gpus[0]:
        raise RecordError(f"measurements of several GPUs, {', '.join(gpus)}; add --cluster")
    return _of_gpu(gpus[0], records)


def other_gpus(records: Sequence[Record], cluster: str) -> list[str]:
    """Return the GPUs of the records that the named cluster's machines do not have."""
    machine = in_catalogue(cluster)
    if machine not in GPUS:
        return []
    names = {name for record in records for name in record.fingerprint.get("gpu", "").split(_MIXED) if name}
    return sorted(name for name in names if not _has(machine, name))


def check_one_cluster(records: Sequence[Record], cluster: str, *, pool_sites: bool) -> None:
    """Refuse records of several machines, or of several sites unless pooled."""
    if not records:
        raise RecordError("no record with a usable time; measure some, or name other files")
    clusters = sorted({record.cluster for record in records})
    if len(clusters) > 1:
        raise RecordError(f"records of several clusters cannot be mixed: {', '.join(clusters)}")
    name = in_catalogue(cluster)
    if clusters[0] in MAKERS and name in MAKERS and clusters[0] != name:
        raise RecordError(f"the records are of {clusters[0]}, not of {name}; write --cluster {clusters[0]}")
    sites = sorted({record.site for record in records})
    if len(sites) > 1 and not pool_sites:
        raise RecordError(f"records of several sites, {', '.join(sites)}; add --pool-sites to pool them")


def _has(machine: str, gpu: str) -> bool:
    """Whether the named machine's GPUs may have this name."""
    return re.search(GPUS[machine], gpu.upper()) is not None


def _machines_with(gpu: str) -> list[str]:
    """Return the named machines whose GPUs may have this name."""
    return [machine for machine in GPUS if _has(machine, gpu)]


def with_nodes(cluster: str, nodes: int) -> str:
    """Return the cluster with a record's number of machines, where known; a drawn graph has its own."""
    machine = split(cluster)[0]
    if not nodes:
        return machine
    counted = counts(machine)
    if counted is not None:
        return f"{machine}:{nodes}" if counted == "nodes" else machine
    drawn = num_machines(load(machine))
    if drawn != nodes:
        raise RecordError(
            f"NCCL was measured on {nodes} nodes, but {machine} has {drawn} machines; draw as many, or "
            "describe one in ten lines (ringside topo --example)"
        )
    return machine


def gpus_in(machine: str) -> int:
    """Return the number of GPUs of the named machine."""
    return len(ranks(make(machine, 1)))


def _of_gpu(gpu: str, records: Sequence[Record]) -> tuple[str, str]:
    machines = _machines_with(gpu)
    if not machines:
        raise RecordError(f"no named machine has {gpu}; add --cluster with one, or a file of your own")
    if any(not record.num_nodes for record in records):
        return _one_of(machines, gpu, "on an unknown number of nodes")
    each = max(-(-record.ranks // record.num_nodes) for record in records)
    nodes = max(record.num_nodes for record in records)
    where = f"{each} a node" + (f" on {nodes} nodes" if nodes > 1 else "")
    fitting = [machine for machine in machines if gpus_in(machine) >= each]
    if nodes == 1 and len(fitting) > 1 and any(set(fitting) <= set(box) for box in BOXES.values()):
        return fitting[0], f"by {gpu}, {where}; inside a node the same as {', '.join(fitting[1:])}"
    return _one_of(fitting, gpu, where)


def _one_of(machines: list[str], gpu: str, where: str) -> tuple[str, str]:
    if len(machines) != 1:
        found = f"fits {', '.join(machines)}" if machines else "fits no named machine"
        raise RecordError(f"{gpu}, {where}, {found}; say which with --cluster")
    return machines[0], f"by {gpu}, {where}"
