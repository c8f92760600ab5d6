"""A recorded step on a cluster: proved, simulated by one rank of each role, and its memory."""

from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate

from ringside.sim.disturbance.disturbance import Draw
from ringside.sim.effort import consider_operations
from ringside.sim.libraries.library import check_time
from ringside.sim.program.check import ONE_KERNEL, PROVED, Verdict, check
from ringside.sim.program.jobs import PlacedProgram, play
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.operations import Call, Group, Program, Recv, Send, Together
from ringside.sim.program.roles import claimed
from ringside.sim.program.simulate import Simulation
from ringside.sim.program.timeline import timeline
from ringside.sim.recorded.job import COMPUTE, HostWait, RecordedJob
from ringside.sim.recorded.memory import use_of
from ringside.sim.recorded.program import Playing, Price, dimension, free
from ringside.sim.training.memory.communicators import communicator_nbytes
from ringside.sim.training.memory.peak import Use
from ringside.sim.training.step import StagedStep, time_of_role


class NeverEndsError(RuntimeError):
    """A recorded job that cannot be proved to end; the message is its verdict and who waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedStep(StagedStep):
    """One recorded step of all ranks; ``stages`` are its roles.

    ``samples`` are those of the step, ``throughput`` samples per second, None if unknown.
    """

    samples: int | None
    throughput: float | None


def posted(job: RecordedJob) -> int:
    """Return the operators, collectives and messages that the busiest host posts in a step."""
    return max(
        sum(not isinstance(one.actions[entry.action], HostWait) for entry in one.entries)
        for one in job.recorded
    )


@dataclass(frozen=True)
class RecordedTraining:
    """A recorded job on the ranks of libraries; rank r of the job is rank r of the cluster.

    Operators take ``factor`` times the seconds that ``price`` says; ``contention`` is the share of compute
    that a collective takes. A host takes ``factor`` x ``launch_s`` seconds for each operation that it posts.
    """

    job: RecordedJob
    libraries: Libraries
    price: Price = free
    factor: float = 1.0
    contention: float = 0.0
    launch_s: float = 0.0
    _playing: Playing = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.libraries.ranks != self.job.ranks:
            raise ValueError(f"a job of {self.job.ranks} ranks on {self.libraries.ranks}")
        playing = Playing(self.job, self.price, self.libraries.rules, self.factor, self.launch_s)
        object.__setattr__(self, "_playing", playing)

    @property
    def launching_s(self) -> float:
        """The time that the busiest host takes to post a step."""
        return posted(self.job) * self.launch_s * self.factor

    @cached_property
    def program(self) -> Program:
        """The step of all ranks."""
        return self._playing.program()

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the step ends, or who waits for whom."""
        return check(self.program, self.roles)

    @property
    def notes(self) -> tuple[str, ...]:
        """What ends a step that is not proved to end: kernels of several communicators at once."""
        story = self.verdict.story
        return (f"{self.verdict.verdict}: {ONE_KERNEL}",) if story and story[-1] == ONE_KERNEL else ()

    @cached_property
    def roles(self) -> tuple[int, ...]:
        """For each rank the first that is alike; raise ValueError where it does other things."""
        return claimed(self.program)

    @cached_property
    def simulation(self) -> Simulation:
        """The step, played by one rank of each role; raise NeverEndsError where it may not end."""
        verdict = self.verdict
        if verdict.verdict != PROVED and not self.notes:
            raise NeverEndsError(f"{self.program.name} {verdict.verdict}: {'; '.join(verdict.story)}")
        consider_operations(sum(len(one.entries) for one in self.job.recorded))
        placed = PlacedProgram(self.program, tuple(range(self.job.ranks)), self.roles)
        (simulation,) = play([placed], self.libraries, self.contention)
        return simulation

    def disturbed(self, draw: Draw) -> Simulation:
        """Simulate one draw of a disturbed step, with every rank."""
        program = draw.program(self.program)
        consider_operations(sum(len(one.entries) * len(one.alike) for one in self.job.recorded))
        placed = PlacedProgram(program, tuple(range(program.ranks)))
        (simulation,) = play([placed], self.libraries, self.contention, draw.disturbance.late)
        return simulation

    def step(self) -> RecordedStep:
        """Return the step, role by role.

        Raise `ringside.sim.libraries.library.LawError` if it breaks a bound.
        """
        simulation, alike = self.simulation, Counter(self.roles)
        stages = [
            time_of_role(simulation, index, alike[rank], dimension, (), self._memory(index))
            for index, rank in enumerate(simulation.played)
        ]
        step_s = simulation.makespan_s
        for stage in stages:
            busiest = max(stage.communication_by_s.values(), default=0.0)
            bounds = {"compute": stage.compute_s, "busiest group": busiest}
            check_time(f"a step of {self.program.name}", step_s, bounds)
        shown = replace(timeline(simulation), memory={one.rank: one.memory.curve for one in stages})
        samples = self.job.samples
        return RecordedStep(
            workload=self.program.name, ranks=self.job.ranks, step_s=step_s, stages=tuple(stages),
            timeline=shown, samples=samples,
            throughput=samples / step_s if samples is not None and step_s else None,
        )  # fmt: skip

    def _memory(self, index: int) -> Use:
        """Return the memory of a played rank; the compute stream's latest begin is an entry's moment."""
        simulation = self.simulation
        shape = self._playing.shape(self.job.representatives[simulation.played[index]])
        on_stream = (
            begin if one.lane == COMPUTE else 0.0
            for begin, one in zip(simulation.begin[index], shape.operations, strict=True)
        )  # fmt: skip
        of_operation = list(accumulate(on_stream, max))
        names = [one.name for one in shape.operations]
        return use_of(
            shape.recorded, [names[place] for place in shape.places], [of_operation[p] for p in shape.places]
        )

    def groups_nbytes(self) -> dict[str, int]:
        """Return the bytes of NCCL's communicators on the rank that has most, by the groups' names."""
        return max(
            (self._communicators(one.rank) for one in self.job.recorded), key=lambda by: sum(by.values())
        )

    def _communicators(self, rank: int) -> dict[str, int]:
        kinds: dict[Group, set[str]] = {}
        for one in self.program.operations(rank):
            action = one.action
            if isinstance(action, Call | Send | Recv | Together) and len(action.group.ranks) > 1:
                kind = action.collective.kind if isinstance(action, Call) else "sendrecv"
                kinds.setdefault(action.group, set()).add(kind)
        nbytes = Counter[str]()
        for group, used in kinds.items():
            nbytes[dimension(group)] += communicator_nbytes(self.libraries.of(group.ranks), sorted(used))
        return nbytes
