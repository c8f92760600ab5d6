"""Links of different speeds: no message is faster than its bytes, or waits for bytes unnecessarily."""

import random
from collections.abc import Iterable, Iterator
from functools import partial
from math import inf

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.collective import Collective
from ringside.sim.engine import fast
from ringside.sim.engine.events import simulate
from ringside.sim.engine.wiring import SimulatedCollective
from ringside.sim.network.message import PIECES
from ringside.sim.schedule import Schedule, Step, even_chunks, step
from ringside.topologies import Routes, Topology, check, star
from ringside.topologies.fabrics import leaf_spine
from ringside.topologies.graph import Hop, add_cable

KIB, MIB = 1 << 10, 1 << 20
PAIRS = [(algorithm, kind) for algorithm, builds in ALGORITHMS.items() for kind in builds]


def noisy(graph: Topology, seed: int) -> Topology:
    """Return the same network except for the ninth digit of every figure."""
    draw = random.Random(seed)
    changed = graph.copy()
    for _, _, link in changed.edges(data=True):
        link["bandwidth"] *= 1 + 1e-9 * draw.uniform(-1, 1)
        link["latency"] *= 1 + 1e-9 * draw.uniform(-1, 1)
    return changed


def sends(ranks: int, nbytes: dict[tuple[int, int], int]) -> Schedule:
    """Make a schedule of messages that all leave at once, in this order."""
    unit = 1000
    collective = Collective("all_to_all", ranks, unit * ranks)
    largest = max(size // unit for size in nbytes.values())
    chunks = even_chunks(Collective("all_to_all", ranks, unit * ranks * largest), largest)

    def steps() -> Iterator[Step]:
        for (src, dst), size in nbytes.items():
            yield step(src, dst, (src * ranks + dst) * largest, span=size // unit, reduce=False)

    return Schedule(collective, "by hand", chunks, steps)


def finishes(run: SimulatedCollective) -> dict[tuple[int, int], float]:
    assert run.timeline is not None
    return {(sent.src, sent.dst): sent.delivered for sent in run.timeline.transfers}


def uneven_star(rates: list[float]) -> Topology:
    graph: Topology = nx.DiGraph(name="uneven")
    graph.add_node("switch", kind="switch", tier=1)
    for rank, rate in enumerate(rates):
        graph.add_node(f"gpu{rank}", kind="gpu", rank=rank, tier=0)
        add_cable(graph, f"gpu{rank}", "switch", kind="ethernet", bandwidth=rate, latency=0.0)
    check(graph)
    return graph


def test_a_slow_senders_message_takes_only_its_own_rate_of_a_fast_port() -> None:
    # rank 0 feeds the port at half of its rate; what is left carries rank 1's message meanwhile
    graph = uneven_star([5e8, 1e9, 1e9])
    done = finishes(simulate(sends(3, {(0, 2): 10_000, (1, 2): 10_000}), graph, traced=True))
    assert done[0, 2] == pytest.approx(20e-6)
    assert done[1, 2] == pytest.approx(20e-6)


def test_a_port_does_not_count_bytes_as_carried_that_have_not_come() -> None:
    # three messages of 10 kB meet at a port of 1 GB/s, and the first comes at a third of that
    graph = uneven_star([1e9 / 3, 1e9, 1e9, 1e9])
    done = finishes(simulate(sends(4, {(0, 3): 10_000, (1, 3): 10_000, (2, 3): 10_000}), graph, traced=True))
    assert max(done.values()) == pytest.approx(30e-6)
    assert done[0, 3] == pytest.approx(30e-6)


def test_several_messages_cross_a_fast_uplink_at_once() -> None:
    graph = leaf_spine(2, 4, bandwidth=1e9, latency=0.0)
    done = finishes(simulate(sends(8, {(r, 4 + r): 1_000_000 for r in range(4)}), graph, traced=True))
    assert list(done.values()) == pytest.approx([1e-3] * 4)


def test_messages_on_a_crowded_uplink_arrive_together() -> None:
    graph = leaf_spine(2, 4, bandwidth=1e9, latency=0.0, oversubscription=4)
    done = finishes(simulate(sends(8, {(r, 4 + r): 1_000_000 for r in range(4)}), graph, traced=True))
    assert max(done.values()) == pytest.approx(4e-3)
    assert min(done.values()) >= 4e-3 * (1 - 1 / PIECES)


def test_a_thousand_links_without_latency_are_crossed_at_once() -> None:
    graph: Topology = nx.DiGraph(name="line")
    nodes = ["gpu0", *(f"switch{number}" for number in range(1100)), "gpu1"]
    for place, node in enumerate(nodes):
        rank = {"kind": "gpu", "rank": int(node[3:])} if node.startswith("gpu") else {"kind": "switch"}
        graph.add_node(node, **rank)
        if place:
            add_cable(graph, nodes[place - 1], node, kind="ethernet", bandwidth=1e9, latency=0.0)
    check(graph)
    found = simulate(schedule("ring", Collective("all_reduce", 2, 2000)), graph).time_s
    assert found == pytest.approx(2 * 1000 / 1e9)


@pytest.mark.parametrize(("algorithm", "kind"), PAIRS)
@pytest.mark.parametrize(("leaves", "hosts"), [(2, 2), (3, 4), (4, 4), (2, 12)])
def test_a_leaf_spine_that_nothing_blocks_takes_as_long_as_a_star(
    algorithm: str, kind: str, leaves: int, hosts: int
) -> None:
    ranks = leaves * hosts
    # at a helper's port two whole messages meet, of which the nearer sender's is first where there are tiers
    folded = algorithm in ("recursive_doubling", "halving_doubling", "hierarchical") and ranks & (ranks - 1)
    for nbytes in (64 * KIB, 16 * MIB):
        plan = schedule(algorithm, Collective(kind, ranks, nbytes))
        flat = simulate(plan, star(ranks, latency=2e-9)).time_s
        tiers = simulate(plan, leaf_spine(leaves, hosts, latency=1e-9)).time_s
        assert tiers == pytest.approx(flat, rel=0.2 if folded else 0.01)


@pytest.mark.parametrize(("algorithm", "kind"), PAIRS)
@pytest.mark.parametrize("oversubscription", [1, 2, 4])
def test_the_ninth_digit_of_a_rate_moves_no_answer(algorithm: str, kind: str, oversubscription: int) -> None:
    for leaves, hosts in ((2, 4), (3, 3)):
        graph = leaf_spine(leaves, hosts, oversubscription=oversubscription)
        for nbytes in (64 * KIB, 4 * MIB):
            plan = schedule(algorithm, Collective(kind, leaves * hosts, nbytes))
            exact = simulate(plan, graph).time_s
            for seed in range(2):
                assert simulate(plan, noisy(graph, seed)).time_s == pytest.approx(exact, rel=0.01)


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    """Draw a tree of a few switches with ranks, with a rate for each direction of a cable."""
    rates = st.one_of(st.sampled_from([1e9, 2e9, 4e9]), st.floats(1e8, 1e10))
    graph: Topology = nx.DiGraph(name="tree")
    switches = draw(st.integers(1, 4))
    cables = []
    for switch in range(switches):
        graph.add_node(f"s{switch}", kind="switch")
        if switch:
            cables.append((f"s{switch}", f"s{draw(st.integers(0, switch - 1))}"))
    for rank in range(draw(st.integers(2, 8))):
        graph.add_node(f"g{rank}", kind="gpu", rank=rank)
        cables.append((f"g{rank}", f"s{draw(st.integers(0, switches - 1))}"))
    for a, b in cables:
        add_cable(graph, a, b, kind="ethernet", bandwidth=draw(rates), latency=0.0)
        graph.edges[b, a]["bandwidth"] = draw(rates)
    check(graph)
    return graph


@given(graph=networks(), pair=st.sampled_from(PAIRS), nbytes=st.integers(1, 4 * MIB))
@settings(max_examples=300)
def test_nothing_is_delivered_before_fluid_links_would_have_carried_it(
    graph: Topology, pair: tuple[str, str], nbytes: int
) -> None:
    ranks = sum(data["kind"] == "gpu" for _, data in graph.nodes(data=True))
    run = simulate(schedule(pair[0], Collective(pair[1], ranks, nbytes)), graph, traced=True)
    assert run.timeline is not None
    routes = Routes(graph)
    fed: dict[Hop, list[tuple[float, float, int]]] = {}
    last: dict[Hop, float] = {}
    for sent in run.timeline.transfers:
        slowest = inf
        for hop in routes.route(sent.src, sent.dst):
            fed.setdefault(hop, []).append((sent.sent, slowest, sent.nbytes))
            slowest = min(slowest, graph.edges[hop]["bandwidth"])
            last[hop] = max(last.get(hop, 0.0), sent.delivered)
    for hop, messages in fed.items():
        assert last[hop] >= fluid_end(messages, graph.edges[hop]["bandwidth"]) * (1 - 1e-7)


def fluid_end(messages: list[tuple[float, float, int]], bandwidth: float) -> float:
    """Return when a link that never idles has carried messages of (start, arrival rate, bytes)."""
    ends = [start + nbytes / rate for start, rate, nbytes in messages]
    moments = sorted({*ends, *(start for start, _, _ in messages)})
    waiting, end = 0.0, moments[0]
    for begin, until in zip(moments, [*moments[1:], inf], strict=True):
        waiting += sum(nbytes for start, rate, nbytes in messages if start == begin and rate == inf)
        coming = sum(
            rate for (start, rate, _), last in zip(messages, ends, strict=True) if start <= begin < last
        )
        if coming:
            end = until
        elif waiting:
            end = min(begin + waiting / bandwidth, until)
        waiting = max(waiting + (coming - bandwidth) * (until - begin), 0.0)
    return end


def unblocking(chance: random.Random) -> tuple[tuple[Topology, Topology], int]:
    """Draw a star and a non-blocking leaf-spine of the same ports, without latencies, and their ranks."""
    leaves, hosts = chance.randint(2, 6), chance.randint(2, 6)
    ranks = leaves * hosts
    if chance.random() < 0.7:
        return (star(ranks, latency=0.0), leaf_spine(leaves, hosts, latency=0.0)), ranks
    rates = [chance.choice([1e9, 2e9, 25e9]) for _ in range(ranks)]
    tiers: Topology = nx.DiGraph(name="tiers")
    tiers.add_node("spine", kind="switch", tier=2)
    for leaf in range(leaves):
        own = range(leaf * hosts, (leaf + 1) * hosts)
        tiers.add_node(f"leaf{leaf}", kind="switch", tier=1)
        add_cable(
            tiers, f"leaf{leaf}", "spine", kind="ethernet", latency=0.0,
            bandwidth=chance.choice([1, 3]) * sum(rates[rank] for rank in own),
        )  # fmt: skip
        for rank in own:
            tiers.add_node(f"gpu{rank}", kind="gpu", rank=rank, tier=0)
            add_cable(tiers, f"gpu{rank}", f"leaf{leaf}", kind="ethernet", bandwidth=rates[rank], latency=0.0)
    check(tiers)
    return (uneven_star(rates), tiers), ranks


SEEDS = (*range(40), 68, 70, 83, 92, 99, 102, 120, 129, 134, 142)
"""A dozen of these had other answers while whole messages took turns on links that are wide enough."""


@pytest.mark.parametrize("seeds", [SEEDS, pytest.param(range(1022), marks=pytest.mark.proof)])
@pytest.mark.parametrize(("engine", "network"), [("simpy", "fifo"), ("fast", "fifo"), ("simpy", "fair")])
def test_a_network_that_blocks_nothing_answers_as_the_star(
    engine: str, network: str, seeds: Iterable[int]
) -> None:
    if engine == "fast":
        pytest.importorskip("numba")
    for seed in seeds:
        chance = random.Random(seed)
        graphs, ranks = unblocking(chance)
        algorithm, kind = chance.choice(PAIRS)
        sizes = [chance.randint(1, MIB), chance.randint(1, 64 * MIB), 1 << chance.randint(0, 26)]
        nbytes = chance.choice(sizes)
        root = chance.randrange(ranks) if kind in ("broadcast", "reduce", "gather", "scatter") else 0
        plan = schedule(algorithm, Collective(kind, ranks, nbytes, root=root))
        play = fast.simulate if engine == "fast" else partial(simulate, network=network)
        expected, found = (play(plan, graph).time_s for graph in graphs)
        assert found == pytest.approx(expected, rel=1e-12 if network == "fifo" else 1e-6, abs=0), seed


def test_messages_that_wait_do_so_at_their_port_and_not_before_it() -> None:
    """Two senders for each of two ports under one leaf, whose downlink is as wide as both.

    Whole messages in turn on the downlink had the second one for gpu5 wait for that for gpu4, while the port
    of gpu5 rested: it came after 35 us.
    """
    graph = leaf_spine(3, 2, bandwidth=1e9, latency=0.0)
    sizes = {(0, 4): 20_000, (1, 5): 20_000, (2, 4): 10_000, (3, 5): 10_000}
    done = finishes(simulate(sends(6, sizes), graph, traced=True))
    assert done == pytest.approx({(0, 4): 20e-6, (1, 5): 20e-6, (2, 4): 30e-6, (3, 5): 30e-6})
