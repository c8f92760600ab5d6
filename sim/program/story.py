"""Sentences on a program that does not end: which ranks wait, where, and for which others."""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from ringside.sim.program.operations import ANY, Call, Group, Join, Lost, Operation, Recv, Send, Together
from ringside.sim.program.play import Play


class Stop(NamedTuple):
    """An operation that a library refuses, and its message."""

    rank: int
    place: int
    message: str


class Meetings(Protocol):
    """The ranks that have arrived at each call of each group."""

    meetings: dict[tuple[Group, int], list[tuple[int, int]]]


def failure(play: Play, stop: Stop) -> Iterator[str]:
    """Return a sentence about an error."""
    operation = play.ranks[stop.rank].operations[stop.place]
    yield f"rank {stop.rank} fails at {operation.where}: {stop.message}"


def story(play: Play, check: Meetings) -> Iterator[str]:
    """Return a sentence per rank of the cycle, or chain, in which ranks wait."""
    rank: int | None = next(rank for rank in range(len(play.ranks)) if _stuck(play, rank) is not None)
    seen: list[int] = []
    sentences: list[str] = []
    while rank is not None and rank not in seen:
        seen.append(rank)
        place = _stuck(play, rank)
        if place is None:
            sentences.append(f"rank {rank} has ended")
            rank = None
            break
        sentence, others = _waits(play, check, rank, place)
        sentences.append(sentence)
        waiting = [other for other in others if _stuck(play, other) is not None]
        rank = next(iter(waiting or others), None)
    if rank is not None:
        cycle = seen[seen.index(rank) :]
        yield from sentences[seen.index(rank) :]
        if len(cycle) > 1:
            yield "they wait for one another: " + " for ".join(f"rank {one}" for one in (*cycle, rank))
    else:
        yield from sentences
    left = sum(_stuck(play, rank) is not None for rank in range(len(play.ranks)))
    yield f"{left} of {len(play.ranks)} ranks never end"


def _stuck(play: Play, rank: int) -> int | None:
    """Return the operation in which a rank hangs: the one that holds its host, else its first unended."""
    state = play.ranks[rank]
    if state.held_by is not None:
        return state.held_by
    return next((place for place in range(state.posted) if not state.ended[place]), None)


def _waits(play: Play, check: Meetings, rank: int, place: int) -> tuple[str, list[int]]:
    """Return a sentence about the operation in which a rank hangs, and the ranks that it waits for."""
    operations = play.ranks[rank].operations
    deepest = play.behind(rank, place)
    text = f"rank {rank} waits in {_named(play, rank, place)}"
    if deepest != place:
        text += f" for {_named(play, rank, deepest)}"
    others, why = _partners(play, check, rank, operations[deepest], deepest)
    return text + why, others


def _named(play: Play, rank: int, place: int) -> str:
    operation = play.ranks[rank].operations[place]
    match operation.action:
        case Call(group) | Together(group, is_call=True):
            what = f"{operation.name} {play.ranks[rank].number[place]} of group {group.name}"
        case Send(_, peer, nbytes, tag):
            what = f"{operation.name} of {nbytes} bytes to {peer}" + (f" with tag {tag}" if tag else "")
        case Recv(_, peer, _, tag):
            what = f"{operation.name} from {'any source' if peer == ANY else peer}" + (
                f" with tag {tag}" if tag else ""
            )
        case Join(group):
            what = f"{operation.name} {group.name}"
        case _:
            what = operation.name
    return f"{what} ({operation.where})" if operation.where else what


def _partners(
    play: Play, check: Meetings, rank: int, operation: Operation, place: int
) -> tuple[list[int], str]:
    """Return the ranks that an arrived operation waits for, and a phrase about them."""
    match operation.action:
        case Call(group) | Together(group, is_call=True) | Join(group):
            number = play.ranks[rank].number.get(place, -1)
            here = dict(check.meetings[group, number])
            missing = [member for member in group.ranks if member not in here]
            if missing:
                return missing, f", which {_ranks(missing)} not reached"
            other = next(
                m for m in group.ranks if play.ranks[m].operations[here[m]].action != operation.action
            )
            return [other], f", where rank {other} calls {_called(play.ranks[other].operations[here[other]])}"
        case Send(_, peer) | Recv(_, peer) if peer != ANY:
            return [peer], ""
        case Recv(group):
            return [member for member in group.ranks if member != rank], ""
        case Together(_, parts):
            peers = [part.peer for part in parts]
            return peers, f", whose messages go to and come from {', '.join(map(str, sorted(set(peers))))}"
        case Lost(_, message):
            return [], f": {message}"
    return [], ""


def _called(operation: Operation) -> str:
    action = operation.action
    assert isinstance(action, Call | Together)
    if isinstance(action, Call):
        nbytes = action.collective.nbytes
    else:
        nbytes = sum(part.nbytes for part in action.parts if isinstance(part, Send))
    where = f" ({operation.where})" if operation.where else ""
    return f"{operation.name} of {nbytes} bytes{where}"


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]} has"
    shown = ", ".join(map(str, ranks[:4])) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")
    return f"ranks {shown} have"
