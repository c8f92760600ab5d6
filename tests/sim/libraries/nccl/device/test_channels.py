from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.libraries.nccl import SYSTEMS, Settings, channel_bytes, chunking, communicator
from ringside.sim.libraries.nccl.chunks import all_reduce_loops
from ringside.sim.libraries.nccl.names import ALGORITHMS_OF, FUNCTIONS, PROTOCOLS_OF
from ringside.sim.libraries.nccl.tuner import launch

K, M = 2**10, 2**20


@pytest.mark.parametrize(
    ("machine", "alone", "across", "nvls"),
    [
        ("dgx1-v100", 12, 8, (0, 0)),
        ("dgx2-v100", 12, 16, (0, 0)),
        ("dgx-a100", 24, 16, (0, 0)),
        ("dgx-h100", 24, 16, (16, 16)),
        ("dgx-h200", 24, 16, (16, 16)),
        ("dgx-b200", 32, 16, (24, 32)),
        ("a100-pcie4", 2, 4, (0, 0)),
        ("h100-1gpu", None, 4, (0, 0)),
    ],
)
def test_final_channels_are_what_nccl_connects(machine, alone, across, nvls):
    if alone is not None:
        assert communicator(machine).channels == alone
        assert communicator(machine).nvls_channels == nvls[0]
    for nodes in (2, 3, 16, 512):
        assert communicator(machine, nodes).channels == across
        assert communicator(machine, nodes).nvls_channels == nvls[1]


def test_few_fast_channels_are_doubled_again_on_hopper():
    comm = communicator("dgx-h100", 2)
    ring = replace(comm.graphs.ring, channels=4)
    assert replace(comm, graphs=replace(comm.graphs, ring=ring)).channels == 16
    slower = replace(ring, bw_intra=45e9)
    assert replace(comm, graphs=replace(comm.graphs, ring=slower)).channels == 8


@pytest.mark.parametrize(
    ("settings", "channels"),
    [({"max_ctas": 10}, 10), ({"min_ctas": 40}, 40), ({"min_ctas": 40, "max_ctas": 4}, 40), ({}, 24)],
)
def test_ctas_clamp_the_channels_first_the_most_then_the_least(settings, channels):
    assert communicator("dgx-a100", settings=Settings(**settings)).channels == channels


@pytest.mark.parametrize(
    ("machine", "nodes", "algorithm", "protocol", "nbytes", "channels", "threads"),
    [
        ("dgx-a100", 1, "ring", "simple", 1 << 30, 24, 544),
        ("dgx-a100", 1, "ring", "simple", 512 * 64 * 5, 5, 544),
        ("dgx-a100", 1, "ring", "simple", 512 * 64 * 5 - 1, 4, 544),
        ("dgx-a100", 1, "ring", "simple", 512 * 64 - 1, 1, 256 + 32),
        ("dgx-a100", 1, "ring", "simple", 64, 1, 96),
        ("dgx-a100", 1, "ring", "ll", 512 * 8 * 8 * 3, 3, 512),
        ("dgx-a100", 1, "ring", "ll128", 640 * 8 * 7, 7, 640),
        ("dgx-a100", 1, "ring", "ll128", 640 * 8 - 1, 1, 320),
        ("dgx-a100", 2, "tree", "ll", 512 * 8 * 9, 9, 640),
        ("dgx-a100", 2, "tree", "simple", 64, 1, 640),
        ("a100-pcie4", 1, "ring", "simple", 1 << 30, 2, 288),
        ("dgx-h100", 1, "nvls", "simple", 1024, 16, 640),
        ("dgx-h100", 4, "nvls_tree", "simple", 1024, 16, 640),
        ("dgx-b200", 4, "nvls_tree", "simple", 1 << 30, 32, 640),
        ("dgx-h100", 4, "nvls", "simple", 1 << 30, 16, 640),
        ("dgx-b200", 4, "nvls", "simple", 1 << 30, 24, 640),
        ("h100-1gpu", 4, "pat", "simple", 64, 4, 640),
    ],
)
def test_channels_and_threads(machine, nodes, algorithm, protocol, nbytes, channels, threads):
    settings = Settings(collnet=True) if algorithm == "nvls" and nodes > 1 else None
    comm = communicator(machine, nodes, settings=settings)
    assert launch(comm, algorithm, protocol, nbytes) == (channels, threads)


