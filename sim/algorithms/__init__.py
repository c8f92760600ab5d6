"""Algorithms by name: each turns a collective into a proved `Schedule`."""

from collections.abc import Callable

from sim.algorithms import direct, double_binary_tree, halving_doubling, ring, tree
from sim.collective import Collective
from sim.schedule import Schedule

Build = Callable[[Collective], Schedule]

ALGORITHMS: dict[str, dict[str, Build]] = {}
"""What is registered: algorithm, then collective, then the function that builds the schedule."""


def register(algorithm: str, kind: str, build: Build) -> None:
    """Add an algorithm for one collective, if its schedules for 1 to 4 ranks check."""
    for ranks in range(1, 5):
        build(Collective(kind, ranks, nbytes=64)).check()
    ALGORITHMS.setdefault(algorithm, {})[kind] = build


def schedule(algorithm: str, collective: Collective) -> Schedule:
    """The schedule by which ``algorithm`` carries out ``collective``."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"{algorithm!r} is no known algorithm; write one of {', '.join(ALGORITHMS)}")
    builds = ALGORITHMS[algorithm]
    if collective.kind not in builds:
        raise ValueError(
            f"{algorithm} does not do {collective.kind}; it does {', '.join(builds)}, and "
            f"{collective.kind} is done by {', '.join(algorithms_for(collective.kind))}"
        )
    return builds[collective.kind](collective)


def algorithms_for(kind: str) -> list[str]:
    """The algorithms that carry out collectives of one kind."""
    return [name for name, builds in ALGORITHMS.items() if kind in builds]


for _module in (ring, tree, double_binary_tree, halving_doubling, direct):
    for _kind, _build in _module.BUILDS.items():
        register(_module.__name__.rpartition(".")[2], _kind, _build)
