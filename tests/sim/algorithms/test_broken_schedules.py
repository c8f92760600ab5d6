import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.collective import Collective
from ringside.sim.proof import prove
from ringside.sim.schedule import Schedule, ScheduleError
from tests.sim.algorithms.rewriting import Move, moves, with_moves

PAIRS = [(algorithm, kind) for algorithm, builds in ALGORITHMS.items() for kind in builds]


@st.composite
def broken(draw: st.DrawFn) -> tuple[str, Schedule]:
    algorithm, kind = draw(st.sampled_from(PAIRS))
    ranks = draw(st.integers(3, 9))
    nbytes = draw(st.sampled_from([0, 1, 64, 1001, 20_000]))
    root = draw(st.integers(0, ranks - 1)) if kind in ("broadcast", "reduce") else 0
    plan = schedule(algorithm, Collective(kind, ranks, nbytes, root=root))
    waves = moves(plan)
    where = draw(st.sampled_from([i for i, wave in enumerate(waves) if wave]))
    place = draw(st.integers(0, len(waves[where]) - 1))
    move = waves[where][place]
    how = draw(st.sampled_from(["removed", "doubled", "moved", "misdirected"]))
    if how == "removed":
        del waves[where][place]
    elif how == "doubled":
        waves[draw(st.integers(where, len(waves) - 1))].append(move)
    elif how == "moved":
        wanted = set(range(move.chunk, move.chunk + move.span))
        feeding = [
            earlier
            for earlier in range(where)
            for other in waves[earlier]
            if other.dst == move.src and wanted & set(range(other.chunk, other.chunk + other.span))
        ]
        assume(feeding)
        del waves[where][place]
        waves[draw(st.sampled_from(feeding))].append(move)
    else:
        others = [rank for rank in range(ranks) if rank not in (move.src, move.dst)]
        waves[where][place] = move._replace(dst=draw(st.sampled_from(others)))
    return how, with_moves(plan, waves)


def sums_right(plan: Schedule) -> bool:
    """Return whether the result is correct, by counting contributions instead of a proof."""
    shape = (plan.ranks, len(plan.chunks), plan.ranks)
    held = np.zeros(shape, dtype=np.int64)
    for rank in range(plan.ranks):
        for block, _ in plan.collective.start(rank):
            held[rank, plan.chunks.of_block[block], rank] = 1
    for wave in moves(plan):
        before = held.copy()
        for move in wave:
            part = slice(move.chunk, move.chunk + move.span)
            kept = held[move.dst, part] if move.reduce else 0
            held[move.dst, part] = kept + before[move.src, part]
    return all(
        (held[rank, chunk] == [wanted >> other & 1 for other in range(plan.ranks)]).all()
        for rank in range(plan.ranks)
        for block, wanted in plan.collective.goal(rank)
        for chunk in plan.chunks.of_block[block]
    )


@pytest.mark.slow
@given(broken())
@settings(max_examples=400)
def test_a_broken_schedule_is_refused_and_says_whose_contribution_is_wrong(
    case: tuple[str, Schedule],
) -> None:
    how, plan = case
    # a detour may still be a right schedule: 0 and 1 both to 2 sums what 0 to 1 to 2 does
    assume(how != "misdirected" or not sums_right(plan))
    with pytest.raises(ScheduleError, match=r"(?s)(?=.*\brank \d)(?=.*\bchunks? \d).*\bcontribution\b"):
        prove(plan)


@given(broken())
def test_what_is_proved_sums_right(case: tuple[str, Schedule]) -> None:
    _, plan = case
    proved = True
    try:
        prove(plan)
    except ScheduleError:
        proved = False
    assert sums_right(plan) or not proved


@pytest.mark.parametrize(("algorithm", "kind"), PAIRS)
def test_every_algorithm_sums_right(algorithm: str, kind: str) -> None:
    for ranks in (1, 2, 3, 5, 8):
        assert sums_right(schedule(algorithm, Collective(kind, ranks, 20_000, root=ranks - 1)))


def test_the_message_names_exactly_what_is_wrong() -> None:
    plan = schedule("ring", Collective("all_reduce", 4, 64))
    waves = moves(plan)
    lacking = [*waves[:3], [m for m in waves[3] if m.dst != 2], *waves[4:]]
    doubled = [[*waves[0], waves[0][1]], *waves[1:]]
    for wrong, message in (
        (lacking, "ring all_reduce on 4 ranks: "),
        (doubled, r"chunk 1, rank 1 to rank 2: the contribution of rank 1 .* twice"),
        (waves[:-1], r"at the end rank 0 lacks the contribution of rank \d to chunk \d"),
    ):
        with pytest.raises(ScheduleError, match=message):
            prove(with_moves(plan, wrong))


@pytest.mark.parametrize(
    ("src", "dst", "chunk", "span"),
    [(0, 4, 0, 1), (-1, 1, 0, 1), (0, 0, 0, 1), (0, 1, 4, 1), (0, 1, -1, 1), (0, 1, 2, 3), (0, 1, 2, 0)],
)
def test_a_transfer_out_of_the_world_is_refused(src: int, dst: int, chunk: int, span: int) -> None:
    move = Move(src, dst, chunk, span, 0, True)
    plan = schedule("ring", Collective("all_reduce", 4, 64))
    with pytest.raises(ScheduleError, match=f"rank {move.src} to rank {move.dst}"):
        prove(with_moves(plan, [[move], *moves(plan)]))
