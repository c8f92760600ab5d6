"""Receives from any source: the proof against a model of Gloo's sockets that visits every state."""

import random
from typing import Any, NamedTuple

import pytest

from ringside.sim.program.check import check
from ringside.sim.program.jobs import PlacedProgram, simulate
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.record.distributed import record


class Line(NamedTuple):
    """What a rank does: send, isend, recv or irecv one of its messages, or wait for that with this number."""

    what: str
    number: int
    peer: int | None = None
    tag: int = 0


Lines = list[list[Line]]


class Sockets(NamedTuple):
    """One state of a job on Gloo.

    ``at`` has each rank's next line, ``on_the_way`` the announcements of each pair of ranks, ``arrived``
    those that no receive was there for: sender, number and tag. ``waiting`` are each rank's receives without
    a message: source, number and tag. ``over`` are the ranks and numbers of messages that have met.
    """

    at: tuple[int, ...]
    on_the_way: tuple[tuple[tuple[int, int, int], ...], ...]
    arrived: tuple[tuple[tuple[int, int, int], ...], ...]
    waiting: tuple[tuple[tuple[int | None, int, int], ...], ...]
    over: frozenset[tuple[int, int]]


def outcomes(lines: Lines) -> set[str]:
    """Return the possible outcomes of a job: it ends, or some rank hangs."""
    ranks = len(lines)
    first = Sockets((0,) * ranks, ((),) * ranks**2, ((),) * ranks, ((),) * ranks, frozenset())
    seen, left, found = {first}, [first], set()
    while left:
        state = left.pop()
        following = [*_hosts(state, lines), *_arrivals(state, ranks)]
        if not following:
            found.add(
                "ends" if all(_is_over(state, rank, own) for rank, own in enumerate(lines)) else "hangs"
            )
        left += [one for one in dict.fromkeys(following) if one not in seen]
        seen.update(following)
    return found


def _is_over(state: Sockets, rank: int, own: list[Line]) -> bool:
    return state.at[rank] == len(own) and not _is_held(state, rank, own)


def _is_held(state: Sockets, rank: int, own: list[Line]) -> bool:
    """Return whether a rank is at a line that waits for the other side."""
    last = state.at[rank] - 1
    return last >= 0 and own[last].what in ("send", "recv") and (rank, own[last].number) not in state.over


def _replaced(several: tuple[Any, ...], place: int, one: Any) -> tuple[Any, ...]:
    return (*several[:place], one, *several[place + 1 :])


def _hosts(state: Sockets, lines: Lines) -> list[Sockets]:
    """Yield each rank's next line if it can run."""
    found = []
    for rank, own in enumerate(lines):
        at = state.at[rank]
        if at == len(own) or _is_held(state, rank, own):
            continue
        what, number, peer, tag = own[at]
        after = state._replace(at=_replaced(state.at, rank, at + 1))
        if what == "wait":
            if (rank, number) in state.over:
                found.append(after)
        elif "send" in what:
            assert peer is not None
            pair = rank * len(lines) + peer
            announced = (*state.on_the_way[pair], (rank, number, tag))
            found.append(after._replace(on_the_way=_replaced(state.on_the_way, pair, announced)))
        else:
            there = [one for one in state.arrived[rank] if one[2] == tag and peer in (None, one[0])]
            if peer is not None:
                there = there[:1]
            # the list of ranks that announced themselves is in any order
            firsts = {one[0]: one for one in reversed(there)}
            for message in firsts.values():
                rest = tuple(one for one in state.arrived[rank] if one != message)
                both = state.over | {(rank, number), message[:2]}
                found.append(after._replace(arrived=_replaced(state.arrived, rank, rest), over=both))
            if not firsts:
                waiting = (*state.waiting[rank], (peer, number, tag))
                found.append(after._replace(waiting=_replaced(state.waiting, rank, waiting)))
    return found


