"""Measured MPI rows as tasks of the model, and their predictions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from inspect import signature

from ringside.sim.calibration import Calibration, CalibrationError
from ringside.sim.libraries.library import check_band
from ringside.sim.libraries.mpi.decisions import decide
from ringside.sim.libraries.mpi.form import MpiTask, NodePort, time_us, work_of
from ringside.sim.libraries.mpi.library import Mpi, port_of
from ringside.sim.libraries.mpi.measured import expected
from ringside.sim.libraries.mpi.rounds import ROUNDS
from ringside.sim.record import Record, RecordError, collective_of
from ringside.topologies import Routes, Topology, load
from ringside.topologies.catalogue import MAKERS, split
from ringside.topologies.placement import EVEN, machines_of, spread_over, stretches


@dataclass(frozen=True, slots=True)
class MpiRow:
    """A record, and the task that it timed."""

    record: Record
    task: MpiTask


def is_observable(record: Record) -> bool:
    """Return whether MPI's model has a form for a record's collective."""
    if record.library != Mpi.name or record.ranks < 2 or not record.nbytes:
        return False
    return algorithm_of(record) in ROUNDS[record.collective]


def algorithm_of(record: Record) -> str:
    """Return the algorithm that ran; Open MPI's own choice if none was forced."""
    return decide(collective_of(record)) if record.algorithm == "auto" else record.algorithm


def observed(records: Sequence[Record], cluster: str, settings: Mapping[str, str]) -> list[MpiRow]:
    """Return the records on the cluster's ports; ranks and nodes are each record's own."""
    name = split(cluster)[0]
    ports: dict[tuple[int, int], NodePort] = {}
    rows = []
    for record in records:
        nodes = record.num_nodes or record.ranks
        if record.ranks % nodes:
            raise RecordError(
                f"{record.ranks} ranks on {nodes} nodes; MPI's model needs equally many on every node"
            )
        shape = nodes, record.ranks // nodes
        if shape not in ports:
            ports[shape] = _port(name, settings, *shape)
        collective = collective_of(record)
        rows.append(MpiRow(record, MpiTask(collective, algorithm_of(record), ports[shape])))
    return rows


def _port(name: str, settings: Mapping[str, str], nodes: int, each: int) -> NodePort:
    """Return the port; all counts of several nodes have the same, so two nodes are built."""
    graph = _drawn(name, tuple(sorted(settings.items())), min(nodes, 2), each)
    count = min(nodes, 2) * each
    graph = spread_over(graph, count, EVEN)
    return port_of(graph, Routes(graph), stretches(machines_of(graph, count)))


@cache
def _drawn(name: str, settings: tuple[tuple[str, str], ...], nodes: int, each: int) -> Topology:
    values = dict(settings)
    if name in MAKERS and "processes" in signature(MAKERS[name]).parameters:
        return load(f"{name}:{nodes}", values | {"processes": str(each)})
    return load(name, values, ranks=nodes * each, nodes=nodes)


def predictions(
    records: Sequence[Record], cluster: str, settings: Mapping[str, str], calibration: Calibration | None
) -> Iterator[tuple[float, float, float]]:
    """Yield the seconds of each record and the ends of its band, calibrated or with default parameters."""
    if calibration and calibration.mpi is None:
        raise CalibrationError(
            f"the calibration of {calibration.cluster} is not of MPI; write --calibration none"
        )
    for record in records:
        if not is_observable(record):
            raise RecordError(
                f"mpi has no form for {record.algorithm} {record.collective} of {record.nbytes} B on "
                f"{record.ranks} ranks; remove such rows"
            )
    tasks = [row.task for row in observed(records, cluster, settings)]
    if calibration and calibration.mpi:
        before = [row.task for row in observed(records, cluster, calibration.settings_on(cluster))]
        times = calibration.mpi.model.scaled_seconds(tasks, before)
    else:
        times = (time_us(work_of(tasks), expected()) * 1e-6,) * 3
    for record, *ends in zip(records, *times, strict=True):
        middle, low, high = map(float, ends)
        check_band(f"{record.algorithm} {record.collective} of {record.nbytes} B", low, middle, high)
        yield middle, low, high
