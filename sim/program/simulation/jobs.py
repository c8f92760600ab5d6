"""Jobs on a cluster: proved, then simulated together, with each one's slowdown against running alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ringside.sim.clock import Clock
from ringside.sim.engine.run import uncollected
from ringside.sim.program.operations import Program
from ringside.sim.program.simulation.carriers import World, are_alone
from ringside.sim.program.simulation.libraries import Libraries
from ringside.sim.program.simulation.simulate import Simulation
from ringside.sim.program.simulation.timeline import ProgramTimeline, timeline

FOLDED = "one rank per role is simulated; contention between groups of one role is not modelled"
"""What folding assumes."""

MOST_HOSTS = 1_000_000
"""Ranks of a cluster that jobs are placed on."""


@dataclass(frozen=True, slots=True)
class Job:
    """A program on some of a cluster's ranks: entry r of ``hosts`` carries its rank r.

    ``roles`` names for each rank the one played for it; without ``roles`` all are played.
    """

    program: Program
    hosts: tuple[int, ...]
    roles: tuple[int, ...] | None = None

    @property
    def played(self) -> frozenset[int]:
        """The ranks that are played."""
        return frozenset(range(self.program.ranks) if self.roles is None else self.roles)

    @property
    def is_folded(self) -> bool:
        """Whether some rank is played for others too."""
        return len(self.played) < self.program.ranks

    def __post_init__(self) -> None:
        if len(self.hosts) != self.program.ranks:
            raise ValueError(
                f"{self.program.name} has {self.program.ranks} ranks, but is placed on {len(self.hosts)}; "
                "name one rank of the cluster for each"
            )
        roles = range(self.program.ranks) if self.roles is None else self.roles
        if len(roles) != self.program.ranks or any(not 0 <= r < len(roles) or roles[r] != r for r in roles):
            raise ValueError(f"{self.program.name}: for each rank name the one played for it, or itself")


def simulate(jobs: Sequence[Job], libraries: Libraries, contention: float = 0.0) -> list[ProgramTimeline]:
    """Simulate jobs that start together on one cluster; their programs must have been proved.

    ``contention`` is the share of a rank's compute that a collective uses while it is under way.
    """
    return [
        timeline(simulation, (FOLDED,) if job.is_folded else ())
        for job, simulation in zip(jobs, play(jobs, libraries, contention), strict=True)
    ]


def play(
    jobs: Sequence[Job],
    libraries: Libraries,
    contention: float = 0.0,
    late: Mapping[int, float] | None = None,
) -> list[Simulation]:
    """Run `simulate` with every operation's moments; ``late`` has ranks' delays in seconds."""
    env = Clock()
    world = World(env, libraries)
    alone = are_alone([job.program for job in jobs if not job.is_folded])
    simulations = [
        Simulation(
            env, job.program, world.carrier(job.hosts, played=job.played, alone=alone),
            roles=job.roles, contention=contention, late=late,
        )
        for job in jobs
    ]  # fmt: skip
    with uncollected():
        for simulation in simulations:
            simulation.run()
        env.run()
    for simulation in simulations:
        simulation.check_ended()
    return simulations


def placed(words: Sequence[str], counts: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the cluster ranks that carry each of several jobs, given their numbers of ranks.

    ``packed`` gives each job the next ranks, ``interleaved`` gives ranks to the jobs in turn; otherwise each
    job has a list such as ``0-3,8``, in the order of its ranks.
    """
    if list(words) == ["packed"]:
        firsts = [sum(counts[:number]) for number in range(len(counts))]
        return [tuple(range(first, first + count)) for first, count in zip(firsts, counts, strict=True)]
    if list(words) == ["interleaved"]:
        turns = sorted((turn, job) for job, count in enumerate(counts) for turn in range(count))
        owners = [job for _, job in turns]
        return [tuple(host for host, job in enumerate(owners) if job == own) for own in range(len(counts))]
    if len(words) != len(counts):
        raise ValueError(
            f"{len(words)} placements of {len(counts)} jobs; write packed, interleaved, or --placement 0-3,8 "
            "once for each; even takes one job"
        )
    placements = [_ranks(text) for text in words]
    for hosts, count in zip(placements, counts, strict=True):
        if len(hosts) != count:
            raise ValueError(f"a job of {count} ranks placed on {len(hosts)}; name one for each")
    every = sorted(host for hosts in placements for host in hosts)
    twice = next((one for one, other in pairwise(every) if one == other), None)
    if twice is not None:
        raise ValueError(f"rank {twice} of the cluster is placed on twice; a rank carries one")
    return placements


def _ranks(text: str) -> tuple[int, ...]:
    """Parse the ranks ``0-3,8``."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash) and len(part) < 20):
            raise ValueError(
                f"{text!r} is not a placement; write packed, interleaved, or ranks such as 0-3,8"
            )
        stop = int(last if dash else first)
        if not int(first) <= stop < MOST_HOSTS:
            raise ValueError(f"{part!r} names no ranks; write from the first to the last, such as 0-3")
        numbers += range(int(first), stop + 1)
    return tuple(numbers)
