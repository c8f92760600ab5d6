"""NVLS, NVLSTree, CollNet and PAT as schedules: proofs, bytes of ports, times against measured ones."""

from math import ceil, log2

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ringside.sim.collective import Collective
from ringside.sim.engine.bounds import lower_bounds
from ringside.sim.engine.events import simulate
from ringside.sim.libraries.library import Candidate
from ringside.sim.libraries.nccl import Settings, communicator
from ringside.sim.libraries.nccl.chunks import Chunking
from ringside.sim.libraries.nccl.device.closed_form import closed_form
from ringside.sim.libraries.nccl.device.pat import aggregated, places
from ringside.sim.libraries.nccl.device.plays import plays
from ringside.sim.libraries.nccl.device.schedules import schedule
from ringside.sim.libraries.nccl.device.traffic import traffic
from ringside.sim.libraries.nccl.library import LAUNCH_S, Nccl, overhead_s, simulated
from ringside.sim.proof import prove
from ringside.topologies import check

K, M, G = 2**10, 2**20, 2**30
SHARP = Settings(collnet=True)

CASES = [
    ("all_reduce", "nvls"),
    ("all_gather", "nvls"),
    ("reduce_scatter", "nvls"),
    ("all_reduce", "nvls_tree"),
    ("all_reduce", "collnet_direct"),
    ("all_gather", "collnet_direct"),
    ("reduce_scatter", "collnet_direct"),
    ("all_reduce", "collnet_chain"),
]


def collective(comm, kind, nbytes, itemsize=4):
    return Collective(kind, comm.ranks, nbytes, itemsize)


@settings(max_examples=40)
@given(
    st.sampled_from(CASES),
    st.integers(1, 5),
    st.integers(2, 8),
    st.one_of(st.integers(0, M), st.sampled_from([0, 1, 3 * M + 4])),
    st.sampled_from([1, 2, 4, 8]),
)
def test_switch_reductions_are_right_on_every_shape(case, nodes, gpus, nbytes, itemsize):
    kind, algorithm = case
    assume(nodes > 1 or algorithm == "nvls")
    comm = communicator("dgx-h100", nodes, gpus, settings=SHARP)
    prove(schedule(comm, collective(comm, kind, nbytes, itemsize), algorithm, "simple"))


@pytest.mark.parametrize(("kind", "algorithm"), CASES)
@pytest.mark.parametrize(("machine", "nodes"), [("dgx-b200", 2), ("dgx-h100", 4)])
def test_whole_machines_are_right(machine, nodes, kind, algorithm):
    comm = communicator(machine, nodes, settings=SHARP)
    prove(schedule(comm, collective(comm, kind, 128 * K), algorithm, "simple"))


@pytest.mark.parametrize("machine", ["dgx-a100", "dgx1-v100", "alps-gh200", "a100-pcie4"])
def test_a_chain_to_the_network_is_right_where_nothing_but_the_network_adds(machine):
    comm = communicator(machine, 3, settings=SHARP)
    prove(schedule(comm, collective(comm, "all_reduce", M), "collnet_chain", "simple"))


@settings(max_examples=60)
@given(st.sampled_from(["all_gather", "reduce_scatter"]), st.integers(2, 70), st.integers(0, 4 * M))
def test_pat_is_right_for_any_number_of_ranks(kind, ranks, nbytes):
    comm = communicator("h100-1gpu", ranks)
    prove(schedule(comm, collective(comm, kind, nbytes), "pat", "simple"))


@given(st.integers(2, 600), st.integers(0, 12))
def test_pats_places_are_all_places_each_after_the_one_that_it_has_its_block_from(ranks, power):
    together, parts = aggregated(ranks, 1 << power, Chunking(64 * K, 1, 8, 64 * K))
    assert together <= parts < max(ranks, 2)
    had = {0}
    for now in places(ranks, parts):
        assert all(place & (place - 1) in had for place in now)
        had.update(now)
    assert had == set(range(ranks))