def _arrivals(state: Sockets, ranks: int) -> list[Sockets]:
    """Let an announcement arrive: a receive that names its sender precedes one from any source."""
    found = []
    for pair, announced in enumerate(state.on_the_way):
        if not announced:
            continue
        message, rank = announced[0], pair % ranks
        after = state._replace(on_the_way=_replaced(state.on_the_way, pair, announced[1:]))
        waiting = [
            one for one in state.waiting[rank] if one[2] == message[2] and one[0] in (None, message[0])
        ]
        waiting.sort(key=lambda one: one[0] is None)
        if waiting:
            rest = tuple(one for one in state.waiting[rank] if one != waiting[0])
            both = state.over | {(rank, waiting[0][1]), message[:2]}
            found.append(after._replace(waiting=_replaced(state.waiting, rank, rest), over=both))
        else:
            found.append(
                after._replace(arrived=_replaced(state.arrived, rank, (*state.arrived[rank], message)))
            )
    return found


def random_lines(draw: random.Random) -> Lines:
    """Draw messages, most of which match, in a random order per rank; all are waited for."""
    ranks = draw.choice((2, 3, 3, 4))
    lines: Lines = [[] for _ in range(ranks)]
    for number in range(draw.randint(2, 5)):
        src, dst = draw.sample(range(ranks), 2)
        tag = draw.choice((0, 0, 0, 1))
        lines[src].append(Line(draw.choice(("send", "isend")), number, dst, tag))
        lines[dst].append(Line(draw.choice(("recv", "irecv")), number, draw.choice((src, None, None)), tag))
    for own in lines:
        if draw.random() < 0.5:
            draw.shuffle(own)
        for line in [line for line in own if line.what[0] == "i"]:
            own.insert(draw.randint(own.index(line) + 1, len(own)), Line("wait", line.number))
    return lines


def main_of(lines: Lines) -> Any:
    """Return the job as a function of torch.distributed."""

    def main(dist: Any) -> None:
        works: dict[int, Any] = {}
        for what, number, peer, tag in lines[dist.get_rank()]:
            if what == "wait":
                works[number].wait()
            else:
                works[number] = getattr(dist, what)(4, *([] if peer is None else [peer]), tag=tag)

    return main


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 500))
def test_the_outcomes_are_those_of_every_order_of_events(first: int) -> None:
    star = {ranks: Libraries("gloo", "star", {}, ranks) for ranks in (2, 3, 4)}
    verdicts = set()
    for seed in range(first, first + 500):
        lines = random_lines(random.Random(seed))
        program = record(main_of(lines), len(lines))
        verdict = check(program)
        assert verdict.outcomes == outcomes(lines), (seed, lines)
        assert (verdict.verdict == "proved") == (verdict.outcomes == {"ends"})
        verdicts.add(verdict.verdict)
        if verdict.verdict == "proved":
            simulate([PlacedProgram(program, tuple(range(len(lines))))], star[len(lines)])
    assert verdicts == {"proved", "hangs", "unsafe"}


def farm(results: int) -> Any:
    """Return a master that receives results of each worker in any order."""

    def main(dist: Any) -> None:
        if dist.get_rank() == 0:
            for _ in range(results * (dist.get_world_size() - 1)):
                dist.recv(4)
                dist.compute(1e-6)
        for _ in range(results if dist.get_rank() else 0):
            dist.send(4, 0)

    return main


def test_who_is_first_among_workers_is_not_tried_where_all_are_taken() -> None:
    verdict = check(record(farm(200), 8))
    assert verdict.verdict == "proved"


def test_too_many_orders_are_unsafe_and_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its receives the master talks to rank 4, which could matter to who is taken next."""

    def main(dist: Any) -> None:
        rank = dist.get_rank()
        for _ in range(30 if rank in (0, 4) else 0):
            if rank == 0:
                dist.recv(4)
            dist.recv(4, 0) if rank else dist.send(4, 4)
        for _ in range(10 if rank in (1, 2, 3) else 0):
            dist.send(4, 0)

    monkeypatch.setattr("ringside.sim.program.check.MOST_PLAYED", 20_000)
    verdict = check(record(main, 5))
    assert verdict.verdict == "unsafe"
    assert verdict.outcomes == {"ends", "hangs", "fails"}
    assert "more orders than can be tried" in verdict.story[0]