@pytest.mark.parametrize(
    ("protocol", "nbytes", "used"),
    [
        ("simple", 16 * K, 1),
        ("simple", 16 * K + 1, 1),  # one channel is all that its threads are worth
        ("simple", 64 * K, 2),
        ("simple", 3 * M, 24),
        ("ll128", 16 * K, 1),
        ("ll128", 64 * K, 4),
        ("ll128", 4 * M, 24),
        ("ll", 4 * K, 1),
        ("ll", 128 * K, 4),
    ],
)
def test_small_messages_use_few_channels(protocol, nbytes, used):
    assert len(channel_bytes(communicator("dgx-a100"), "all_reduce", "ring", protocol, nbytes)) == used


def test_cells_are_dealt_evenly_but_for_the_last_channel():
    comm = communicator("dgx-a100", 2)
    assert channel_bytes(comm, "all_reduce", "tree", "ll", 64 * K) == (4 * K,) * 16
    # a share just above one cell is two cells, so that half the channels do
    assert channel_bytes(comm, "all_reduce", "tree", "ll", 64 * K + 100) == (8 * K,) * 8 + (100,)
    # what does not fit the last channel's share goes there all the same
    assert channel_bytes(comm, "all_reduce", "ring", "simple", 3 * M + 4) == (192 * K,) * 15 + (192 * K + 4,)


cases = [
    (kind, algorithm, protocol)
    for kind in FUNCTIONS
    for algorithm in ALGORITHMS_OF[kind]
    for protocol in PROTOCOLS_OF[algorithm]
]


@given(
    st.sampled_from(["dgx1-v100", "dgx-a100", "dgx-h100", "dgx-b200", "gb200-nvl72"]),
    st.sampled_from([2, 3, 16]),
    st.sampled_from(cases),
    st.integers(0, 2**34),
    st.sampled_from([1, 2, 4, 8]),
)
def test_channels_carry_all_the_data_in_whole_elements(machine, nodes, case, elements, itemsize):
    kind, algorithm, protocol = case
    if algorithm.startswith("nvls") and SYSTEMS[machine].compute_capability < 90:
        return
    comm = communicator(machine, nodes, settings=Settings(collnet=True))
    gathered = kind in ("all_gather", "reduce_scatter")
    nbytes = elements * itemsize * (comm.ranks if gathered else 1)
    parts = channel_bytes(comm, kind, algorithm, protocol, nbytes, itemsize)
    assert sum(parts) == elements * itemsize
    assert all(part > 0 and part % itemsize == 0 for part in parts)
    most = comm.nvls_channels if algorithm.startswith("nvls") else comm.channels
    assert len(parts) <= most


@pytest.mark.parametrize(
    ("kind", "algorithm", "protocol", "chunk", "slices", "credits"),
    [
        ("all_reduce", "ring", "simple", 2 * M, 2, 4),
        ("all_gather", "ring", "simple", 2 * M, 2, 4),
        ("broadcast", "ring", "simple", 512 * K, 1, 8),
        ("all_reduce", "ring", "ll", 32 * K, 1, 8),
        ("all_reduce", "ring", "ll128", 576_000, 1, 8),
        ("all_reduce", "tree", "simple", 512 * K, 1, 8),
        ("all_reduce", "tree", "ll", 32 * K, 1, 8),
        ("all_reduce", "tree", "ll128", 576_000, 1, 8),
        ("all_gather", "pat", "simple", 512 * K, 1, 8),
        ("all_reduce", "nvls_tree", "simple", 128 * K, 1, 8),
        ("all_reduce", "nvls", "simple", 128 * K, 1, 8),
        ("all_reduce", "collnet_direct", "simple", 512 * K, 1, 8),
        ("all_reduce", "collnet_chain", "simple", 256 * K, 1, 8),
    ],
)
def test_large_parts_travel_in_full_chunks(kind, algorithm, protocol, chunk, slices, credits):
    comm = communicator("dgx-h100", 2, settings=Settings(collnet=True))
    found = chunking(comm, kind, algorithm, protocol, 2**34)
    blocks = {"ring": 16, "nvls": 8, "nvls_tree": 8, "collnet_direct": 8}.get(algorithm, 1)
    assert (found.chunk, found.slices, found.credits) == (chunk, slices, credits)
    assert found.loop == blocks * chunk


