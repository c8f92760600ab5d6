"""Records as models see them: each with the schedule that it timed and the topology that it ran on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sim.collective import ITEMSIZE, Collective
from sim.engine.events import simulate
from sim.libraries import ideal
from sim.libraries.nccl.cluster import communicators, is_machine
from sim.libraries.nccl.communicator import Communicator, Settings
from sim.libraries.nccl.library import model
from sim.libraries.nccl.pins import Pins
from sim.parameters import Parameters
from sim.predict import preset, schedules
from sim.record import Record, RecordError
from sim.schedule import Schedule
from topologies import MAKERS, Topology, load, ranks


@dataclass(frozen=True, slots=True)
class Row:
    """A record, what it timed and where."""

    record: Record
    schedule: Schedule
    graph: Topology
    comm: Communicator | None = None

    def preset_time(self) -> float:
        """Predicted seconds without calibration: NCCL's model where it knows the machine, else the preset."""
        if self.comm is None:
            return self.time(preset(self.record.library, self.schedule.collective, self.graph))
        record = self.record
        return model(
            self.schedule.collective, self.comm, record.dtype or "float32", record.redop or "sum"
        ).time_s

    def time(self, parameters: Parameters) -> float:
        """Predicted seconds, launch included: the closed form where there is one, else simulated."""
        closed = None
        if ideal.uniform(self.graph):
            closed = ideal.closed_form(self.schedule.algorithm, self.schedule.collective, parameters)
        if closed is None:
            closed = simulate(self.schedule, parameters.on(self.graph), parameters.gamma).time_s
        return closed + parameters.launch


def rows(records: Sequence[Record], cluster: str, settings: Mapping[str, str]) -> list[Row]:
    """The records on the cluster's topology, each with its own number of ranks and nodes."""
    graphs: dict[tuple[int, int], Topology] = {}
    made = []
    for record in records:
        shape = record.ranks, record.num_nodes
        if shape not in graphs:
            graphs[shape] = load(cluster, settings, ranks=record.ranks, nodes=record.num_nodes)
            if record.ranks > len(ranks(graphs[shape])):
                raise RecordError(
                    f"{record.ranks} ranks were measured, but {cluster} has {len(ranks(graphs[shape]))}; "
                    f"write a larger cluster"
                )
        collective = Collective(record.collective, record.ranks, record.nbytes, ITEMSIZE.get(record.dtype, 4))
        comm = _communicator(record, cluster, settings)
        made.append(Row(record, _schedule(record, collective), graphs[shape], comm))
    return made


def check_one_cluster(records: Sequence[Record], cluster: str, *, pool_sites: bool) -> None:
    """Refuse records of several machines, or of several sites unless these are to be pooled."""
    if not records:
        raise RecordError("no record with a usable time; measure some, or name other files")
    clusters = sorted({record.cluster for record in records})
    if len(clusters) > 1:
        raise RecordError(f"records of several clusters cannot be mixed: {', '.join(clusters)}")
    name = cluster.partition(":")[0]
    if clusters[0] in MAKERS and name in MAKERS and clusters[0] != name:
        raise RecordError(f"the records are of {clusters[0]}, not of {name}; write --cluster {clusters[0]}")
    sites = sorted({record.site for record in records})
    if len(sites) > 1 and not pool_sites:
        raise RecordError(f"records of several sites, {', '.join(sites)}; add --pool-sites to pool them")


def _communicator(record: Record, cluster: str, settings: Mapping[str, str]) -> Communicator | None:
    """NCCL's communicator of a record that NCCL made on a machine that its model knows."""
    if record.library != "nccl" or not is_machine(cluster):
        return None
    pins = Pins(*("" if pin == "auto" else pin for pin in (record.algorithm, record.protocol)))
    name = cluster.partition(":")[0]
    found = communicators(name, settings, [record.num_nodes], record.ranks, Settings(pins=pins))
    return found[record.num_nodes]


def _schedule(record: Record, collective: Collective) -> Schedule:
    """What the record timed; a library without a model here is taken for a textbook ring or tree."""
    if record.library == "gloo" and record.algorithm in ("auto", "ring"):
        return schedules("gloo", collective, "auto")
    is_tree = record.algorithm == "tree" and collective.kind == "all_reduce"
    algorithm = "double_binary_tree" if is_tree else "ring"
    if record.library == "ideal":
        algorithm = record.algorithm
    elif collective.kind in ("all_to_all", "sendrecv"):
        algorithm = "direct"
    return schedules("ideal", collective, algorithm)
