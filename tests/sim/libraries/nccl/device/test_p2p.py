from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.libraries.nccl import SYSTEMS, communicator, point_to_point
from ringside.sim.libraries.nccl.device.p2p import KINDS

K, M = 2**10, 2**20


@pytest.mark.parametrize(
    ("machine", "nodes", "chunk", "channels"),
    [
        ("dgx-h100", 1, 512 * K, 32),
        ("dgx-h100", 2, 128 * K, 4),
        ("dgx-h100", 16, 128 * K, 1),
        ("dgx-a100", 1, 512 * K, 32),
        ("dgx-a100", 2, 128 * K, 2),
        ("dgx1-v100", 1, 512 * K, 2),
        ("a100-pcie4", 1, 128 * K, 2),
        ("gb200-nvl72", 1, 512 * K, 2),
        ("gb200-nvl72", 2, 256 * K, 1),
    ],
)
def test_chunks_and_channels(machine, nodes, chunk, channels):
    found = point_to_point(communicator(machine, nodes), "all_to_all", M)
    assert (found.chunk, found.channels) == (chunk, channels)


@pytest.mark.parametrize(
    ("kind", "rounds", "time_us"),
    [
        ("all_to_all", 2, 8.4 + 14 + 2**30 / 2 / 48e9 * 1e6),
        ("gather", 2, 8.4 + 14 + 2**30 / 2 / 48e9 * 1e6),
        ("scatter", 2, 8.4 + 14 + 2**30 / 2 / 48e9 * 1e6),
        ("sendrecv", 1, 8.4 + 14 + 2**30 / 48e9 * 1e6),
    ],
)
def test_the_estimate_is_the_stated_formula(kind, rounds, time_us):
    found = point_to_point(communicator("dgx-h100", 2), kind, 2**30)
    assert (found.rounds, found.time_us) == (rounds, pytest.approx(time_us))


def test_inside_a_node_nvlink_carries_it():
    found = point_to_point(communicator("dgx-h100"), "all_to_all", 2**30)
    assert found.time_us == pytest.approx(8.4 + 3.4 + 2**30 * 7 / 8 / 370.8e9 * 1e6)


def test_gpus_that_share_a_nic_share_its_bandwidth_in_all_to_all_only():
    comm = communicator("dgx1-v100", 2)
    exchange = point_to_point(comm, "all_to_all", 2**30).time_us
    assert exchange == pytest.approx(8.4 + 14 + 2**30 / 2 / 6e9 * 1e6)
    assert point_to_point(comm, "gather", 2**30).time_us < exchange


@given(
    st.sampled_from(sorted(SYSTEMS)),
    st.sampled_from([2, 3, 16, 512]),
    st.sampled_from(KINDS),
    st.integers(0, 2**34),
    st.integers(0, 2**30),
)
def test_more_bytes_take_less_only_on_more_channels_and_no_rank_beats_its_links(
    machine, nodes, kind, nbytes, more
):
    comm = communicator(machine, nodes)
    found = point_to_point(comm, kind, nbytes)
    assert 0 < found.time_us <= 2 * point_to_point(comm, kind, nbytes + more).time_us
    leaving = nbytes if kind == "sendrecv" else nbytes * (comm.ranks - comm.gpus) / comm.ranks
    assert found.time_us * 1e-6 >= leaving / comm.system.nic_path


@pytest.mark.parametrize("kind", ["all_to_all", "gather", "scatter"])
def test_without_nvlink_what_stays_and_what_leaves_share_a_gpus_slot(kind):
    machine = replace(SYSTEMS["a100-pcie4"], nic=50e9)
    comm = communicator(machine, 4)
    found = point_to_point(comm, kind, 2**30)
    assert found.time_us * 1e-6 >= 2**30 * (comm.ranks - 1) / comm.ranks / machine.pcie


def test_other_collectives_are_refused():
    with pytest.raises(
        ValueError, match="unknown point-to-point collective 'all_reduce'; write one of all_to_all"
    ):
        point_to_point(communicator("dgx-h100"), "all_reduce", M)
