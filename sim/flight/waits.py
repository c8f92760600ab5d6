"""The rank that a job waits for: follow pending calls from waiting ranks to missing ones."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ringside.sim.flight.dump import FlightCall
from ringside.sim.flight.finding import DEAD, LATE, ORDER, Finding, named, placed, verb
from ringside.sim.flight.job import FlightGroup, FlightJob


@dataclass(frozen=True, eq=False, slots=True)
class Waiting:
    """A call in which ``callers`` wait for the ``missing`` members of its group."""

    group: FlightGroup
    number: int
    callers: tuple[int, ...]
    missing: tuple[int, ...]
    call: FlightCall

    @property
    def what(self) -> str:
        """The call as sentences name it."""
        if self.call.is_p2p:
            return f"{placed(self.call)}, message {self.number} of that pair in {self.group.title}"
        return f"{placed(self.call)}, call {self.number} of {self.group.title}"

    @property
    def wait(self) -> str:
        """Who waits in it, for whom."""
        return f"{named(self.callers)} {verb(self.callers, 'wait')} in {self.what}, for {named(self.missing)}"


def absence(job: FlightJob) -> Finding | None:
    """Return who has not made the call that others wait in, if there is one."""
    waiting = sorted((*incomplete(job), *_messages(job)), key=lambda one: one.call.time_created_ns)
    blocked: dict[int, Waiting] = {}
    for one in waiting:
        for rank in one.callers:
            blocked.setdefault(rank, one)
    finding = _cause(job, waiting, blocked) if waiting else None
    # with Gloo a call that a process's death ended looks like any other, and its rank idle
    if job.missing and (finding is None or (finding.cause == LATE and job.hides_messages)):
        return _silent(job, finding, sorted(job.dumps))
    return finding


def incomplete(job: FlightJob) -> Iterator[Waiting]:
    """Return the first call of each group that has not ended and that a member has not reached."""
    for group in job.groups.values():
        for number in group.open:
            calls = {rank: calls[number] for rank, calls in group.calls.items() if number in calls}
            pending = sorted(rank for rank, call in calls.items() if not call.has_ended)
            missing = [rank for rank in group.ranks if group.last(rank) < number]
            if not missing and not group.is_whole:
                missing = [rank for rank in range(job.ranks) if rank not in group.ranks]
                missing = [rank for rank in missing if rank not in job.dumps] or missing
            if missing and pending:
                first = min((calls[rank] for rank in pending), key=lambda call: call.time_created_ns)
                yield Waiting(group, number, tuple(pending), tuple(missing), first)
                break


def _messages(job: FlightJob) -> Iterator[Waiting]:
    """Return the first message of each pair of ranks that has not ended and whose other side is missing.

    Where a buffer has lost calls, those that have not ended are matched alone.
    """
    for group in job.groups.values():
        for (sender, receiver, _), sides in group.messages.items():
            has_lost = any(job.dumps[rank].lost for rank in (sender, receiver) if rank in job.dumps)
            sends, receives = ([call for call in side if not (has_lost and call.has_ended)] for side in sides)
            most = min(len(sends), len(receives))
            for own, peer, calls in ((sender, receiver, sends), (receiver, sender, receives)):
                for number, call in enumerate(calls[most:], most + 1):
                    if not call.has_ended:
                        yield Waiting(group, number, (own,), (peer,), call)
                        break


def _cause(job: FlightJob, waiting: Sequence[Waiting], blocked: dict[int, Waiting]) -> Finding:
    """Return a circle of ranks that wait for one another, else the first rank that is not waiting."""
    circle = _circle(waiting, blocked)
    if circle:
        return _cycle(circle)
    one = waiting[0]
    while True:
        dead = [rank for rank in one.missing if rank not in job.dumps]
        idle = [rank for rank in one.missing if rank in job.dumps and rank not in blocked]
        if dead:
            finding = _dead(_first_of(waiting, dead), dead, idle)
            return _silent(job, finding, idle) or finding if idle and job.hides_messages else finding
        if idle:
            return _late(job, _first_of(waiting, idle), idle)
        one = blocked[one.missing[0]]


def _circle(waiting: Sequence[Waiting], blocked: dict[int, Waiting]) -> list[Waiting]:
    """Return pending calls in a circle, where the missing ranks of each wait in the next; empty for none."""
    after = {one: {blocked[rank] for rank in one.missing if rank in blocked} for one in waiting}
    while ends := [one for one, others in after.items() if not others & after.keys()]:
        for one in ends:
            del after[one]
    path: list[Waiting] = []
    if not after:
        return []
    step = next(iter(after))
    while step not in path:
        path.append(step)
        step = next(other for other in after if other in after[path[-1]])
    return path[path.index(step) :]


def _first_of(waiting: Sequence[Waiting], ranks: Sequence[int]) -> Waiting:
    """Return the first call that the ranks have not made: callers of others come to it later, if at all."""
    lacking = [one for one in waiting if set(ranks) <= set(one.missing)]
    first = [one for one in lacking if not any(set(before.callers) & set(one.missing) for before in lacking)]
    return (first or lacking)[0]


def _found(cause: str, ranks: Sequence[int], one: Waiting, sentence: str) -> Finding:
    own, number = one.call, one.number
    return Finding(
        cause, tuple(ranks), one.callers, one.group.name, number, own.name, own.where, sentence, own.is_p2p
    )


def _dead(one: Waiting, dead: Sequence[int], idle: Sequence[int]) -> Finding:
    text = f"{_lost(dead)}, and {named(one.callers)} {verb(one.callers, 'wait')} in {one.what}"
    if idle:
        text += f"; {named(idle)} {verb(idle, 'have', 'has')} not called it"
    return _found(DEAD, dead, one, text)


def _lost(dead: Sequence[int]) -> str:
    died = verb(dead, "the processes have", "its process has")
    return f"{named(dead)} left no dump ({died} died, or files are missing)"


def _silent(job: FlightJob, late: Finding | None, idle: Sequence[int]) -> Finding | None:
    """Blame ranks without a dump, at the last call that others have made in a group of theirs."""
    others = "no other rank waits" if late is None else "others are idle"
    lasts = []
    for rank in idle:
        last = job.last(rank)
        group = job.group_of(rank, last) if last else None
        dead = [one for one in job.missing if group and (one in group.ranks or not group.is_whole)]
        if last and group and dead:
            lasts.append((last.time_created_ns, last, group, dead))
    if not lasts:
        return late
    _, call, group, dead = min(lasts, key=lambda one: one[0])
    number = call.p2p_seq_id if call.is_p2p else call.collective_seq_id
    callers = tuple(rank for rank, calls in sorted(group.calls.items()) if number in calls)
    one = Waiting(group, number, callers, tuple(dead), call)
    text = (
        f"{_lost(dead)}, and {others}: the last call is {one.what}, which {named(callers)} "
        f"{verb(callers, 'have', 'has')} made"
    )
    return _found(DEAD, dead, one, text)


def _late(job: FlightJob, one: Waiting, idle: Sequence[int]) -> Finding:
    has_not = f"{named(idle)} {verb(idle, 'have', 'has')} not"
    callers = f"{named(one.callers)} {verb(one.callers, 'wait')}"
    if one.call.is_p2p:
        text = f"{has_not} posted the other side of {one.what}, for which {callers}"
    else:
        text = f"{has_not} called {one.what}, in which {callers}"
    return _found(LATE, idle, one, f"{text}: {_before(job, one, idle[0])}")


def _before(job: FlightJob, one: Waiting, rank: int) -> str:
    """Return a rank's last call, and how long before the wait it was."""
    last = job.last(rank)
    if last is None:
        return f"rank {rank} has called nothing"
    own = job.group_of(rank, last)
    gap_s = (one.call.time_created_ns - last.time_created_ns) / 1e9
    text = f"rank {rank}'s last call is {placed(last)} of {own.title}"
    return f"{text}, {gap_s:,.1f} s before" if gap_s >= 0.05 else text


def _cycle(cycle: Sequence[Waiting]) -> Finding:
    """Blame the fewest that wait in one call while others wait for them in the one before: the rest agree."""
    awaited = [
        tuple(rank for rank in one.callers if rank in before.missing)
        for before, one in zip((cycle[-1], *cycle), cycle, strict=False)
    ]
    fewest = min(map(len, awaited))
    guilty = sorted({rank for ranks in awaited if len(ranks) == fewest for rank in ranks})
    first = next(one for one, ranks in zip(cycle, awaited, strict=True) if len(ranks) == fewest)
    others = [one for one in cycle if one is not first]
    return _found(ORDER, guilty, first, "; ".join(one.wait for one in (first, *others)))
