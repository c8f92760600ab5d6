from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.clock import Clock
from ringside.sim.collective import Collective
from ringside.sim.engine.bounds import lower_bounds
from ringside.sim.engine.events import Execution, simulate
from ringside.sim.libraries import gloo
from ringside.sim.network.fifo import FifoNetwork
from ringside.sim.schedule import Schedule, Step, even_chunks, step
from ringside.topologies import Topology, TopologyError, star
from ringside.topologies.graph import check

BANDWIDTH, LATENCY = 1e9, 1e-4
WAYS = [(algorithm, kind) for algorithm, kinds in ALGORITHMS.items() for kind in kinds]


def network(ranks: int, segment: int, window: int, latency: float = LATENCY) -> Topology:
    graph = star(ranks, BANDWIDTH, latency)
    graph.graph.update(segment=segment, window=window)
    check(graph)
    return graph


def sends(ranks: int, moves: list[tuple[int, int]], nbytes: int) -> Schedule:
    """Make a schedule that sends some blocks of an all-to-all, all at once."""
    collective = Collective("all_to_all", ranks, nbytes * ranks)

    def steps() -> Iterator[Step]:
        for src, dst in moves:
            yield step(src, dst, src * ranks + dst, reduce=False)

    return Schedule(collective, "direct", even_chunks(collective), steps)


@pytest.mark.parametrize(("algorithm", "kind"), WAYS)
def test_segments_as_large_as_any_message_change_nothing(algorithm: str, kind: str) -> None:
    for ranks in (1, 2, 3, 6):
        plan = schedule(algorithm, Collective(kind, ranks, 12 * 4096))
        whole = simulate(plan, star(ranks, BANDWIDTH, LATENCY), traced=True)
        cut = simulate(plan, network(ranks, 2**40, 2**50), traced=True)
        assert cut.time_s == whole.time_s
        assert cut.timeline == whole.timeline


@given(nbytes=st.integers(0, 10**6), segment=st.integers(100, 10**5), room=st.integers(0, 10**6))
@settings(max_examples=60)
def test_a_message_alone_takes_as_long_in_segments_as_whole(nbytes: int, segment: int, room: int) -> None:
    # the window holds all that one latency lets through, so that it never runs dry
    window = 2 * segment + int(BANDWIDTH * LATENCY) + room
    found = simulate(sends(2, [(0, 1)], nbytes), network(2, segment, window)).time_s
    assert found == pytest.approx(LATENCY + nbytes / BANDWIDTH, rel=1e-9)


def test_a_small_window_limits_the_rate_to_a_window_for_each_latency() -> None:
    segment, count = 1000, 50
    found = simulate(sends(2, [(0, 1)], segment * count), network(2, segment, segment)).time_s
    assert found == pytest.approx(count * (LATENCY + segment / BANDWIDTH), rel=1e-9)


def test_messages_that_share_a_port_arrive_together() -> None:
    plan = sends(3, [(0, 2), (1, 2)], 100_000)
    whole = simulate(plan, star(3, BANDWIDTH, LATENCY), traced=True).timeline
    cut = simulate(plan, network(3, 1000, 200_000), traced=True).timeline
    assert whole is not None
    assert cut is not None
    assert [t.delivered for t in whole.transfers] == pytest.approx([LATENCY + 1e-4, LATENCY + 2e-4])
    assert [t.delivered for t in cut.transfers] == pytest.approx([LATENCY + 2e-4] * 2, rel=0.01)


def test_a_message_waits_for_a_window_of_each_rank_before_it_and_no_more() -> None:
    segment, window, long = 1000, 4000, 1_000_000
    late, crowd = 5e-4, star(3, BANDWIDTH, LATENCY)
    crowd.graph.update(segment=segment, window=window)
    env = Clock()
    shared = FifoNetwork(env, crowd)
    bulk = Execution(env, shared, sends(3, [(0, 2)], long))
    short = Execution(env, shared, sends(3, [(1, 2)], segment))
    bulk.start()
    env.timeout(late).callbacks.append(lambda _: short.start())  # type: ignore[union-attr]
    env.run()
    alone = LATENCY + segment / BANDWIDTH
    assert alone <= short.time_s <= alone + (window + segment) / BANDWIDTH
    assert bulk.time_s >= long / BANDWIDTH


def test_of_two_channels_messages_the_one_whose_connection_is_first_goes_into_the_window_first() -> None:
    collective = Collective("broadcast", 3, 3 * 8000)

    def steps() -> Iterator[Step]:
        yield step(1, 2, 0, channel=0, reduce=False)
        yield step(1, 2, 1, channel=1, reduce=False)
        yield step(0, 1, 2, reduce=False)
        # both wait for the same chunk, which wakes them in this order
        yield step(1, 2, 2, channel=1, reduce=False)
        yield step(1, 2, 2, channel=0, reduce=False)

    plan = Schedule(collective, "direct", even_chunks(collective, 3), steps)
    timeline = simulate(plan, network(3, 1000, 1000), traced=True).timeline
    assert timeline is not None
    late = sorted((t.sent, t.channel) for t in timeline.transfers if (t.src, t.chunk) == (1, 2))
    assert [channel for _, channel in late] == [0, 1]