@pytest.mark.parametrize("ranks", [2, 3, 8, 13, 64])
def test_small_blocks_take_a_logarithm_of_steps(ranks):
    _, parts = aggregated(ranks, 4, Chunking(64 * K, 1, 8, 64 * K))
    assert sum(map(bool, places(ranks, parts))) == ceil(log2(ranks))


def test_pat_goes_deep_before_wide_where_blocks_fill_slots():
    # one block at a time below each part of the tree, the largest first, so that few wait anywhere
    assert [now for (now,) in places(16, 1)] == [8, 12, 14, 15, 13, 10, 11, 9, 4, 6, 7, 5, 2, 3, 1]
    assert list(places(16, 4)) == [[8], [4, 12], [2, 6, 10, 14], [3, 7, 11, 15], [1, 5, 9, 13]]


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_what_a_port_carries_for_nvls(gpus):
    comm = communicator("dgx-h100", 1, gpus)
    size = 64 * M
    up, down = ports(schedule(comm, collective(comm, "all_reduce", size), "nvls", "simple"))
    assert set(up) == {size + size // gpus}
    assert set(down) == {size}
    up, down = ports(schedule(comm, collective(comm, "reduce_scatter", size), "nvls", "simple"))
    assert (set(up), set(down)) == ({size}, {size // gpus})
    up, down = ports(schedule(comm, collective(comm, "all_gather", size), "nvls", "simple"))
    assert (set(up), set(down)) == ({size // gpus}, {size - size // gpus})


def ports(plan):
    """Return the bytes that each rank sends and receives."""
    moved = plan.traffic().items()
    return tuple(
        [sum(nbytes for pair, nbytes in moved if pair[side] == rank) for rank in range(plan.ranks)]
        for side in (0, 1)
    )


# NCCL_ALGO=NVLS on 4 H100, out of place (github.com/waynehacking8/nccl-collectives-bench,
# results/algo_sweep, NCCL 2.29.2)
@pytest.mark.parametrize(("nbytes", "measured_us"), [(256 * M, 1120.54), (G, 4336.86), (8 * G, 34221.4)])
def test_nvls_is_within_3_per_cent_of_what_was_measured(nbytes, measured_us):
    comm = communicator("dgx-h100", 1, 4)
    taken, *_ = simulated(comm, collective(comm, "all_reduce", nbytes), "nvls", "simple")
    seconds = taken + overhead_s(comm, "nvls", "simple") + LAUNCH_S
    assert seconds * 1e6 == pytest.approx(measured_us, rel=0.03)


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize(
    ("machine", "gpus"), [("dgx-h100", 2), ("dgx-h100", 8), ("dgx-b200", 8), ("hgx-h20", 5)]
)
def test_the_closed_form_is_the_engines_where_data_cross_the_switch_once(machine, gpus, kind):
    comm = communicator(machine, 1, gpus)
    for nbytes in (0, 8 * K, 512 * K, 4 * M + 4, 64 * M):
        asked = collective(comm, kind, nbytes)
        engine, *_ = simulated(comm, asked, "nvls", "simple")
        assert closed_form(comm, asked, "nvls", "simple") == pytest.approx(engine, rel=0.02)


def test_other_switch_reductions_have_no_closed_form():
    with pytest.raises(
        ValueError, match="nvls all_reduce on 1 nodes has no closed form; write --engine simpy"
    ):
        closed_form(communicator("dgx-h100"), Collective("all_reduce", 8, M), "nvls", "simple")
    pipeline = Nccl(communicator("dgx-h100"), clock="pipeline")
    ways = [
        {way.algorithm for way in pipeline.candidates(Collective(kind, 8, M, dtype="float32"))}
        for kind in ("all_reduce", "all_gather")
    ]
    assert ways == [{"ring", "tree"}, {"ring", "nvls"}]


@pytest.mark.parametrize("nodes", [2, 4])
def test_nvls_tree_is_near_the_tuners_time_whose_bandwidths_it_shares(nodes):
    comm = communicator("dgx-h100", nodes)
    library, asked = Nccl(comm), Collective("all_reduce", comm.ranks, 64 * M, dtype="float32")
    way = Candidate("nvls_tree", "simple")
    played, believed = (library.time(asked, way, engine).time_s for engine in ("simpy", "auto"))
    assert played == pytest.approx(believed, rel=0.05)


MACHINES = [
    ("dgx-h100", 1), ("dgx-h100", 2), ("dgx-h100", 3), ("dgx-b200", 2), ("hgx-h800", 2), ("gb200-nvl72", 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("machine", "nodes", "kind", "algorithm"),
    [
        (machine, nodes, kind, algorithm)
        for machine, nodes in MACHINES
        for kind, algorithm in CASES
        # one node has no other algorithm, and 72 GPUs have 32 heads
        if nodes > 1 or (kind, algorithm) == ("all_reduce", "nvls")
    ],
)
@pytest.mark.parametrize("nbytes", [64 * K, 16 * M])
def test_no_time_is_under_the_machines_bounds(machine, nodes, kind, algorithm, nbytes):
    comm = communicator(machine, nodes, settings=SHARP)
    asked = collective(comm, kind, nbytes)
    for play in plays(comm, asked, algorithm, "simple"):
        check(play.graph)
        bounds = lower_bounds(play.schedule, play.graph, play.routes)
        seconds = simulate(play.schedule, play.graph, routes=play.routes).time_s
        assert seconds >= max(bounds) * (1 - 1e-9)
    slowest, *_ = simulated(comm, asked, algorithm, "simple")
    assert slowest >= max(traffic(comm, asked, algorithm, "simple").values()) * (1 - 1e-9)


@pytest.mark.parametrize("algorithm", ["nvls_tree", "collnet_direct", "collnet_chain", "pat"])
def test_larger_data_take_no_less_time(algorithm):
    comm, kind = communicator("dgx-h100", 3, 4, settings=SHARP), "all_reduce"
    if algorithm == "pat":
        comm, kind = communicator("h100-1gpu", 9), "all_gather"
    sizes = [1 << power for power in range(10, 25, 2)]
    times = [simulated(comm, collective(comm, kind, size), algorithm, "simple")[0] for size in sizes]
    assert times == sorted(times)


@pytest.mark.parametrize(
    ("comm", "kind", "algorithm", "reason"),
    [
        (communicator("dgx-a100"), "all_reduce", "nvls", "needs NVSwitch, 2 GPUs a node of Hopper or later"),
        (communicator("dgx-h100"), "all_reduce", "nvls_tree", "is a tree of nodes, but there is one node"),
        (communicator("dgx-h100", 2), "all_gather", "nvls", "on several nodes needs a network that adds"),
        (communicator("dgx-h100", 2), "all_reduce", "collnet_direct", "needs a network that adds"),
        (communicator("alps-gh200", 2, settings=SHARP), "all_reduce", "collnet_direct", "needs NVSwitch"),
        (communicator("gb200-nvl72"), "all_gather", "nvls", "needs a head for every GPU, but has 32 for 72"),
    ],
)
def test_what_cannot_be_says_why(comm, kind, algorithm, reason):
    with pytest.raises(ValueError, match=reason):
        simulated(comm, collective(comm, kind, M), algorithm, "simple")


def test_every_algorithm_that_the_tuner_weighs_is_played():
    for machine, nodes in [*MACHINES, ("h100-1gpu", 4)]:
        library = Nccl(communicator(machine, nodes, settings=SHARP))
        for kind in ("all_reduce", "all_gather", "reduce_scatter"):
            asked = Collective(kind, library.ranks, M, dtype="float32")
            for candidate in library.candidates(asked):
                if candidate.protocol == "simple":
                    assert library.time(asked, candidate, "simpy").time_s > LAUNCH_S
