"""On which machine measurements were made, as far as their GPUs tell."""

from collections.abc import Sequence

from sim.calibration import BOXES
from sim.record import Record, RecordError
from topologies import MAKERS
from topologies.catalogue import split
from topologies.gpus import GPUS, gpus_in, has, machines_with

_MIXED = " + "  # joins the names where the GPUs of a run differ


def infer_machine(records: Sequence[Record]) -> tuple[str, str]:
    """The named machine, and why it is taken for that one; raise `RecordError` if one cannot be told."""
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
    """The GPUs of the records that the named cluster's machines do not have."""
    machine = split(cluster)[0]
    if machine not in GPUS:
        return []
    names = {name for record in records for name in record.fingerprint.get("gpu", "").split(_MIXED) if name}
    return sorted(name for name in names if not has(machine, name))


def _of_gpu(gpu: str, records: Sequence[Record]) -> tuple[str, str]:
    machines = machines_with(gpu)
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
