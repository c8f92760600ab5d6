import tracemalloc
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.algorithms import ALGORITHMS, algorithms_for, schedule
from ringside.sim.collective import Collective
from ringside.sim.libraries import gloo
from ringside.sim.proof import prove
from ringside.sim.schedule import even_chunks, step
from tests.sim.algorithms.rewriting import moves
from tests.sim.engine.reference import transfers_of

PAIRS = [(algorithm, kind) for algorithm, builds in ALGORITHMS.items() for kind in builds]
SIZES = [(0, 1), (1, 1), (4, 4), (1000, 4), (4099, 1), (12_345, 1), (70_000, 4), (2, 2)]


@pytest.mark.parametrize(("algorithm", "kind"), PAIRS)
def test_every_algorithm_is_proved_for_1_to_64_ranks(algorithm: str, kind: str) -> None:
    for ranks in range(1, 65):
        nbytes, itemsize = SIZES[ranks % len(SIZES)]
        root = ranks * 7 // 11 if kind in ("broadcast", "reduce", "gather", "scatter") else 0
        prove(schedule(algorithm, Collective(kind, ranks, nbytes, itemsize, root)))


@pytest.mark.parametrize("algorithm", algorithms_for("all_reduce"))
@pytest.mark.parametrize("ranks", [100, 257, 1024])
def test_every_all_reduce_is_proved_for_many_ranks(algorithm: str, ranks: int) -> None:
    prove(schedule(algorithm, Collective("all_reduce", ranks, 30_000, 4)))


collectives = st.builds(
    lambda pair, ranks, elements, itemsize, root: (
        pair[0],
        Collective(pair[1], ranks, elements * itemsize, itemsize, root % ranks),
    ),
    st.sampled_from(PAIRS),
    st.integers(1, 20),
    st.one_of(st.integers(0, 50), st.integers(0, 100_000)),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(0, 19),
)


@given(collectives)
def test_any_size_and_any_root_is_proved_and_no_element_is_torn(case: tuple[str, Collective]) -> None:
    algorithm, collective = case
    plan = schedule(algorithm, collective)
    prove(plan)
    bounds = plan.chunks.bounds
    assert bounds[0] == 0
    assert bounds[-1] == collective.space
    assert (np.diff(bounds) >= 0).all()
    assert (bounds % collective.itemsize == 0).all()
    for moved in plan.steps():
        assert (moved.src != moved.dst).all()


@given(st.integers(1, 12), st.one_of(st.integers(0, 99), st.integers(0, 20 << 20)), st.sampled_from([1, 4]))
def test_gloos_ring_is_proved_and_its_segments_are_as_documented(ranks: int, count: int, item: int) -> None:
    plan = gloo.all_reduce(Collective("all_reduce", ranks, count * item, item))
    prove(plan)
    assert plan.credits == 2
    assert len(plan.chunks) >= 2 * ranks
    assert np.diff(plan.chunks.bounds).max() <= 1 << 20
    assert (plan.chunks.bounds % item == 0).all()


@pytest.mark.parametrize(("algorithm", "kind"), PAIRS)
@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 9])
def test_no_chunk_is_overwritten_while_somebody_may_still_send_it(
    algorithm: str, kind: str, ranks: int
) -> None:
    # steps are no barriers: only a chain of transfers from the reader keeps a later writer away
    plan = schedule(algorithm, Collective(kind, ranks, 40_000))
    transfers = transfers_of(plan)
    number = {id(transfer): index for index, transfer in enumerate(transfers)}
    after = [0] * len(transfers)
    for index in reversed(range(len(transfers))):
        for waiter in transfers[index].waiters:
            after[index] |= after[number[id(waiter)]] | 1 << number[id(waiter)]
    readers, writers = defaultdict(list), defaultdict(list)
    for index, transfer in enumerate(transfers):
        for chunk in transfer.chunks:
            readers[transfer.src, chunk].append(index)
            writers[transfer.dst, chunk].append(index)
    for place, writing in writers.items():
        for writer in writing:
            for reader in readers[place]:
                copied = plan.copies and transfers[writer].reduce
                assert copied or after[reader] >> writer & 1 or after[writer] >> reader & 1
            for other in writing:
                commute = transfers[writer].reduce and transfers[other].reduce
                assert other == writer or commute or (after[other] >> writer | after[writer] >> other) & 1


def test_credits_below_one_would_never_send_and_are_refused() -> None:
    with pytest.raises(ValueError, match="credit"):
        replace(schedule("ring", Collective("all_reduce", 4, 64)), credits=0)


def test_a_step_is_broadcast_from_its_arguments() -> None:
    made = step([0, 1], [1, 0], 3, reduce=True)
    assert len(made) == 2
    assert made.chunk.tolist() == [3, 3]
    assert made.span.tolist() == [1, 1]
    assert made.reduce.dtype == np.bool_


@given(st.integers(0, 2**50), st.integers(1, 300), st.sampled_from([1, 2, 4, 8]))
def test_even_chunks_differ_by_one_element_at_most(elements: int, ranks: int, itemsize: int) -> None:
    chunks = even_chunks(Collective("all_reduce", ranks, elements * itemsize, itemsize), ranks)
    sizes = np.diff(chunks.bounds)
    assert sizes.sum() == elements * itemsize
    assert sizes.max() - sizes.min() <= itemsize


def test_a_ring_of_24576_ranks_begins_at_once_and_in_little_memory() -> None:
    tracemalloc.start()
    plan = schedule("ring", Collective("all_reduce", 24_576, 1 << 30, 4))
    steps = plan.steps()
    first = [next(steps) for _ in range(3)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(s) for s in first] == [24_576] * 3
    assert peak < 20e6


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_walking_all_steps_needs_no_more_memory_for_more_of_them(algorithm: str) -> None:
    def peak(nbytes: int) -> int:
        plan = schedule(algorithm, Collective("broadcast", 16, nbytes))
        tracemalloc.start()
        for _ in plan.steps():
            pass
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert len(schedule(algorithm, Collective("broadcast", 16, 16 << 30)).chunks) >= 2048
    assert peak(16 << 30) < peak(16 << 20) + 10_000


@pytest.mark.parametrize("channels", [1, 2])
def test_connections_are_counted_in_order_of_first_use(channels: int) -> None:
    name = {1: "tree", 2: "double_binary_tree"}[channels]
    plan = schedule(name, Collective("all_reduce", 8, 1 << 20))
    seen: dict[tuple[int, int, int], int] = {}
    for wave in moves(plan):
        for move in wave:
            key = (move.src, move.dst, move.channel)
            seen[key] = seen.get(key, 0) + 1
    assert list(plan.connections().items()) == list(seen.items())
    assert len({channel for _, _, channel in seen}) == channels
