"""Races between transfers, and deadlocks of pairs of ranks."""

import random
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.engine.events import simulate
from ringside.sim.proof import prove
from ringside.sim.schedule import Chunks, Schedule, ScheduleError, even_chunks
from ringside.topologies import leaf_spine, star
from tests.sim.algorithms.execution import Program, right
from tests.sim.algorithms.rewriting import Move, moves, with_moves

ADD, PUT = True, False


def all_reduce(ranks: int, *waves: list[tuple[int, ...]], chunks: int = 1) -> Schedule:
    """Make an all-reduce of (source, destination, adds), or with chunk, span and channel before the last."""
    collective = Collective("all_reduce", ranks, 64)
    blank = Schedule(collective, "made", even_chunks(collective, chunks), lambda: iter(()))
    middle = (0, 1, 0)
    return with_moves(
        blank,
        [
            [Move(src, dst, *(*given, *middle[len(given) :]), bool(adds)) for src, dst, *given, adds in wave]
            for wave in waves
        ],
    )


RACES = {
    "rank 0 adds to 2 what 1 overwrites there with the whole sum": (
        # chunk 1 tells 0 that what 2 had in chunk 0 has left
        all_reduce(
            3,
            [(2, 1, 0, 2, ADD)],
            [(1, 0, 1, ADD), (0, 1, ADD)],
            [(0, 2, 1, PUT), (0, 2, ADD), (0, 1, 1, PUT)],
            [(1, 2, PUT), (1, 0, PUT)],
            chunks=2,
        ),
        "step 2, chunk 0, rank 0 to rank 2 (reduce)",
        "step 3, chunk 0, rank 1 to rank 2 (overwrite)",
        2,
    ),
    "the same without a word from 2 that its own part has left": (
        all_reduce(3, [(2, 1, ADD)], [(0, 1, ADD), (0, 2, ADD)], [(1, 2, PUT), (1, 0, PUT)]),
        "step 0, chunk 0, rank 2 to rank 1 (reduce)",
        "step 1, chunk 0, rank 0 to rank 2 (reduce)",
        2,
    ),
    "rank 0 may have the whole from 1 before it has sent 3 its part of it": (
        all_reduce(
            4, [(3, 0, ADD), (2, 1, ADD)], [(0, 1, ADD), (0, 3, PUT)], [(1, 0, PUT), (1, 2, PUT), (1, 3, PUT)]
        ),
        "step 1, chunk 0, rank 0 to rank 3 (overwrite)",
        "step 2, chunk 0, rank 1 to rank 0 (overwrite)",
        0,
    ),
    "two ranks add to each other what they had before": (
        all_reduce(2, [(0, 1, ADD), (1, 0, ADD)]),
        "step 0, chunk 0, rank 1 to rank 0 (reduce)",
        "step 0, chunk 0, rank 0 to rank 1 (reduce)",
        1,
    ),
    "rank 1 gets a part from 0 and the whole from 2": (
        all_reduce(3, [(1, 0, ADD)], [(0, 1, PUT), (0, 2, ADD)], [(2, 1, PUT), (2, 0, PUT)]),
        "step 1, chunk 0, rank 0 to rank 1 (overwrite)",
        "step 2, chunk 0, rank 2 to rank 1 (overwrite)",
        1,
    ),
    "what 0 sends 1 to be added has arrived before the whole does, but is perhaps not added": (
        # chunk 1 tells 0 that what 1 had in chunk 0 has left, chunk 2 tells 2 that what 0 sends it has
        all_reduce(
            3,
            [(1, 2, 0, 2, ADD)],
            [(2, 0, 1, ADD)],
            [(0, 1, 1, PUT), (0, 2, 1, PUT), (0, 1, ADD), (0, 1, 2, ADD)],
            [(1, 2, 2, ADD)],
            [(2, 0, 2, PUT), (2, 1, 2, PUT), (2, 0, ADD)],
            [(0, 1, PUT), (0, 2, PUT)],
            chunks=3,
        ),
        "step 2, chunk 0, rank 0 to rank 1 (reduce)",
        "step 5, chunk 0, rank 0 to rank 1 (overwrite)",
        1,
    ),
}


@pytest.mark.parametrize("race", RACES)
def test_a_race_is_refused_and_names_both_transfers(race: str) -> None:
    plan, first, second, rank = RACES[race]
    with pytest.raises(ScheduleError) as refusal:
        prove(plan)
    race = f"{first} and {second} race at rank {rank}: nothing orders them"
    assert str(refusal.value) == f"made all_reduce on {plan.ranks} ranks: {race}"


@pytest.mark.parametrize("race", RACES)
def test_a_race_goes_well_sometimes(race: str) -> None:
    program, chance = Program(RACES[race][0]), random.Random(0)
    assert {right(program, chance) for _ in range(200)} == {True, False}


def test_two_ranks_that_send_copies_add_to_each_other_what_they_had_before() -> None:
    exchange = replace(RACES["two ranks add to each other what they had before"][0], copies=True)
    prove(exchange)
    program, chance = Program(exchange), random.Random(0)
    assert all(right(program, chance) for _ in range(200))


@pytest.mark.parametrize(
    "race", [race for race in RACES if race != "two ranks add to each other what they had before"]
)
def test_copies_make_no_other_order_certain(race: str) -> None:
    with pytest.raises(ScheduleError, match="nothing orders them"):
        prove(replace(RACES[race][0], copies=True))


