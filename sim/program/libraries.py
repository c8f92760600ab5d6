"""The library of each group of a job: one library, bound to the group's part of the cluster."""

from bisect import bisect
from collections import Counter
from collections.abc import Container, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from ringside.sim.calibration import AUTO, Calibration
from ringside.sim.collective import Collective
from ringside.sim.engine.bounds import busy
from ringside.sim.libraries.find import LIBRARIES, LibraryEntry, Options, find_library
from ringside.sim.libraries.library import Library
from ringside.sim.libraries.scheduled import Scheduled
from ringside.topologies import Topology, load
from ringside.topologies.catalogue import split
from ringside.topologies.graph import ranks
from ringside.topologies.load import parse_name
from ringside.topologies.names import one_of
from ringside.topologies.placement import EVEN, NUMBERED, place, spread_over


@dataclass(slots=True)
class Libraries:
    """A library on a cluster, by names and settings as on the command line; ``of`` binds it to some ranks."""

    name: str
    cluster: str
    values: Mapping[str, Any]
    ranks: int
    network: str = "fifo"
    calibration: "Calibration | str | None" = AUTO
    placement: str = EVEN
    placed: Sequence[int] = ()
    """Number of consecutive ranks per machine."""
    _graph: "Topology | None" = None
    _known: dict[tuple[int, ...], Library] = field(default_factory=dict)
    _shapes: dict[tuple[str, int], Library] = field(default_factory=dict)
    """NCCL libraries, which depend on the ranks per machine, and on a fabric also on the machines."""

    def __post_init__(self) -> None:
        able = [name for name, entry in sorted(LIBRARIES.items()) if entry.rules]
        if self.name not in able:
            raise ValueError(f"{self.name!r} runs no programs; write {one_of(able, self.name)}")
        self.placed = self.whole.placed

    @classmethod
    def on(cls, name: str, graph: Topology, ranks: int) -> "Libraries":
        """Return a library on an existing topology, uncalibrated."""
        called = str(graph.graph.get("name", "topology"))
        return cls(name, called, {}, ranks, calibration=None, placement=NUMBERED, _graph=graph)

    @property
    def graph(self) -> Topology:
        """The whole cluster, whose first ranks are these."""
        if self._graph is None:
            whole = load(self.cluster, self.values, ranks=self.ranks)
            self._graph = spread_over(whole, self.ranks, self.placement)
        return self._graph

    @property
    def rules(self) -> str:
        """The rules of programs on this library: Gloo's or NCCL's."""
        rules = self.entry.rules
        assert rules is not None
        return rules.name

    @property
    def entry(self) -> LibraryEntry:
        """The library's entry in the table."""
        return LIBRARIES[self.name]

    @property
    def whole(self) -> Library:
        """The library of all ranks."""
        return self.of(tuple(range(self.ranks)))

    @property
    def machine(self) -> int:
        """Ranks per machine, or on the first one, which has the most."""
        return self.placed[0]

    @property
    def is_priced(self) -> bool:
        """Whether its times are measured or estimated, instead of a schedule's."""
        return not self.whole.plays_links or isinstance(self.calibration, Calibration)

    def of(self, hosts: tuple[int, ...]) -> Library:
        """Return the library of a group on these ranks of the cluster, in the group's order."""
        if hosts not in self._known:
            bind = self._on_machines if self.entry.by_machines else self._on_graph
            self._known[hosts] = bind(hosts)
        return self._known[hosts]

    def shares(
        self,
        hosts: tuple[int, ...],
        collective: Collective,
        seconds: float,
        among: Container[int] | None = None,
    ) -> dict[Hashable, float]:
        """Return the resources that a collective of ``seconds`` keeps busy, each with its share of the time.

        Only GPUs and machines of the ranks ``among`` are included.
        """
        library = self.of(hosts)
        if not seconds:
            return {}
        if isinstance(library, Scheduled):
            plan = library.schedule(collective, library.choose(collective))
            links = busy(plan, library.graph, library.routes)
            return {hop: min(needed / seconds, 1.0) for hop, needed in links.items()}
        return self._parts(hosts, collective, seconds, among)

    def _parts(
        self,
        hosts: tuple[int, ...],
        collective: Collective,
        seconds: float,
        among: Container[int] | None = None,
    ) -> dict[Hashable, float]:
        """Return a collective's utilisation by direction, part, and rank or machine."""
        from ringside.sim.libraries.nccl.device.traffic import CARDS, NVLINK, PCIE

        needed_s = self.of(hosts).parts(collective)
        sharing = hosts if among is None else tuple(host for host in hosts if host in among)
        places = {NVLINK: sharing, PCIE: sharing, CARDS: tuple(self._machines(sharing))}
        return {
            (way, part, place): min(needed_s[part] / seconds, 1.0)
            for part, here in places.items()
            for place in here
            for way in ("in", "out")
            if needed_s.get(part)
        }

    def message(self, src: int, dst: int, nbytes: int) -> tuple[float, dict[Hashable, float]]:
        """Return a message's time alone, as the library sends it, and the resources it keeps busy."""
        library, collective = self.of((src, dst)), Collective("sendrecv", 2, nbytes)
        seconds = library.time(collective, library.choose(collective)).time_s
        if isinstance(library, Scheduled):
            edges = library.graph.edges
            links = {hop: nbytes / edges[hop]["bandwidth"] for hop in library.routes.route(0, 1)}
            return seconds, {hop: min(needed / seconds, 1.0) for hop, needed in links.items() if needed}
        from ringside.sim.libraries.nccl.device.traffic import CARDS, NVLINK, PCIE

        gpus, nodes = (src, dst), (self._machine(src), self._machine(dst))
        ends = {
            (way, part, end)
            for part in (NVLINK, PCIE, CARDS)
            for way, end in zip(("out", "in"), nodes if part == CARDS else gpus, strict=True)
        }
        parts = self._parts((src, dst), collective, seconds)
        return seconds, {part: share for part, share in parts.items() if part in ends}

    def _on_graph(self, hosts: tuple[int, ...]) -> Library:
        """Return the library of these ranks, renumbered from 0; others relay messages."""
        here, graph = len(hosts), self.graph
        if hosts != tuple(range(here)):
            others = set(range(len(ranks(graph)))).difference(hosts)
            graph = place(graph, [*hosts, *sorted(others)])
        options = Options(network=self.network, placement=NUMBERED)
        return find_library(self.name, graph, ranks=here, options=options, calibration=self.calibration)

    def _on_machines(self, hosts: tuple[int, ...]) -> Library:
        """Return NCCL of a group with equally many ranks per machine; on a fabric the machines matter."""
        options = Options(network=self.network, placement=self.placement)
        name, _ = split(self.cluster)
        if len(hosts) == self.ranks and not self._known:
            cluster = self.cluster
        elif (counted := parse_name(name).counts) is None:
            raise ValueError(
                f"a group of ranks {list(hosts)[:8]} of {self.cluster}: NCCL's model covers no part "
                "of a custom cluster; write a named cluster, or --library gloo"
            )
        else:
            held = self._machines(hosts)
            if len(set(held.values())) > 1:
                raise ValueError(
                    f"a group has {min(held.values())} ranks on one machine of {self.cluster} and "
                    f"{max(held.values())} on another, which NCCL's model does not cover; write groups "
                    "with equal numbers of ranks per machine"
                )
            cluster = f"{name}:{len(held)}" if counted == "nodes" else self.cluster
        shape = cluster, len(hosts)
        if shape not in self._shapes:
            self._shapes[shape] = find_library(
                self.name, cluster, self.values, ranks=len(hosts), options=options,
                calibration=self.calibration,
            )  # fmt: skip
        library = self._shapes[shape]
        on_fabric = self.placed and library.is_on_fabric
        return library.standing(self.graph, tuple(self._machines(hosts))) if on_fabric else library

    def _machines(self, hosts: tuple[int, ...]) -> Counter[int]:
        """Count the ranks on each machine."""
        return Counter(map(self._machine, hosts))

    def _machine(self, host: int) -> int:
        return bisect(list(accumulate(self.placed)), host)
