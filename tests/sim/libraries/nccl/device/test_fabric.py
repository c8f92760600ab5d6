"""NCCL's rings and trees on fabrics: an unchanged choice, and the fabric's time."""

import re
from collections import Counter

import pytest

from ringside.sim.collective import Collective
from ringside.sim.libraries.find import Options, find_library
from ringside.sim.libraries.library import Candidate, Library
from ringside.sim.libraries.nccl.cluster import communicator_of
from ringside.sim.libraries.nccl.communicator import Settings
from ringside.sim.libraries.nccl.device.connect import rings
from ringside.sim.libraries.nccl.device.fabric import shared
from ringside.sim.libraries.nccl.device.traffic import cable_bytes
from ringside.topologies import Routes, load

MIB = 1 << 20


def nccl(cluster: str, algorithm: str = "ring", **values: str) -> Library:
    return find_library("nccl", cluster, values, options=Options(algorithm, "simple"), calibration=None)


def time_us(library: Library, nbytes: int = 256 * MIB, engine: str = "auto") -> float:
    collective = Collective("all_reduce", library.ranks, nbytes)
    return library.time(collective, library.choose(collective), engine).time_s * 1e6


@pytest.mark.parametrize("engine", ["auto", "simpy"])
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_a_fabric_that_nothing_crosses_costs_nothing(algorithm: str, engine: str) -> None:
    plain = time_us(nccl("dgx-h100:4", algorithm), engine=engine)
    assert time_us(nccl("dgx-h100:4", algorithm, fabric="rail_optimized"), engine=engine) == plain


@pytest.mark.parametrize("engine", ["auto", "simpy"])
@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_the_more_a_fabric_is_oversubscribed_the_longer_it_takes(algorithm: str, engine: str) -> None:
    values = {"fabric": "leaf_spine", "hosts_per_leaf": "2"}
    times = [
        time_us(nccl("dgx-h100:6", algorithm, **values, oversubscription=ratio), engine=engine)
        for ratio in ("1", "4", "8")
    ]
    assert times == sorted(times)
    assert times[2] > 1.5 * times[0]


def test_the_engine_and_the_closed_form_agree_on_what_a_fabric_adds() -> None:
    values = {"fabric": "leaf_spine", "hosts_per_leaf": "2", "oversubscription": "8"}
    plain, narrow = nccl("dgx-h100:6"), nccl("dgx-h100:6", **values)
    by_form = time_us(narrow) - time_us(plain)
    by_engine = time_us(narrow, engine="simpy") - time_us(plain, engine="simpy")
    assert by_form == pytest.approx(by_engine, rel=0.05)


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
@pytest.mark.parametrize("ratio", ["1", "8"])
def test_the_closed_form_is_the_engines_time_on_a_fabric_too(algorithm: str, ratio: str) -> None:
    values = {"fabric": "leaf_spine", "hosts_per_leaf": "2", "oversubscription": ratio}
    options = Options(algorithm, "simple", times="pipeline")
    library = find_library("nccl", "dgx-h100:6", values, options=options)
    assert time_us(library) == pytest.approx(time_us(library, engine="simpy"), rel=0.05)


def test_shares_are_those_of_the_rings_that_are_routed_rank_by_rank() -> None:
    values = {"fabric": "leaf_spine", "hosts_per_leaf": "2", "oversubscription": "4"}
    comm = communicator_of("dgx-a100:6", values, None, Settings())
    assert comm is not None
    graph = load("dgx-a100:6", values)
    routes, crossing = Routes(graph), Counter[tuple[str, str]]()
    for ring in rings(comm):
        for src, dst in zip(ring.tolist(), [*ring.tolist()[1:], ring.tolist()[0]], strict=True):
            if src // comm.gpus != dst // comm.gpus:
                crossing.update(hop for hop in routes.route(src, dst) if "/" not in "".join(hop))
    least = min(graph.edges[hop]["bandwidth"] / count for hop, count in crossing.items())
    found = shared(comm, "ring", comm.channels)
    assert found.bandwidth == least
    assert found.link in crossing
    assert found.crossing == crossing[found.link]


def test_the_choice_is_the_same_on_every_fabric_and_the_answer_says_what_it_adds() -> None:
    plain = find_library("nccl", "dgx-h100:64", {})
    on = find_library("nccl", "dgx-h100:64", {"fabric": "rail_optimized", "oversubscription": "7"})
    collective = Collective("all_reduce", 512, 1024 * MIB)
    assert plain.choose(collective) == on.choose(collective)
    before, after = (library.time(collective, library.choose(collective)) for library in (plain, on))
    assert after.engine == before.engine == "measured"
    assert after.time_s > before.time_s
    assert after.time_hi_s / after.time_lo_s == pytest.approx(before.time_hi_s / before.time_lo_s)
    assert "fabric: connections that share" in after.caveat
    assert "by closed form" in after.caveat


