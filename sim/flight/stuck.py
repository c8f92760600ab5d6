"""Calls that all members have posted and that do not end all the same: orders, and states of GPUs."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from ringside.sim.flight.dump import FlightCall
from ringside.sim.flight.finding import DEVICE, ORDER, Finding, named, placed, verb
from ringside.sim.flight.job import FlightGroup, FlightJob


def stuck(job: FlightJob) -> Finding | None:
    """Return why calls that all have posted do not end: ranks in another order, else by their states."""
    return next(_orders(job), None) or min(_states(job), key=lambda one: one[0], default=(0, None))[1]


def _orders(job: FlightJob) -> Iterator[Finding]:
    """Return pairs of groups that ranks use in different orders, as two communicators must not be."""
    firsts = {rank: _first_pending(job, rank) for rank in job.dumps}
    for one, other in combinations(job.groups.values(), 2):
        sides: tuple[list[int], list[int]] = ([], [])
        for rank, calls in firsts.items():
            if {one.name, other.name} <= calls.keys():
                sides[list(calls).index(one.name) > list(calls).index(other.name)].append(rank)
        if all(sides):
            yield _order(firsts, (one, other), sides)


def _first_pending(job: FlightJob, rank: int) -> dict[str, FlightCall]:
    """Return a rank's first call of each group that has not ended, in order."""
    calls: dict[str, FlightCall] = {}
    for call in job.pending(rank):
        calls.setdefault(job.group_of(rank, call).name, call)
    return calls


def _order(
    firsts: dict[int, dict[str, FlightCall]], groups: tuple[FlightGroup, FlightGroup],
    sides: tuple[list[int], list[int]],
) -> Finding:  # fmt: skip
    own, others = sorted(sides, key=len)
    first, second = groups if own is sides[0] else groups[::-1]
    calls = firsts[own[0]]
    call = calls[first.name]
    sentence = (
        f"{named(own)} {verb(own, 'call')} {placed(call)} of {first.title} before "
        f"{placed(calls[second.name])} of {second.title}, {named(others)} after it: kernels of two "
        "communicators in different orders can keep each other from ending"
    )
    guilty = own if len(own) < len(others) else sorted((*own, *others))
    number = call.p2p_seq_id if call.is_p2p else call.collective_seq_id
    return Finding(ORDER, tuple(guilty), tuple(others), first.name, number, call.name, call.where, sentence)


def _states(job: FlightJob) -> Iterator[tuple[int, Finding]]:
    """Return each group's first call that has not ended: ranks whose GPU is behind the others'."""
    for group in job.groups.values():
        numbers = group.open
        if not numbers:
            continue
        number = numbers[0]
        calls = {rank: calls[number] for rank, calls in sorted(group.calls.items()) if number in calls}
        ended = [rank for rank, call in calls.items() if call.has_ended]
        started = [rank for rank, call in calls.items() if not call.has_ended and call.state == "started"]
        waiting = [rank for rank, call in calls.items() if not call.has_ended]
        behind = [rank for rank in waiting if rank not in started]
        call = calls[waiting[0]]
        what = f"{placed(call)}, call {number} of {group.title}"
        if len(ended) > len(waiting):
            guilty, text = waiting, f"{_subject(waiting)} not ended {what}, which {named(ended)} have"
            text += ": look at its GPU and its links" if len(waiting) == 1 else ""
        elif started and behind:
            guilty, text = behind, f"{_subject(behind)} not started {what}, in which {_wait(started)}"
            text += ": an earlier kernel has not ended there"
        else:
            guilty, text = [], f"{_wait(waiting)} in {what}, which all members have called: no rank is "
            text += "missing; look at GPUs and links"
        yield (
            call.time_created_ns,
            Finding(DEVICE, tuple(guilty), tuple(waiting), group.name, number, call.name, call.where, text),
        )


def _subject(ranks: Sequence[int]) -> str:
    return f"{named(ranks)} {verb(ranks, 'have', 'has')}"


def _wait(ranks: Sequence[int]) -> str:
    return f"{named(ranks)} {verb(ranks, 'wait')}"
