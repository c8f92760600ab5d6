"""The fair network: times of messages that share links, by hand and by law."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import networkx as nx
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.clock import Clock
from ringside.sim.collective import KINDS, Collective
from ringside.sim.engine.bounds import lower_bounds
from ringside.sim.engine.events import Execution, simulate
from ringside.sim.engine.model import CLOSED_FORMS, closed_form
from ringside.sim.libraries.library import check_time
from ringside.sim.libraries.scheduled import evaluate
from ringside.sim.network.fair import FairNetwork
from ringside.sim.network.message import Message
from ringside.sim.parameters import Parameters, preset_of
from ringside.sim.program.groups import SimulatedGroup
from ringside.sim.schedule import Schedule, Step, even_chunks, step
from ringside.topologies import Topology, check, star
from ringside.topologies.fabrics import leaf_spine
from ringside.topologies.graph import add_cable
from tests.sim.network.cases import torus

EXACT = 1e-9
PAIRS = [(algorithm, kind) for algorithm, builds in ALGORITHMS.items() for kind in builds]


def line(rates: list[float], latency: float = 0.0) -> Topology:
    """Return a line of switches, each with a rank; rates are of the cables between switches."""
    graph: Topology = nx.DiGraph(name="line")
    for rank in range(len(rates) + 1):
        graph.add_node(f"gpu{rank}", kind="gpu", rank=rank, tier=0)
        graph.add_node(f"switch{rank}", kind="switch")
        add_cable(graph, f"gpu{rank}", f"switch{rank}", kind="ethernet", bandwidth=1e6, latency=latency)
    for number, rate in enumerate(rates):
        ends = f"switch{number}", f"switch{number + 1}"
        add_cable(graph, *ends, kind="ethernet", bandwidth=rate, latency=latency)
    for _, data in graph.nodes(data=True):
        data.pop("tier", None)
    check(graph)
    return graph


def delivered(graph: Topology, *sent: tuple[float, int, int, int]) -> list[float]:
    """Return the arrivals of messages, given as times, ranks and bytes.

    Messages between the same ranks are of one connection.
    """
    env = Clock()
    network = FairNetwork(env, graph)
    ways = {(src, dst): network.over(network.routes.route(src, dst)) for _, src, dst, _ in sent}
    found = [0.0] * len(sent)

    def arrive(message: Message, time: float) -> None:
        found[message.key] = time

    def send(number: int, time: float, src: int, dst: int, nbytes: int) -> Iterator[simpy.Event]:
        yield env.timeout(time)
        network.send(Message(ways[src, dst], nbytes, number, arrive), time)

    for number, message in enumerate(sent):
        env.process(send(number, *message))
    env.run()
    return found


def test_two_messages_into_one_port_take_twice_as_long() -> None:
    graph = star(3, bandwidth=1000.0, latency=2.0)
    assert delivered(graph, (0, 0, 2, 5000), (0, 1, 2, 5000)) == pytest.approx([12.0, 12.0], rel=EXACT)


def test_who_comes_later_shares_from_then_on() -> None:
    graph = star(3, bandwidth=1.0, latency=0.0)
    assert delivered(graph, (0, 0, 2, 10), (5, 1, 2, 10)) == pytest.approx([15.0, 20.0], rel=EXACT)


def test_the_parking_lot_from_beginning_to_end() -> None:
    """The long one has half of each cable; when the short ones are through it has all."""
    graph = line([10.0, 10.0, 10.0])
    long, *short = delivered(graph, (0, 0, 3, 200), (0, 0, 1, 100), (0, 1, 2, 100), (0, 2, 3, 100))
    assert short == pytest.approx([20.0] * 3, rel=EXACT)
    assert long == pytest.approx(30.0, rel=EXACT)


def test_a_message_that_is_slow_elsewhere_leaves_the_rest_to_others() -> None:
    found = delivered(line([1.0, 10.0]), (0, 0, 2, 10), (0, 1, 2, 90))
    assert found == pytest.approx([10.0, 10.0], rel=EXACT)


def test_nothing_is_there_when_its_latency_is_over_and_takes_no_share() -> None:
    graph = star(3, bandwidth=10.0, latency=1.0)
    found = delivered(graph, (0, 0, 2, 100), (0, 1, 2, 0), (3, 0, 2, 0))
    assert found == pytest.approx([11.0, 1.0, 11.0], rel=EXACT)


def test_bytes_share_only_when_their_latency_is_over() -> None:
    graph = star(3, bandwidth=10.0, latency=4.0)
    assert delivered(graph, (0, 0, 2, 40), (4, 1, 2, 40)) == pytest.approx([8.0, 12.0], rel=EXACT)


def test_a_connection_is_one_flow() -> None:
    """Three messages of one and one of another: half of the port each, not three quarters and one."""
    graph = star(3, bandwidth=10.0, latency=1.0)
    found = delivered(graph, (0, 0, 2, 10), (0, 0, 2, 10), (0, 0, 2, 10), (0, 1, 2, 30))
    assert found == pytest.approx([3.0, 5.0, 7.0, 7.0], rel=EXACT)


def test_both_directions_of_a_cable_are_two_links() -> None:
    graph = star(2, bandwidth=10.0, latency=0.0)
    assert delivered(graph, (0, 0, 1, 10), (0, 1, 0, 10)) == pytest.approx([1.0, 1.0], rel=EXACT)


def test_a_window_bounds_the_rate_of_a_pair() -> None:
    graph = star(3, bandwidth=1000.0, latency=2.0)
    graph.graph |= {"segment": 10, "window": 400}
    assert delivered(graph, (0, 0, 1, 1000)) == pytest.approx([2 + 1000 / 200], rel=EXACT)
    graph.graph["window"] = 10_000
    assert delivered(graph, (0, 0, 1, 1000)) == pytest.approx([3.0], rel=EXACT)


def test_thousands_of_messages_end_together() -> None:
    ranks = 2001
    graph = star(ranks, bandwidth=1e9, latency=1e-6)
    found = delivered(graph, *((0.0, rank, 0, 1_000_000) for rank in range(1, ranks)))
    assert found == pytest.approx([1e-6 + 2000 * 1e-3] * 2000, rel=EXACT)


@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 17])
def test_a_ring_on_a_star_takes_its_closed_form(ranks: int) -> None:
    graph, collective = star(ranks), Collective("all_reduce", ranks, ranks * 4000)
    expected = closed_form("ring", collective, preset_of(graph))
    found = simulate(schedule("ring", collective), graph, network="fair").time_s
    assert found == pytest.approx(expected, rel=EXACT)


@pytest.mark.parametrize(("algorithm", "kind"), CLOSED_FORMS)
@pytest.mark.parametrize("gamma", [0.0, 1e-10])
def test_where_a_closed_form_is_taken_it_is_what_is_simulated(
    algorithm: str, kind: str, gamma: float
) -> None:
    parameters = Parameters(alpha=5e-6, beta=1 / 25e9, gamma=gamma)
    plan = schedule(algorithm, Collective(kind, 8, 8 * 4096))
    simulated, *_ = evaluate(plan, star(8), parameters, "simpy", network="fair")
    if algorithm == "binomial" or (algorithm == "direct" and KINDS[kind].reduces):
        with pytest.raises(ValueError, match="has no closed form; write --engine simpy"):
            evaluate(plan, star(8), parameters, "model", network="fair")
    else:
        closed, *_ = evaluate(plan, star(8), parameters, "model", network="fair")
        assert simulated == pytest.approx(closed, rel=EXACT)


def test_what_comes_in_together_is_added_afterwards() -> None:
    plan = schedule("direct", Collective("reduce_scatter", 5, 5 * 4000))
    found = simulate(plan, star(5, 1e9, 1e-6), 1e-9, network="fair").time_s
    assert found == pytest.approx(1e-6 + 4 * 4e-6 + 4 * 4e-6, rel=EXACT)


@st.composite
def chains(draw: st.DrawFn) -> tuple[Schedule, Topology]:
    """Draw a chunk that passes from rank to rank on a star of uneven ports, without sharing."""
    ranks = draw(st.integers(2, 6))
    order = draw(st.permutations(range(ranks)))
    collective = Collective("broadcast", ranks, draw(st.integers(1, 10**9)), root=order[0])
    graph = star(ranks)
    for _, _, link in graph.edges(data=True):
        link["bandwidth"] = draw(st.floats(1e3, 1e12))
        link["latency"] = draw(st.floats(0, 1e-3))

    def steps() -> Iterator[Step]:
        for src, dst in pairwise(order):
            yield step(src, dst, 0, reduce=False)

    return Schedule(collective, "chain", even_chunks(collective, 1), steps), graph


@given(chains())
def test_messages_that_are_alone_take_the_same_on_either_network(case: tuple[Schedule, Topology]) -> None:
    assert simulate(*case, network="fair").time_s == pytest.approx(simulate(*case).time_s, rel=EXACT)


FABRICS = {
    "star": lambda: star(8),
    "leaf-spine": lambda: leaf_spine(2, 4, oversubscription=4),
    "torus": lambda: torus(2, 4),
}


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize(("algorithm", "kind"), PAIRS)
@settings(max_examples=3)
@given(nbytes=st.integers(0, 2**22), gamma=st.sampled_from([0.0, 1e-10]), credits=st.integers(1, 8))
def test_every_algorithm_keeps_the_laws(
    algorithm: str, kind: str, fabric: str, nbytes: int, gamma: float, credits: int
) -> None:
    graph = FABRICS[fabric]()
    plan = replace(schedule(algorithm, Collective(kind, 8, nbytes)), credits=credits)
    run = simulate(plan, graph, gamma, traced=True, network="fair")
    check_time("", run.time_s, lower_bounds(plan, graph)._asdict())
    assert run.timeline is not None
    assert run.num_transfers == len(run.timeline.transfers) == sum(map(len, plan.steps()))
    assert sum(sent.nbytes for sent in run.timeline.transfers) == sum(
        int(plan.nbytes(moved).sum()) for moved in plan.steps()
    )
    assert run.time_s == simulate(plan, graph, gamma, network="fair").time_s
    for sent in run.timeline.transfers:
        assert sent.queued <= sent.sent <= sent.left <= sent.delivered <= run.time_s


def test_two_collectives_on_one_network_share_it() -> None:
    plan, graph = schedule("ring", Collective("all_reduce", 4, 4 * 10**6)), star(4, 1e9, 0.0)
    env = Clock()
    network = FairNetwork(env, graph)
    both = [Execution(env, network, plan) for _ in range(2)]
    for one in both:
        one.start()
    env.run()
    alone = simulate(plan, graph, network="fair").time_s
    assert [one.time_s for one in both] == pytest.approx([2 * alone] * 2, rel=EXACT)


def test_of_two_that_arrive_at_once_the_smaller_key_comes_first() -> None:
    env = Clock()
    network = FairNetwork(env, star(4, 10.0, 1.0))
    order: list[int] = []
    for key in (3, 1, 2):
        way = network.over(network.routes.route(key, 0))
        network.send(Message(way, 10, key, lambda message, _: order.append(message.key)), 0.0)
    env.run()
    assert order == [1, 2, 3]


def test_a_group_that_trains_plays_on_the_network_that_was_named() -> None:
    group = SimulatedGroup(star(4), 4, network="fair")
    env = Clock()
    env.process(group.runner(env)(Collective("all_reduce", 4, 4 * 10**6)))
    env.run()
    expected = simulate(schedule("ring", Collective("all_reduce", 4, 4 * 10**6)), star(4), network="fair")
    assert env.now == pytest.approx(expected.time_s, rel=1e-6)
    with pytest.raises(ValueError, match="unknown network 'fare'; write fair"):
        SimulatedGroup(star(4), 4, network="fare")
