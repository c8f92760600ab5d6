"""The calls of dumps as a program: those that have not ended everywhere, and those yet to be made."""

from collections.abc import Iterator

from ringside.sim.collective import Collective
from ringside.sim.flight.dump import FlightCall
from ringside.sim.flight.job import FlightGroup, FlightJob
from ringside.sim.flight.kinds import kind_of, nbytes_of
from ringside.sim.libraries.rules import rules_of
from ringside.sim.program.operations import HOST, Call, Group, Operation, Program, Wait

Groups = dict[str, tuple[FlightGroup, Group]]


def continued(job: FlightJob) -> Program:
    """Return the job in which each rank, after the call that it waits in, makes the calls that it lacks.

    If it ends, the order of the calls is right, and a rank was only late; else the order itself is wrong.
    A rank waits in its last call if that has not ended. Messages are left out.
    """
    rules = rules_of(job.library)
    groups = {
        one.name: (one, Group(one.name, one.ranks, rules.name, rules.workers)) for one in job.groups.values()
    }
    return Program("dumps", job.ranks, lambda rank: list(_operations(job, groups, rank)))


def _operations(job: FlightJob, groups: Groups, rank: int) -> Iterator[Operation]:
    made = [
        (own.name, call)
        for call in job.calls.get(rank, ())
        for own in [job.group_of(rank, call)]
        if kind_of(call) and own.open and call.collective_seq_id >= own.open[0]
    ]
    lacking = sorted(_lacking(groups, rank), key=lambda one: one[1].time_created_ns)
    for place, (name, call) in enumerate((*made, *lacking)):
        waits = place == len(made) - 1 and not call.has_ended
        kind, group = kind_of(call), groups[name][1]
        action = Call(group, call.name, Collective(kind or "", len(group.ranks), nbytes_of(call)))
        yield Operation(action, holds=waits, name=call.name, place=_place(call))
    everything = tuple(range(len(made) + len(lacking)))
    yield Operation(Wait(), lane=HOST, after=everything, holds=True, name="wait")


def _lacking(groups: Groups, rank: int) -> Iterator[tuple[str, FlightCall]]:
    """Return the calls that other members have made and this rank has not, as the first of them made it."""
    for group, _ in groups.values():
        if rank not in group.ranks:
            continue
        for number in group.open:
            if number > group.last(rank):
                calls = (own[number] for own in group.calls.values() if number in own)
                yield from ((group.name, call) for call in list(calls)[:1] if kind_of(call))


def _place(call: FlightCall) -> tuple[str, int] | None:
    file, _, line = call.where.rpartition(":")
    return (file, int(line)) if file else None