def test_a_topology_by_name_and_as_a_graph_is_one_question() -> None:
    values = {"fabric": "leaf_spine", "oversubscription": "4"}
    by_name = find_library("nccl", "dgx-h100:8", values)
    as_graph = find_library("nccl", load("dgx-h100:8", values))
    collective = Collective("all_reduce", 64, 64 * MIB)
    times = [library.time(collective, library.choose(collective)).time_s for library in (by_name, as_graph)]
    assert times[0] == times[1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fabric": "fattree"}, "unknown fabric 'fattree'; write fat_tree (known: rail_optimized"),
        ({"radix": "8"}, "radix is a setting of fabrics; write --set fabric=NAME"),
        ({"fabric": "fat_tree", "radix": "0"}, "radix"),
    ],
)
def test_a_fabric_that_cannot_be_is_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        find_library("nccl", "dgx-h100:4", values)


@pytest.mark.parametrize("algorithm", ["ring", "tree"])
def test_both_engines_agree_on_a_fabric(algorithm: str) -> None:
    library = nccl("dgx-h100:4", algorithm, fabric="leaf_spine", hosts_per_leaf="2", oversubscription="8")
    simpy = time_us(library, 16 * MIB, engine="simpy")
    assert time_us(library, 16 * MIB, engine="fast") == pytest.approx(simpy, rel=1e-9)


WAYS = {
    "all_to_all": ("dgx-h100:6", "auto"),
    "gather": ("dgx-h100:6", "auto"),
    "sendrecv": ("h100-1gpu:6", "auto"),
    "all_gather": ("h100-1gpu:6", "pat"),
    "reduce_scatter": ("h100-1gpu:6", "pat"),
}


@pytest.mark.parametrize("kind", WAYS)
def test_messages_take_at_least_what_the_busiest_cable_needs(kind: str) -> None:
    cluster, algorithm = WAYS[kind]
    asked = Collective(kind, 48 if cluster.startswith("dgx") else 6, 64 * MIB)
    found = []
    for ratio in ("1", "4", "64"):
        values = {"fabric": "leaf_spine", "hosts_per_leaf": "2", "oversubscription": ratio}
        library = find_library("nccl", cluster, values, options=Options(algorithm), calibration=None)
        (candidate, *_) = [one for one in library.candidates(asked) if one.algorithm in ("pat", "p2p")]
        ((cable, seconds),) = ((a, b) for a, b in library.busy(asked, candidate).items() if "->" in a)
        estimate = library.time(asked, candidate)
        assert estimate.time_s >= seconds
        assert (f" on {cable}" in estimate.caveat) == (estimate.time_s < seconds * 1.01)
        found.append((estimate.time_s, seconds))
    times, cables = zip(*found, strict=True)
    assert times[0] <= times[1] < times[2]
    assert cables[2] == pytest.approx(64 * cables[0])
    assert times[2] == pytest.approx(cables[2], rel=0.01)


def test_the_busiest_cable_of_all_to_all_has_what_is_routed_rank_by_rank() -> None:
    values = {"fabric": "leaf_spine", "hosts_per_leaf": "2", "oversubscription": "4"}
    comm = communicator_of("dgx-a100:6", values, None, Settings())
    assert comm is not None
    asked = Collective("all_to_all", 48, 48 * MIB)
    routes, crossing = Routes(load("dgx-a100:6", values)), Counter[tuple[str, str]]()
    for src in range(48):
        for dst in range(48):
            if src // 8 != dst // 8:
                crossing.update(hop for hop in routes.route(src, dst) if "/" not in "".join(hop))
    carried = cable_bytes(comm, asked, "p2p", "simple")
    assert carried == pytest.approx({hop: messages * MIB for hop, messages in crossing.items()})


def test_where_no_rule_says_what_a_fabric_does_the_answer_says_so() -> None:
    values = {"fabric": "rail_optimized", "oversubscription": "4"}
    library = nccl("dgx-h100:64", "auto", **values)
    asked = Collective("all_reduce", library.ranks, 64 * MIB)
    for algorithm in ("collnet_direct", "nvls"):
        candidate = Candidate(algorithm, "simple", 8, 1000.0)
        caveat = library.time(asked, candidate).caveat
        assert f"the time of {candidate.algorithm} excludes contention in the fabric's switches" in caveat
