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
from ringside.sim.libraries.find import Options, as_nccl, find_library
from ringside.sim.libraries.library import Library
from ringside.sim.libraries.scheduled import Scheduled
from ringside.topologies import Topology, load
from ringside.topologies.catalogue import split
from ringside.topologies.graph import ranks
from ringside.topologies.load import counts
from ringside.topologies.placement import EVEN, NUMBERED, place, spread_over
from ringside.topologies.words import one_of

RULES = {"gloo": "gloo", "ideal": "gloo", "nccl": "nccl"}
"""The library whose rules a program follows: the textbook's algorithms wait as Gloo's do."""


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
    """NCCL by the layout of a group: the numbers of ranks per machine, and on a fabric the machines
    themselves."""

    def __post_init__(self) -> None:
        if self.name not in RULES:
            raise ValueError(f"{self.name!r} runs no programs; write {one_of(RULES, self.name)}")
        self.placed = self.of(tuple(range(self.ranks))).placed

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
        """The library whose rules the program follows."""
        return RULES[self.name]

    @property
    def machine(self) -> int:
        """Ranks per machine, or on the first one, which has the most."""
        return self.placed[0]

    @property
    def is_priced(self) -> bool:
        """Whether its times are measured or believed, not derived from a schedule."""
        return self.name == "nccl" or isinstance(self.calibration, Calibration)

    def of(self, hosts: tuple[int, ...]) -> Library:
        """Return the library of a group that these ranks of the cluster carry, in the group's order."""
        if hosts not in self._known:
            self._known[hosts] = self._nccl(hosts) if self.name == "nccl" else self._scheduled(hosts)
        return self._known[hosts]

    def shares(
        self,
        hosts: tuple[int, ...],
        collective: Collective,
        seconds: float,
        among: Container[int] | None = None,
    ) -> dict[Hashable, float]:
        """Return the resources that a collective of ``seconds`` keeps busy, each with its share of the time.

        GPUs and machines are limited to those ``among`` these ranks of the cluster, which nothing else uses.
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
        """Yield the resources of an NCCL collective: the direction, the part, and its rank or machine.

        Shares follow nccl-tests' bus bandwidth, which counts what a ring moves: another collective does not
        get what a tree or a switch spares the links.
        """
        nccl = as_nccl(self.of(hosts))
        if nccl is None or nccl.comm is None:
            return {}
        from ringside.sim.libraries.nccl.device.traffic import CARDS, NVLINK, PCIE, traffic

        algorithm = "p2p" if nccl.choose(collective).algorithm == "p2p" else "ring"
        needed_s = traffic(nccl.comm, collective, algorithm, "simple")
        members = hosts if among is None else tuple(host for host in hosts if host in among)
        places = {NVLINK: members, PCIE: members, CARDS: tuple(self._machines(members))}
        return {
            (way, part, place): min(needed_s[part] / seconds, 1.0)
            for part, here in places.items()
            for place in here
            for way in ("in", "out")
            if needed_s[part]
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

    def _scheduled(self, hosts: tuple[int, ...]) -> Library:
        """Return the library of the first ranks, renumbered; others relay, as they do for messages."""
        here, graph = len(hosts), self.graph
        if hosts != tuple(range(here)):
            others = set(range(len(ranks(graph)))).difference(hosts)
            graph = place(graph, [*hosts, *sorted(others)])
        options = Options(network=self.network, placement=NUMBERED)
        return find_library(self.name, graph, ranks=here, options=options, calibration=self.calibration)

    def _nccl(self, hosts: tuple[int, ...]) -> Library:
        """Return the NCCL of a group with equal ranks per machine; on a fabric the machines matter too."""
        options = Options(network=self.network, placement=self.placement)
        name, _ = split(self.cluster)
        if len(hosts) == self.ranks and not self._known:
            cluster = self.cluster
        elif (counted := counts(name)) is None:
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
                "nccl", cluster, self.values, ranks=len(hosts), options=options, calibration=self.calibration
            )
        nccl = as_nccl(self._shapes[shape])
        if self.placed and nccl and nccl.comm and nccl.comm.network is not None:
            return nccl.standing(self.graph, tuple(self._machines(hosts)))
        return self._shapes[shape]

    def _machines(self, hosts: tuple[int, ...]) -> Counter[int]:
        """Count the ranks on each machine."""
        return Counter(map(self._machine, hosts))

    def _machine(self, host: int) -> int:
        return bisect(list(accumulate(self.placed)), host)
