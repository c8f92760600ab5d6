"""Algorithms by name: each turns a collective into a `Schedule`.

The tests prove the algorithms here. Algorithms that a user registers are proved for a few ranks on
registration, and for the requested number of ranks on use.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from ringside.sim.algorithms.doubling import (
    halving_doubling,
    recursive_doubling,
    recursive_halving,
    scatter_all_gather,
)
from ringside.sim.algorithms.exchange import bruck, direct, pairwise
from ringside.sim.algorithms.grids import grid, hierarchical, ring_2d
from ringside.sim.algorithms.own import SUFFIX, builds_of
from ringside.sim.algorithms.rings import neighbor_exchange, ring, scatter_all_gather_ring
from ringside.sim.algorithms.trees import binomial, double_binary_tree, knomial, tree
from ringside.sim.collective import Collective
from ringside.sim.proof import prove
from ringside.sim.schedule import Schedule
from ringside.topologies.names import one_of

Build = Callable[[Collective], Schedule]

ALGORITHMS: dict[str, dict[str, Build]] = {}
"""Known algorithms: algorithm, then collective, then the function that builds the schedule."""

ALSO_CALLED = {"rabenseifner": "halving_doubling", "linear": "direct", "chain": "ring"}
"""Other names, used by MPI libraries."""

MAX_PROVED = 200_000
"""Transfers up to which a registered algorithm's schedule is proved before it is used: one second, or half a
minute where counting does not settle it."""

_PARAMETERS: dict[str, tuple[Callable[[str], dict[str, Any]], str]] = {
    "hierarchical": (grid.read, "2x8"),
    "ring_2d": (grid.read, "4x8"),
    "knomial": (knomial.read, "4"),
}
"""The parser of the parameter of each algorithm that has one, and an example."""

_REGISTERED: set[tuple[str, str]] = set()


def register(algorithm: str, kind: str, build: Build) -> None:
    """Add an algorithm for one collective, if its schedules for 1 to 8 ranks are proved.

    Its schedules for more ranks are proved on use, up to `MAX_PROVED` transfers.
    """
    if ":" in algorithm or algorithm in ALSO_CALLED or algorithm in _PARAMETERS:
        raise ValueError(f"{algorithm!r} is already the name of an algorithm; write another name")
    for ranks in range(1, 9):
        for nbytes in (64, 20_000):  # one chunk, and several where the message is cut for a pipeline
            prove(build(Collective(kind, ranks, nbytes)))
    ALGORITHMS.setdefault(algorithm, {})[kind] = build
    _REGISTERED.add((algorithm, kind))
    _proved.cache_clear()


def schedule(algorithm: str, collective: Collective) -> Schedule:
    """Return the schedule of ``collective`` by ``algorithm``; raise an error if it is wrong.

    A parameter may follow the name: ``ring_2d:4x8``, ``knomial:3``; ``mine.py`` is a user's own. Where two
    algorithms are the same on this number of ranks, as a grid of one row is a ring, the schedule has the
    simpler one's name.
    """
    name, build = _builder(algorithm, collective.kind)
    if (name, collective.kind) in _REGISTERED:
        _proved(name, collective)
    return build(collective)


def does(algorithm: str, kind: str) -> bool:
    """Return whether a known algorithm carries out collectives of the kind."""
    return kind in ALGORITHMS[_split(algorithm)[0]]


def named(text: str, kind: str) -> list[str]:
    """Return the algorithms among ``ring,tree`` for collectives of a kind; after ``^`` all but these.

    If none can, return the first alone, which `schedule` refuses by name.
    """
    names = text.removeprefix("^").split(",")
    able = [name for name in dict.fromkeys(names) if does(name, kind)]
    if not text.startswith("^"):
        return able or names[:1]
    left = {_split(name)[0] for name in names}
    names = [name for name in algorithms_for(kind) if name not in left]
    if not names:
        raise ValueError(f"{text!r} excludes every algorithm for {kind}; write fewer names after ^")
    return names


@lru_cache(maxsize=256)
def _read(path: str) -> str:
    """Register the algorithm of a user's file; return its name, which is the file's."""
    name = Path(path).stem
    for kind, build in builds_of(Path(path)).items():
        if (name, kind) not in _REGISTERED and kind in ALGORITHMS.get(name, {}):
            raise ValueError(f"{path}: {name} {kind} is known already; rename the file")
        register(name, kind, build)
    return name


def _split(algorithm: str) -> tuple[str, str]:
    """Split into the algorithm's own name and its parameter."""
    if algorithm.endswith(SUFFIX):
        return _read(algorithm), ""
    name, _, given = algorithm.partition(":")
    name = ALSO_CALLED.get(name, name)
    if name not in ALGORITHMS:
        raise ValueError(f"unknown algorithm {algorithm!r}; write {one_of(ALGORITHMS, algorithm)}")
    return name, given


def _builder(algorithm: str, kind: str) -> tuple[str, Build]:
    """Return the algorithm's name and its builder, with the parameter bound."""
    name, given = _split(algorithm)
    builds = ALGORITHMS[name]
    if kind not in builds:
        raise ValueError(
            f"{name} does not do {kind}; it does {', '.join(builds)}, and "
            f"{kind} is done by {', '.join(algorithms_for(kind))}"
        )
    if ":" not in algorithm or algorithm.endswith(SUFFIX):
        return name, builds[kind]
    if name not in _PARAMETERS:
        takers = " and ".join(f"{other}:{example}" for other, (_, example) in _PARAMETERS.items())
        raise ValueError(f"{algorithm!r}: {name} takes no parameter, as {takers} do; write {name}")
    read, _ = _PARAMETERS[name]
    return name, partial(builds[kind], **read(given))


def caveat(algorithm: str, collective: Collective) -> str:
    """Return the warning that a schedule is too large to be proved, or nothing."""
    algorithm = _read(algorithm) if algorithm.endswith(SUFFIX) else algorithm
    if (algorithm, collective.kind) not in _REGISTERED or _proved(algorithm, collective):
        return ""
    return (
        f"{algorithm} {collective.kind} on {collective.ranks} ranks is not proved, because it has more than "
        f"{MAX_PROVED} transfers; Schedule.check() proves it"
    )


@lru_cache(maxsize=4096)
def _proved(algorithm: str, collective: Collective) -> bool:
    """Prove a schedule, once, unless it is too large; return whether it is proved."""
    plan = ALGORITHMS[algorithm][collective.kind](collective)
    small = not plan.longer_than(MAX_PROVED)
    if small:
        prove(plan)
    return small


def algorithms_for(kind: str) -> list[str]:
    """Return the algorithms that carry out collectives of one kind."""
    return [name for name, builds in ALGORITHMS.items() if kind in builds]


for _module in (
    ring,
    tree,
    double_binary_tree,
    halving_doubling,
    direct,
    recursive_doubling,
    recursive_halving,
    neighbor_exchange,
    bruck,
    binomial,
    knomial,
    scatter_all_gather,
    scatter_all_gather_ring,
    pairwise,
    ring_2d,
    hierarchical,
):
    ALGORITHMS[_module.__name__.rpartition(".")[2]] = dict(_module.BUILDS)