@pytest.mark.parametrize(
    ("algorithm", "kind", "protocol", "nodes", "nbytes", "chunk"),
    [
        # 1 + log2(2) + 0.8 = 2.8 hops: 22.4 chunks wanted, then 5.6
        ("tree", "all_reduce", "ll128", 2, 23 * 576_000, 576_000),
        ("tree", "all_reduce", "ll128", 2, 23 * 576_000 - 1, 288_000),
        ("tree", "all_reduce", "ll128", 2, 1 * M, 71_040),
        ("tree", "all_reduce", "ll128", 2, 64 * K, 17_280),
        ("nvls", "all_reduce", "simple", 1, 64 * 8 * 128 * K, 128 * K),
        ("nvls", "all_reduce", "simple", 1, 64 * 8 * 128 * K - 1, 64 * K),
        ("nvls", "all_reduce", "simple", 1, 8 * 8 * 64 * K - 1, 32 * K),
        ("nvls", "all_reduce", "simple", 1, 2 * 8 * 32 * K - 1, 16 * K),
        ("nvls_tree", "all_reduce", "simple", 4, 2**34, 64 * K),
        ("nvls_tree", "all_reduce", "simple", 2, 4 * 8 * 128 * K - 1, 64 * K),
        ("nvls_tree", "all_reduce", "simple", 2, 8 * 64 * K - 1, 32 * K),
        ("pat", "all_gather", "simple", 2, 32 * 512 * K - 1, 256 * K),
        ("pat", "reduce_scatter", "simple", 2, 16 * 512 * K, 512 * K),
        ("pat", "all_gather", "simple", 2, 1, 64 * K),
        ("collnet_direct", "all_reduce", "simple", 2, 1, 32 * K),
        ("collnet_chain", "all_reduce", "simple", 2, 8 * 64 * 256 * K - 1, 128 * K),
    ],
)
def test_small_parts_travel_in_smaller_chunks(algorithm, kind, protocol, nodes, nbytes, chunk):
    comm = communicator("dgx-h100", nodes, settings=Settings(collnet=nodes > 1))
    assert chunking(comm, kind, algorithm, protocol, nbytes).chunk == chunk


def test_slices_halve_a_chunk_but_are_never_tiny():
    ring = chunking(communicator("dgx-a100"), "all_reduce", "ring", "simple", 2**30)
    assert ring.slice_bytes(2 * M, 4) == M
    assert ring.slice_bytes(100 * K, 4) == 50 * K + (-50 * K) % 64
    assert ring.slice_bytes(64, 4) == 32 * K


@given(st.integers(0, 2**30), st.integers(2, 64), st.sampled_from([32 * K, 576_000, 2 * M]))
def test_the_passes_of_a_ring_cover_its_data_once(nbytes, ranks, chunk):
    loops = all_reduce_loops(nbytes, ranks, chunk)
    assert sum(loops) * ranks >= nbytes > sum(loops[:-1]) * ranks - (nbytes == 0)
    assert all(size == chunk for size in loops[:-1])
    assert all(size % 16 == 0 for size in loops[-1:] if size < chunk)
