"""A validation's plan: emulated networks, and on each of them collectives to predict.

A family is a set of cells with one tolerance. With these sizes a ring's step has 128 KiB or more and takes
some 5 ms or more: below that, the measurement shows the machine's scheduler, not the network.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ringside.topologies import Topology, star
from ringside.topologies.fabrics import leaf_spine
from ringside.topologies.names import one_of

MIB = 2**20
MBIT = 1e6 / 8

LIBRARY = "gloo"
"""The algorithm of a cell in which Gloo chooses."""

_ALGORITHMS = ("ring", "double_binary_tree", "tree", LIBRARY)
_OTHERS = ("broadcast", "all_gather", "reduce_scatter", "all_to_all")

_SHARING = (
    ("all_reduce", "halving_doubling"),
    ("all_to_all", "direct"),
    ("all_reduce", "double_binary_tree"),
)
"""Collectives that send over a leaf's uplink from several hosts at once, unlike a ring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """The limits of the absolute relative errors of a family's cells; None is no limit."""

    median: float
    p90: float | None = None
    worst: float | None = None


TOLERANCES = {
    "ring": Tolerance(median=0.02, p90=0.06),
    "double binary tree": Tolerance(median=0.04, p90=0.10),
    "tree": Tolerance(median=0.07, p90=0.14),
    "Gloo all-reduce": Tolerance(median=0.06, p90=0.12),
    "Gloo's other collectives": Tolerance(median=0.10),
    "leaf-spine": Tolerance(median=0.03, worst=0.07),
    "shared uplinks": Tolerance(median=0.05, worst=0.12),
    "other rank counts": Tolerance(median=0.06),
    "slower link": Tolerance(median=0.06),
    "16 ranks": Tolerance(median=0.08, worst=0.08),
}
"""Families in reporting order."""

_FAMILY = {
    "ring": "ring",
    "double_binary_tree": "double binary tree",
    "tree": "tree",
    LIBRARY: "Gloo all-reduce",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveCase:
    """One collective by one algorithm, `LIBRARY` for Gloo's own, on some ranks at several sizes."""

    family: str
    collective: str = "all_reduce"
    algorithm: str = "ring"
    ranks: int
    sizes: tuple[int, ...]
    placement: str = "natural"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkCase:
    """An emulated network: its hosts' links, in bytes/s, its oversubscription and its cases.

    ``leaves`` of 0 is a star. The host named by ``slow`` has links ``slowdown`` times slower.
    """

    hosts: int
    bandwidth: float
    trials: tuple[CollectiveCase, ...]
    leaves: int = 0
    oversubscription: float = 1.0
    slow: int | None = None
    slowdown: float = field(default=2.0)

    @property
    def graph(self) -> Topology:
        """Return its topology. Latencies are 0: they are to be measured."""
        if self.leaves:
            share = self.hosts // self.leaves
            return leaf_spine(self.leaves, share, self.bandwidth, 0.0, self.oversubscription)
        graph = star(self.hosts, self.bandwidth, 0.0)
        for a, b, link in graph.edges(data=True):
            if self.slow is not None and f"gpu{self.slow}" in (a, b):
                link["bandwidth"] /= self.slowdown
        return graph


def num_cells(plan: Sequence[NetworkCase]) -> int:
    """Return the number of cells of a plan."""
    return sum(len(trial.sizes) for scene in plan for trial in scene.trials)


def of_families(plan: Sequence[NetworkCase], families: Sequence[str]) -> tuple[NetworkCase, ...]:
    """Return the part of a plan that belongs to some families; all of it without any."""
    known = {trial.family: None for scene in plan for trial in scene.trials}
    for family in families:
        if family not in known:
            raise ValueError(f"{family!r} is not a family of this plan; write {one_of(known, family)}")
    scenes = (
        replace(scene, trials=tuple(t for t in scene.trials if not families or t.family in families))
        for scene in plan
    )
    return tuple(scene for scene in scenes if scene.trials)


