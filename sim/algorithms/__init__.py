"""Algorithms by name: each turns a collective into a `Schedule`.

Those here are proved by the tests. Those that a user registers are proved for a few ranks as they are
registered, and for as many as are asked for as they are used.
"""

from collections.abc import Callable
from functools import lru_cache

from sim.algorithms import direct, double_binary_tree, halving_doubling, ring, tree
from sim.collective import Collective
from sim.proof import prove
from sim.schedule import Schedule

Build = Callable[[Collective], Schedule]

ALGORITHMS: dict[str, dict[str, Build]] = {}
"""What there is: algorithm, then collective, then the function that builds the schedule."""

MAX_PROVED = 200_000
"""Transfers up to which a registered algorithm's schedule is proved before it is used: a second's work, or,
where counting does not settle it, half a minute's."""

_REGISTERED: set[tuple[str, str]] = set()


def register(algorithm: str, kind: str, build: Build) -> None:
    """Add an algorithm for one collective, if its schedules for 1 to 8 ranks check.

    Its schedules for more ranks are checked as they are used, up to `MAX_PROVED` transfers.
    """
    for ranks in range(1, 9):
        for nbytes in (64, 20_000):  # one chunk and some, where the message is cut for a pipeline
            prove(build(Collective(kind, ranks, nbytes)))
    ALGORITHMS.setdefault(algorithm, {})[kind] = build
    _REGISTERED.add((algorithm, kind))
    _proved.cache_clear()


def schedule(algorithm: str, collective: Collective) -> Schedule:
    """The schedule by which ``algorithm`` carries out ``collective``; raise where it does not check."""
    if algorithm not in ALGORITHMS:
        raise ValueError(f"{algorithm!r} is no known algorithm; write one of {', '.join(ALGORITHMS)}")
    builds = ALGORITHMS[algorithm]
    if collective.kind not in builds:
        raise ValueError(
            f"{algorithm} does not do {collective.kind}; it does {', '.join(builds)}, and "
            f"{collective.kind} is done by {', '.join(algorithms_for(collective.kind))}"
        )
    if (algorithm, collective.kind) in _REGISTERED:
        _proved(algorithm, collective)
    return builds[collective.kind](collective)


def caveat(algorithm: str, collective: Collective) -> str:
    """What to know before a schedule is believed: that it is too large to be proved; else nothing."""
    if (algorithm, collective.kind) not in _REGISTERED or _proved(algorithm, collective):
        return ""
    return (
        f"{algorithm} {collective.kind} on {collective.ranks} ranks is not proved, because it has more than "
        f"{MAX_PROVED} transfers; Schedule.check() proves it"
    )


@lru_cache(maxsize=4096)
def _proved(algorithm: str, collective: Collective) -> bool:
    """Prove a schedule, once, unless it is too large; whether it was proved."""
    plan = ALGORITHMS[algorithm][collective.kind](collective)
    small = not plan.longer_than(MAX_PROVED)
    if small:
        prove(plan)
    return small


def algorithms_for(kind: str) -> list[str]:
    """The algorithms that carry out collectives of one kind."""
    return [name for name, builds in ALGORITHMS.items() if kind in builds]


for _module in (ring, tree, double_binary_tree, halving_doubling, direct):
    ALGORITHMS[_module.__name__.rpartition(".")[2]] = dict(_module.BUILDS)
