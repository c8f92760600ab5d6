"""The textbook: each algorithm exactly as in its paper; the default is the fastest."""

from collections.abc import Sequence
from functools import cached_property, partial
from itertools import combinations

from ringside.sim.algorithms import ALGORITHMS, algorithms_for, caveat, does, named, schedule
from ringside.sim.algorithms.grids.grid import squarest
from ringside.sim.algorithms.rings import parallel_rings
from ringside.sim.collective import Collective
from ringside.sim.effort import estimate, has_more_than
from ringside.sim.libraries import scheduled
from ringside.sim.libraries.library import ROUNDING, Candidate
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.schedule import Schedule
from ringside.topologies import ranks
from ringside.topologies.placement import ranks_text

MAX_TRANSFERS = 100_000
"""The most transfers of a candidate that is not requested by name, some seconds' work."""

RECURRENCE = 500
"""Speed of a recurrence relative to an event loop, in transfers; ``benchmarks`` measures a thousand."""

_FIRST = ("halving_doubling", "ring")
"""Algorithms timed first: their times exclude others without simulation."""

_NEVER_LESS = {"pairwise": "direct"}
"""Algorithms with the messages of another one and additional waits; not candidates by default."""

_ON_MACHINES = ("hierarchical", "ring_2d")
"""Algorithms whose grid has one row per machine if there are several."""


def is_grid_of_machines(placed: Sequence[int]) -> bool:
    """Return whether ranks, ``placed`` per machine, are equally many on each of several machines."""
    return len(placed) > 1 and min(placed) == max(placed) > 1


def on_machines(name: str, placed: Sequence[int]) -> str:
    """Return an algorithm with one machine per row of its grid, if it has a grid, for ``placed`` ranks each.

    A requested grid stays; so does the squarest one of `ringside.sim.algorithms.grids.grid` on a
    single machine.
    """
    if name not in _ON_MACHINES or len(placed) == 1 or max(placed) == 1:
        return name
    if is_grid_of_machines(placed):
        return f"{name}:{len(placed)}x{placed[0]}"
    if name == "hierarchical":
        rows, columns = squarest(sum(placed))
        raise ValueError(
            f"hierarchical needs equally many ranks on every machine, not {ranks_text(placed)}; "
            f"write as many for each, or a grid, for example hierarchical:{rows}x{columns}"
        )
    return name


def build(collective: Collective, algorithm: str) -> Schedule:
    """Return an algorithm's schedule, independent of machines."""
    return schedule(algorithm, collective)


def beside(collective: Collective, algorithm: str, placed: Sequence[int]) -> Schedule:
    """Return a collective's schedule beside others: the algorithm's if it has one, else the ring's."""
    known = algorithm != "auto" and does(algorithm, collective.kind)
    return schedule(on_machines(algorithm, placed) if known else "ring", collective)


class Ideal(Scheduled):
    """The textbook's algorithms; the default is the fastest."""

    name = "ideal"

    def candidates(self, collective: Collective) -> Sequence[Candidate]:
        """Return the algorithms, except those that take too long to simulate, unless requested by name."""
        if self.algorithm != "auto" and not self.algorithm.startswith("^"):
            return [Candidate(name) for name in named(self.algorithm, collective.kind)]
        names = sorted(self._weighed(collective), key=lambda name: name not in _FIRST)
        if self.calibration:
            fits = self.calibration.fit_for
            names = [name for name in names if fits(self.name, name, "auto")] or names
        kept = [name for name in names if self._is_light(collective, name)]
        kept = kept or [min(names, key=lambda name: self._effort(collective, name))]
        left = ", ".join(name for name in names if name not in kept)
        caveat = f"{left} left out, more than {MAX_TRANSFERS:,} transfers to simulate; name one to time it"
        return [Candidate(name, caveat=caveat if left else "") for name in kept]

    def choose(self, collective: Collective) -> Candidate:
        """Return the fastest; one with a slower bound is not simulated."""
        first, *others = self.candidates(collective)
        best, least = first, self.time(collective, first).time_s if others else 0.0
        for candidate in others:
            if self.calibration is None and least < self.bound(collective, candidate) * (1 - ROUNDING):
                continue
            seconds = self.time(collective, candidate).time_s
            if seconds < least:
                best, least = candidate, seconds
        return best

    def schedule(self, collective: Collective, candidate: Candidate) -> Schedule:
        """Return the algorithm's schedule, which is proved; AMD's GPUs have rings on all their links."""
        if candidate.algorithm == "ring" and collective.kind in parallel_rings.KINDS and self._is_meshed:
            return parallel_rings.schedule(collective, len(self.placed))
        return schedule(on_machines(candidate.algorithm, self.placed), collective)

    def word(self, candidate: Candidate, plan: Schedule) -> str:
        """Return the algorithm's name without its grid if the machines define that."""
        return candidate.algorithm if candidate.algorithm in _ON_MACHINES else plan.algorithm

    def _weighed(self, collective: Collective) -> list[str]:
        """Return the candidates, without those that equal another algorithm on this number of ranks."""
        kind = collective.kind
        names = algorithms_for(kind) if self.algorithm == "auto" else named(self.algorithm, kind)
        names = [name for name in names if name not in _NEVER_LESS] or names
        if not is_grid_of_machines(self.placed):
            names = [name for name in names if name != "hierarchical"]
        made = [self.schedule(collective, Candidate(name)).algorithm.partition(":")[0] for name in names]
        return [
            name for name, called in zip(names, made, strict=True) if called == name or called not in names
        ]

    def _is_light(self, collective: Collective, name: str) -> bool:
        """Return whether ``auto`` takes seconds: by closed form, with few transfers, or by recurrence."""
        plan = self.schedule(collective, Candidate(name))
        if scheduled.has_closed_form(plan, self.graph, self.network):
            return True
        if not has_more_than(MAX_TRANSFERS, plan, self.graph):
            return True
        if has_more_than(MAX_TRANSFERS * RECURRENCE, plan, self.graph):
            return False
        return scheduled.is_recurrence(plan, self.graph, self.routes, self.network)

    def _effort(self, collective: Collective, name: str) -> int:
        """Return the transfers to simulate; those of a recurrence are scaled by its speed."""
        plan = self.schedule(collective, Candidate(name))
        transfers = estimate(plan, self.graph).transfers
        by_rule = scheduled.is_recurrence(plan, self.graph, self.routes, self.network)
        return transfers // RECURRENCE if by_rule else transfers

    def _caveat(self, collective: Collective, candidate: Candidate) -> str:
        of_rccl = ""
        if self._has_xgmi:
            of_rccl = (
                "RCCL is not modelled: the links are its machine's, and ring is several rings at once over "
                "all of them, as RCCL's; its choice, protocols, channels and launches are missing"
            )
        return "; ".join(filter(None, (of_rccl, caveat(candidate.algorithm, collective))))

    @cached_property
    def _has_xgmi(self) -> bool:
        """Whether AMD's links join the GPUs, on which RCCL runs."""
        return any(link["kind"] == "xgmi" for *_, link in self.graph.edges(data=True))

    @cached_property
    def _is_meshed(self) -> bool:
        """Whether these links join every two ranks of each machine, and each has equally many."""
        first, each = ranks(self.graph)[: self.placed[0]], set(self.placed)
        return (
            self._has_xgmi
            and each == {len(first)} != {1}
            and all(self.graph.has_edge(*pair) for pair in combinations(first, 2))
        )


algorithms = ALGORITHMS
bind = partial(scheduled.bind, Ideal)
