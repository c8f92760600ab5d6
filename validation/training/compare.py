"""A training step's program against real steps: their communication, and their time."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from ringside.real.training.record import MeasuredRankStep, Step, TrainingRecord
from ringside.sim.program import Call, Program, Recv, Send, Together
from ringside.sim.program.jobs import PlacedProgram, simulate
from ringside.sim.program.libraries import Libraries
from ringside.topologies import Topology
from ringside.topologies.file import loads
from ringside.validation.training.host import host_work
from ringside.validation.training.program import program_of


class CommunicationCall(NamedTuple):
    """One collective or message in the order of a rank's calls.

    ``ranks`` are the group's, or for a message its other end.
    """

    kind: str
    nbytes: int
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        word = {"send": "to", "recv": "from"}.get(self.kind, "on")
        return f"{self.kind} of {self.nbytes} bytes {word} {', '.join(map(str, self.ranks))}"


def planned(program: Program) -> tuple[tuple[CommunicationCall, ...], ...]:
    """Return each rank's communication by its program."""
    return tuple(_of_program(program, rank) for rank in range(program.ranks))


def seen(step: Step) -> tuple[tuple[CommunicationCall, ...], ...]:
    """Return each rank's communication in a real step."""
    return tuple(_of_rank(rank) for rank in step)


def _of_program(program: Program, rank: int) -> tuple[CommunicationCall, ...]:
    calls: list[CommunicationCall] = []
    for operation in program.operations(rank):
        action = operation.action
        if isinstance(action, Call):
            calls.append(
                CommunicationCall(action.collective.kind, _own_nbytes(action, rank), action.group.ranks)
            )
        for part in action.parts if isinstance(action, Together) else (action,):
            if isinstance(part, Send | Recv):
                calls.append(
                    CommunicationCall("send" if isinstance(part, Send) else "recv", part.nbytes, (part.peer,))
                )
    return tuple(calls)


def _own_nbytes(call: Call, rank: int) -> int:
    """Return a rank's bytes of a collective: of an uneven all_to_all its own row."""
    splits = call.collective.splits
    if splits is None:
        return call.collective.nbytes
    return sum(splits[call.group.ranks.index(rank)]) * call.collective.itemsize


def _of_rank(rank: MeasuredRankStep) -> tuple[CommunicationCall, ...]:
    return tuple(
        CommunicationCall(one.kind, one.nbytes, one.ranks if one.peer < 0 else (one.peer,))
        for one in rank.said
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTraining:
    """Real steps against their program; ``predicted_s`` is its makespan where a network was measured.

    It is ``hosted`` where the program has the host's own work.
    """

    record: TrainingRecord
    differences: tuple[str, ...]
    """The first difference on each rank, in each step."""
    same_order: bool
    same_bytes: bool
    planned: int
    predicted_s: float | None
    hosted: bool = False

    @property
    def error(self) -> float | None:
        """The predicted step over the median measured one, minus one."""
        return None if self.predicted_s is None else self.predicted_s / self.record.step_s - 1


def compare_training(record: TrainingRecord) -> ComparedTraining:
    """Compare a measured run with its program."""
    program = program_of(record.job)
    plan = planned(program)
    steps = [seen(step) for step in record.steps]
    hosted = bool(record.host_steps) and all(_same_order(plan, seen(step)) for step in record.host_steps)
    if hosted:
        program = program_of(record.job, host_work(program, record.host_steps))
    return ComparedTraining(
        record=record,
        hosted=hosted,
        differences=tuple(line for step in steps for line in _differences(plan, step)),
        same_order=all(_same_order(plan, step) for step in steps),
        same_bytes=all(
            [[one.nbytes for one in rank] for rank in plan] == [[one.nbytes for one in rank] for rank in step]
            for step in steps
        ),
        planned=sum(map(len, plan)),
        predicted_s=None
        if record.wires is None
        else predict(program, loads(record.wires.topology, "the measured network")),
    )


def predict(program: Program, graph: Topology) -> float:
    """Return the seconds of a program over Gloo, on a network measured by ping-pong."""
    where = tuple(range(program.ranks))
    (timeline,) = simulate([PlacedProgram(program, where)], Libraries.on("gloo", graph, program.ranks))
    return timeline.makespan_s


def _same_order(
    plan: Sequence[Sequence[CommunicationCall]], step: Sequence[Sequence[CommunicationCall]]
) -> bool:
    """Return whether a step has the plan's calls, whatever their bytes."""
    ours, theirs = ([[(one.kind, one.ranks) for one in rank] for rank in ranks] for ranks in (plan, step))
    return ours == theirs


def _differences(
    plan: Sequence[Sequence[CommunicationCall]], step: Sequence[Sequence[CommunicationCall]]
) -> list[str]:
    differences = []
    for rank, (ours, theirs) in enumerate(zip(plan, step, strict=True)):
        for number, (one, other) in enumerate(zip_longest(ours, theirs)):
            if one != other:
                differences.append(
                    f"rank {rank}, number {number}: {other or 'nothing'}, where the program has "
                    f"{one or 'nothing'}"
                )
                break
    return differences


def row_of(name: str, one: ComparedTraining) -> dict[str, Any]:
    """Return a comparison in plain values."""
    return {
        "job": name,
        "ranks": one.record.job.mesh.ranks,
        "steps": len(one.record.steps),
        "asked": one.planned,
        "same_order": one.same_order,
        "same_bytes": one.same_bytes,
        "differences": one.differences,
        "measured_s": one.record.step_s,
        "spread": one.record.spread,
        "predicted_s": one.predicted_s,
        "error": one.error,
    }
