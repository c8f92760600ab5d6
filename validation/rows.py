"""Records for models, each with its schedule and its topology."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ringside.sim.calibration import Calibration, Fit
from ringside.sim.collective import Collective
from ringside.sim.libraries.find import LIBRARIES, Options, find_library, models
from ringside.sim.libraries.library import Library, check_band
from ringside.sim.libraries.scaling import wider
from ringside.sim.libraries.scheduled import evaluate
from ringside.sim.parameters import Parameters, preset_of
from ringside.sim.record import Record, RecordError, collective_of
from ringside.sim.schedule import Schedule
from ringside.topologies import Routes, Topology, load, ranks
from ringside.topologies.load import parse_name
from ringside.topologies.placement import EVEN, NUMBERED, PACKED, spread_over
from ringside.validation.machines import with_nodes
from ringside.validation.measurements import options_of


class SizedCluster:
    """The cluster with one number of ranks, and of nodes if known; built on demand."""

    def __init__(self, cluster: str, settings: Mapping[str, str], ranks: int, nodes: int | None) -> None:
        self.cluster, self.settings, self.ranks, self.nodes = cluster, settings, ranks, nodes

    @cached_property
    def graph(self) -> Topology:
        """Its topology; the first ranks are those measured, spread evenly over the record's nodes.

        Raise `RecordError` where more ranks were measured than it has.
        """
        is_counted = self.nodes and parse_name(self.cluster).counts == "nodes"
        cluster = with_nodes(self.cluster, self.nodes or 0, self.ranks) if is_counted else self.cluster
        graph = load(cluster, self.settings, ranks=self.ranks, nodes=self.nodes)
        if self.ranks > len(ranks(graph)):
            raise RecordError(
                f"{self.ranks} ranks were measured, but {self.cluster} has {len(ranks(graph))}; "
                f"write a larger cluster"
            )
        return spread_over(graph, self.ranks, EVEN if self.nodes else PACKED)

    @cached_property
    def routes(self) -> Routes:
        """The routes of messages across it."""
        return Routes(self.graph)

    def carried_over(self, parameters: Parameters, settings: Mapping[str, str]) -> Parameters:
        """Scale parameters fitted on the cluster with these settings to the cluster as it is."""
        if settings == self.settings:
            return parameters
        fitted_on = SizedCluster(self.cluster, settings, self.ranks, self.nodes)
        presets = (preset_of(one.graph, one.routes) for one in (fitted_on, self))
        return parameters.carried_over(*presets)


@dataclass(frozen=True)
class PlacedRecord:
    """A record, its collective, its library, and the topology on which parameters are fitted.

    ``fit`` are the fitted parameters of its way of carrying out the collective.
    """

    record: Record
    collective: Collective
    library: Library
    placed: SizedCluster
    fit: Fit | None = None

    @cached_property
    def textbook(self) -> Library:
        """The library whose schedule's parameters are fitted."""
        return _textbook(self.record, self.placed.graph)

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule whose parameters are fitted."""
        return self.textbook.schedule(self.collective, self.textbook.choose(self.collective))

    def calibrated(self, fit: Fit, settings: Mapping[str, str]) -> tuple[float, float, float]:
        """Return predicted seconds and their ends by a fit to the cluster with these settings."""
        parameters = self.placed.carried_over(fit.parameters, settings)
        before = seconds = self.time(fit.parameters, "auto")
        if parameters != fit.parameters:
            seconds = self.time(parameters, "auto")
        low, high = wider(fit.band, seconds / before if before else 1.0)
        what = f"{self.record.algorithm} {self.record.collective} of {self.record.nbytes} B"
        check_band(what, seconds * low, seconds, seconds * high)
        return seconds, seconds * low, seconds * high

    def time(self, parameters: Parameters, engine: str = "quick") -> float:
        """Return the predicted seconds of the schedule, including the launch."""
        graph, routes = parameters.on(self.placed.graph, self.placed.routes), self.placed.routes
        return evaluate(self.schedule, graph, parameters, engine, routes=routes)[0]


def rows(
    records: Sequence[Record],
    cluster: str,
    settings: Mapping[str, str],
    network: str = "fifo",
    calibration: Calibration | str | None = None,
) -> list[PlacedRecord]:
    """Return the records on the cluster's topology, each with its own number of ranks and nodes.

    NCCL's part of the ``calibration`` is for machines that NCCL's model knows, its fits are for others.
    """
    fitted = calibration if isinstance(calibration, Calibration) else None
    measured = None if fitted and not fitted.nccl else calibration
    sized: dict[tuple[int, int], SizedCluster] = {}
    libraries: dict[tuple[str | int | Options, ...], Library] = {}
    made = []
    for record in records:
        shape = record.ranks, record.num_nodes
        nodes = record.num_nodes or None
        placed = sized.setdefault(shape, SizedCluster(cluster, settings, record.ranks, nodes))
        options = options_of(record, network)
        way = record.library, record.collective, options, *shape
        is_modelled = models(record.library, cluster)
        if way not in libraries and is_modelled:
            libraries[way] = find_library(
                record.library, with_nodes(cluster, record.num_nodes, record.ranks), settings,
                ranks=record.ranks, options=options, calibration=measured,
            )  # fmt: skip
        elif way not in libraries:
            libraries[way] = _textbook(record, placed.graph, network)
        fit = None
        if fitted and not is_modelled:
            fit = fitted.fit_for(record.library, record.algorithm, record.protocol)
        made.append(PlacedRecord(record, collective_of(record), libraries[way], placed, fit))
    return made


def _textbook(record: Record, graph: Topology, network: str = "fifo") -> Library:
    """Return a library with a schedule: a textbook ring or tree if the record's has no model here."""
    entry = LIBRARIES.get(record.library)
    has_one_way = entry is not None and not entry.picks and record.algorithm in ("auto", "ring")
    name = record.library if has_one_way else "ideal"
    algorithm = "auto" if has_one_way else _algorithm(record)
    options = Options(algorithm, network=network, placement=NUMBERED)
    return find_library(name, graph, ranks=record.ranks, options=options, calibration=None)


def _algorithm(record: Record) -> str:
    """Return the record's algorithm, or the textbook algorithm used in its place."""
    if record.library in LIBRARIES and not LIBRARIES[record.library].by_default:
        return record.algorithm
    if record.collective in ("all_to_all", "sendrecv", "gather", "scatter"):
        return "direct"
    return (
        "double_binary_tree" if record.algorithm == "tree" and record.collective == "all_reduce" else "ring"
    )
