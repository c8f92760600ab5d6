"""Memory that NCCL allocates for communicators, beside what others measured."""

import pytest

from ringside.sim.libraries.nccl.buffers import BETWEEN, INSIDE, MIB, RECEIVING, buffers_nbytes
from ringside.sim.libraries.nccl.communicator import communicator
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.layout import Layout
from ringside.sim.training.memory.communicators import UNKNOWN_COMMUNICATOR, communicators_nbytes
from ringside.sim.training.mesh import Mesh

REDUCE = ("all_reduce",)


def test_a_connection_has_the_buffers_that_nccl_logs():
    """NVIDIA/nccl#1685 logs allocations of 10485760 and 2097152 bytes."""
    assert RECEIVING == 10485760
    assert INSIDE - RECEIVING == 2097152
    assert BETWEEN == 2 * RECEIVING


def test_a_communicator_takes_what_was_measured_on_a100():
    """NVIDIA/nccl#964: 544 MiB of two GPUs; 688 of four at an end of the trees, half connected."""
    two, four = (buffers_nbytes(communicator("dgx-a100", 1, gpus), REDUCE) for gpus in (2, 4))
    assert sum(two.values()) == 544 * MIB
    assert sum(four.values()) - four["trees"] // 2 == 688 * MIB


def test_an_all_to_all_connects_every_pair_of_a_node():
    """NVIDIA/nccl#1685: 32 channels with each of 7 peers; the first all-to-all adds 3.28 GB."""
    comm = communicator("dgx-h100")
    grown = buffers_nbytes(comm, ("all_to_all",))["sends inside nodes"]
    assert grown == 7 * 32 * INSIDE
    assert grown == pytest.approx(3.28e9, rel=0.15)
    assert buffers_nbytes(comm, ("sendrecv",))["sends inside nodes"] == 2 * 32 * INSIDE


def test_switch_reductions_and_trees_are_where_nccl_uses_them():
    assert "switch reductions" not in buffers_nbytes(communicator("dgx-a100"), REDUCE)
    assert buffers_nbytes(communicator("dgx-h100"), REDUCE)["switch reductions"] == 256 * MIB
    assert "trees" not in buffers_nbytes(communicator("dgx-h100"), ("all_gather",))


def test_each_dimension_with_several_ranks_has_a_communicator():
    libraries = Libraries("nccl", "dgx-h100:4", {}, 32)
    nbytes = communicators_nbytes(Mesh(tensor=4, shard=4, pipeline=2), Layout(tp=4, pp=2), libraries)
    assert list(nbytes) == ["tensor", "shard", "pipeline"]
    assert nbytes["tensor"] > nbytes["shard"] > nbytes["pipeline"] > 0
    experts = communicators_nbytes(Mesh(shard=8, replicate=4, expert=8), Layout(ep=8), libraries)
    assert list(experts) == ["shard", "replicate", "expert", "expert_data"]
    assert experts["expert"] > 2 * experts["shard"]
    shared = communicators_nbytes(Mesh(context=4), Layout(cp=4), libraries)["context"]
    alone = communicators_nbytes(Mesh(shard=4), Layout(), libraries)["shard"]
    assert shared > alone, "one communicator exchanges keys and values, another sums gradients"
    assert communicators_nbytes(Mesh(), Layout(), Libraries("nccl", "dgx-h100", {}, 1)) == {}


@pytest.mark.parametrize(("library", "nbytes"), [("gloo", 0), ("ideal", UNKNOWN_COMMUNICATOR)])
def test_other_libraries_hold_nothing_on_cpus_and_something_on_gpus(library, nbytes):
    libraries = Libraries(library, "dgx-h100:2", {}, 16)
    assert communicators_nbytes(Mesh(shard=16), Layout(), libraries) == {"shard": nbytes}