@pytest.mark.parametrize("algorithm", ["ring", "tree", "double_binary_tree", "halving_doubling"])
def test_two_collectives_at_once_take_as_long_as_their_data(algorithm: str) -> None:
    plan = schedule(algorithm, Collective("all_reduce", 4, 4_000_000))
    graph = network(4, 10_000, 200_000, latency=1e-6)
    alone = simulate(plan, graph).time_s
    env = Clock()
    shared = FifoNetwork(env, graph)
    both = [Execution(env, shared, plan) for _ in range(2)]
    for execution in both:
        execution.start()
    env.run()
    last = max(execution.time_s for execution in both)
    assert all(execution.time_s > alone for execution in both)
    assert last <= 2 * alone * 1.03
    assert last >= 2 * lower_bounds(plan, graph).traffic


def test_a_groups_two_collectives_end_within_two_segments_of_each_other() -> None:
    plan = gloo.all_reduce(Collective("all_reduce", 4, 8_000_000))
    env = Clock()
    shared = FifoNetwork(env, network(4, 16384, 131072))
    both = [Execution(env, shared, plan) for _ in range(2)]
    for execution in both:
        execution.start()
    env.run()
    first, second = (execution.time_s for execution in both)
    assert abs(second - first) < (gloo.IN_FLIGHT + 0.5) * 1e6 / BANDWIDTH
    assert max(first, second) == pytest.approx(2 * 1.5 * 8e6 / BANDWIDTH, rel=0.05)


def test_a_trace_shows_each_message_once_on_each_link() -> None:
    plan = schedule("tree", Collective("all_reduce", 4, 400_000))
    timeline = simulate(plan, network(4, 1000, 4000), traced=True).timeline
    assert timeline is not None
    assert len(timeline.links) == 2 * len(timeline.transfers)
    for transfer in timeline.transfers:
        assert transfer.queued <= transfer.sent < transfer.left < transfer.delivered
        assert transfer.left - transfer.sent >= transfer.nbytes / BANDWIDTH * (1 - 1e-9)


def test_a_segment_without_a_window_that_holds_it_is_refused() -> None:
    for content in (
        {"segment": 10},
        {"window": 10},
        {"segment": 0, "window": 1},
        {"segment": 2, "window": 1},
    ):
        graph = star(2)
        graph.graph.update(content)
        with pytest.raises(TopologyError, match="window"):
            check(graph)


def test_credits_still_hold_messages_back() -> None:
    plan = schedule("tree", Collective("all_reduce", 3, 300_000))
    graph = network(3, 1000, 100_000)
    assert simulate(replace(plan, credits=1), graph).time_s >= simulate(plan, graph).time_s


def test_in_gloos_all_to_all_the_last_ranks_first_peers_answer_after_its_messages() -> None:
    def in_parts(plan: Schedule, *transport: int) -> float:
        return simulate(plan, network(plan.ranks, *transport, latency=0.0)).time_s / (2**20 / BANDWIDTH)

    def of_gloo(ranks: int, *window: int) -> Schedule:
        return gloo.all_to_all(Collective("all_to_all", ranks, ranks * 2**20), *window)

    plain = schedule("direct", Collective("all_to_all", 3, 3 * 2**20))
    assert in_parts(plain, 1024, 8192) == pytest.approx(2, rel=0.01)
    assert simulate(of_gloo(1), network(1, 1024, 8192)).time_s == 0
    assert in_parts(of_gloo(2), 1024, 8192) == pytest.approx(2, rel=0.01)
    # half of the last rank's peers, rounded down, send to it when all of its own messages have left
    for ranks, parts in ((3, 3), (4, 5), (6, 8)):
        assert in_parts(of_gloo(ranks), 1024, 8192) == pytest.approx(parts, rel=0.01)
    # larger than a window they take turns, so those to its first peers leave a little earlier
    assert 2.5 < in_parts(of_gloo(3, 8192), 1024, 8192) < 3
    assert 4.5 < in_parts(of_gloo(4, 8192), 1024, 8192) < 5


def test_only_gloos_all_gather_keeps_its_first_announcement_waiting_behind_its_own_data() -> None:
    graph = network(4, 1000, 4000)
    assert gloo.startup_s(Collective("all_reduce", 4, 2**20), graph, 1e-3) == 1e-3
    assert gloo.startup_s(Collective("all_gather", 1, 2**20), graph, 1e-3) == 0
    window = 1e-3 + 4000 / BANDWIDTH
    assert gloo.startup_s(Collective("all_gather", 4, 2**20), graph, 1e-3) == pytest.approx(window)
    half = 1e-3 + 8000 / 8 / BANDWIDTH
    assert gloo.startup_s(Collective("all_gather", 4, 8000), graph, 1e-3) == pytest.approx(half)
    # a ring's messages queue as a whole; two ranks meet each other
    assert gloo.startup_s(Collective("sendrecv", 4, 2**20), graph, 1e-3) == pytest.approx(window)
    assert gloo.startup_s(Collective("sendrecv", 2, 2**20), graph, 1e-3) == 1e-3