def _by_algorithm(ranks: Sequence[int], sizes: tuple[int, ...]) -> Iterator[CollectiveCase]:
    for algorithm in _ALGORITHMS:
        for count in ranks:
            yield CollectiveCase(family=_FAMILY[algorithm], algorithm=algorithm, ranks=count, sizes=sizes)


def _others(ranks: Sequence[int], sizes: tuple[int, ...]) -> Iterator[CollectiveCase]:
    for kind in _OTHERS:
        for count in ranks:
            yield CollectiveCase(
                family="Gloo's other collectives",
                collective=kind,
                algorithm=LIBRARY,
                ranks=count,
                sizes=sizes,
            )


def _counts(
    ranks: Sequence[int], algorithms: Sequence[str], sizes: tuple[int, ...]
) -> Iterator[CollectiveCase]:
    for count in ranks:
        for algorithm in algorithms:
            yield CollectiveCase(family="other rank counts", algorithm=algorithm, ranks=count, sizes=sizes)


def _leaf_spine(
    bandwidth: float,
    oversubscription: float,
    sizes: tuple[int, ...],
    sharing: Sequence[tuple[str, str]] = _SHARING,
) -> NetworkCase:
    rings = tuple(
        CollectiveCase(family="leaf-spine", ranks=8, sizes=sizes, placement=placement)
        for placement in ("natural", "interleaved")
    )
    shared = tuple(
        CollectiveCase(family="shared uplinks", collective=kind, algorithm=algorithm, ranks=8, sizes=sizes)
        for kind, algorithm in sharing
    )
    trials = (*rings, *shared)
    return NetworkCase(
        hosts=8, leaves=2, bandwidth=bandwidth, oversubscription=oversubscription, trials=trials
    )


def _slower_link(bandwidth: float, algorithms: Sequence[str], sizes: tuple[int, ...]) -> NetworkCase:
    trials = tuple(
        CollectiveCase(family="slower link", algorithm=algorithm, ranks=4, sizes=sizes)
        for algorithm in algorithms
    )
    return NetworkCase(hosts=4, bandwidth=bandwidth, slow=2, trials=trials)


SHORT = (
    NetworkCase(
        hosts=8,
        bandwidth=200 * MBIT,
        trials=(
            *_by_algorithm((4, 8), (2 * MIB,)),
            *_others((4,), (2 * MIB,)),
            *_counts((3, 7), ("ring",), (2 * MIB,)),
        ),
    ),
    _leaf_spine(200 * MBIT, 4, (2 * MIB,), _SHARING[:1]),
    _slower_link(200 * MBIT, ("ring",), (2 * MIB,)),
)
"""The short plan, two minutes, for every change."""

FULL = (
    *(
        NetworkCase(
            hosts=8,
            bandwidth=rate * MBIT,
            trials=tuple(_by_algorithm((4, 8), (MIB, 2 * MIB, 4 * MIB, 8 * MIB))),
        )
        for rate in (50, 100, 200)
    ),
    NetworkCase(
        hosts=8,
        bandwidth=100 * MBIT,
        trials=(
            *_others((4, 8), (MIB, 4 * MIB)),
            *_counts((3, 5, 6, 7), ("ring", "double_binary_tree", LIBRARY), (MIB, 4 * MIB)),
        ),
    ),
    *(_leaf_spine(100 * MBIT, ratio, (MIB, 4 * MIB)) for ratio in (1, 2, 4)),
    _slower_link(100 * MBIT, ("ring", "double_binary_tree", "tree", LIBRARY), (MIB, 4 * MIB)),
    NetworkCase(
        hosts=16,
        bandwidth=50 * MBIT,
        trials=(CollectiveCase(family="16 ranks", ranks=16, sizes=(2 * MIB, 4 * MIB)),),
    ),
)
"""All claims about real networks; a quarter of an hour."""