def acknowledged(channel: int) -> Schedule:
    """Rank 0 sends a part to 3, which notifies 1 by another chunk before 1 overwrites it at 0."""
    return all_reduce(
        4,
        [(3, 0, 0, 2, ADD), (2, 1, 0, 2, ADD)],
        [(0, 3, 0, 1, channel, PUT), (0, 3, 1, PUT), (0, 1, ADD)],
        [(3, 1, 1, ADD)],
        [(1, rank, 0, 2, PUT) for rank in (0, 2, 3)],
        chunks=2,
    )


def test_an_order_that_another_chunk_makes_certain_is_no_race() -> None:
    prove(acknowledged(channel=0))
    program, chance = Program(acknowledged(channel=0)), random.Random(0)
    assert all(right(program, chance) for _ in range(500))
    with pytest.raises(ScheduleError, match=r"step 1, chunk 0, rank 0 to rank 3 .* race at rank 0"):
        prove(acknowledged(channel=1))


@given(
    st.sampled_from(["ring", "tree", "double_binary_tree", "halving_doubling", "direct"]),
    st.sampled_from([100, 100_000]),
    st.sampled_from([{}, {"segment": 1000, "window": 3000}]),
    st.lists(st.floats(0.1, 10), min_size=24, max_size=24),
)
@settings(max_examples=50)
def test_the_simulated_world_lets_the_transfers_of_a_connection_arrive_in_order(
    algorithm: str, nbytes: int, transport: dict[str, int], factors: list[float]
) -> None:
    graph = leaf_spine(3, 3)
    graph.graph.update(transport)
    for link, factor in zip(graph.edges.values(), factors, strict=True):
        link["bandwidth"] *= factor
        link["latency"] /= factor
    plan = schedule(algorithm, Collective("all_reduce", 9, nbytes))
    timeline = simulate(plan, graph, 1e-10, traced=True).timeline
    assert timeline is not None
    arrivals: dict[tuple[int, int, int], list[float]] = defaultdict(list)
    for span in timeline.transfers:
        arrivals[span.src, span.dst, span.channel].append(span.delivered)
    assert all(times == sorted(times) for times in arrivals.values())


CHAIN = all_reduce(3, [(0, 1, ADD)], [(1, 2, ADD)], [(2, 1, PUT)], [(1, 0, PUT)])
SCATTER = schedule("direct", Collective("scatter", 4, 64))

Waits = dict[tuple[int, int], tuple[int, int]]


@pytest.mark.parametrize(
    ("plan", "after", "message"),
    [
        (CHAIN, {(0, 1): (0, 1)}, "rank 0 to rank 1 waits for rank 0 to rank 1"),
        (CHAIN, {(0, 1): (1, 0)}, "rank 0 to rank 1 waits for rank 1 to rank 0"),
        (CHAIN, {(1, 2): (1, 0)}, "rank 1 to rank 2 waits for rank 1 to rank 0"),
        (
            SCATTER,
            {(0, 3): (0, 1), (0, 1): (0, 2), (0, 2): (0, 3)},
            "rank 0 to rank 1 waits for rank 0 to rank 2, rank 0 to rank 2 waits for rank 0 to rank 3, "
            "rank 0 to rank 3 waits for rank 0 to rank 1",
        ),
    ],
)
def test_pairs_that_wait_for_each_other_are_named(plan: Schedule, after: Waits, message: str) -> None:
    prove(plan)
    waiting = replace(plan, after=after)
    with pytest.raises(ScheduleError, match=f": deadlock: {message}$"):
        prove(waiting)
    with pytest.raises(ScheduleError, match="transfers wait for each other"):
        simulate(waiting, star(4))


@pytest.mark.parametrize(
    ("plan", "after"),
    [
        (CHAIN, {(1, 0): (0, 1)}),
        (CHAIN, {(2, 1): (1, 2), (1, 0): (2, 1)}),
        (CHAIN, {(0, 2): (0, 1), (0, 1): (0, 2)}),  # 0 sends 2 nothing, which is over at once
        (SCATTER, {(0, 1): (0, 2), (0, 2): (0, 3)}),
    ],
)
def test_pairs_may_wait_for_others(plan: Schedule, after: Waits) -> None:
    waiting = replace(plan, after=after)
    prove(waiting)
    assert simulate(waiting, star(4)).num_transfers == sum(map(len, moves(plan)))


def test_nothing_can_be_added_to_what_was_never_there() -> None:
    plan = schedule("ring", Collective("all_gather", 3, 64))
    adding = with_moves(plan, [[move._replace(reduce=True) for move in wave] for wave in moves(plan)])
    with pytest.raises(ScheduleError, match="chunk 0, rank 0 to rank 1: the receiver holds no contribution"):
        prove(adding)


@pytest.mark.parametrize("block", [[0, 1, 1], [0, 2, 1], [0, 1, 3]])
def test_chunks_that_leave_a_block_out_are_refused(block: list[int]) -> None:
    plan = schedule("ring", Collective("all_gather", 3, 63))
    with pytest.raises(ScheduleError, match="its chunks do not cover blocks 0 to 2 in order"):
        prove(replace(plan, chunks=Chunks(plan.chunks.bounds, np.array(block))))
