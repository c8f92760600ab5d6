"""NCCL's switch reductions as steps: NVLS, NVLSTree, CollNet Direct and CollNet Chain.

Every chunk has a head, a GPU on each node that sends the node's sum to other nodes and receives theirs.
The algorithms differ in how data reach the head and leave it:

- NVLS uses the NVSwitch for both: a head reads one address of all GPUs and gets their sum, and writes
  to all with one store (NVLink SHARP). The switch has two places per node for that: one that adds, to which
  all the node's GPUs send, the head included, and one that broadcasts.
- CollNet Direct has the other GPUs send to the head, which adds, and the head send to all.
- CollNet Chain has a chain of GPUs for each channel, whose first one is the head of all its chunks.

Between nodes NVLSTree has a tree of nodes, of the pair the one of the channel's parity; the others
a network that adds (SHARP), where a place joins the heads of one number (src/device/all_reduce.h,
all_gather.h, reduce_scatter.h and src/transport/nvls.cc, v2.30.7).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringside.sim.algorithms.trees.tree import waves
from ringside.sim.libraries.nccl.communicator import MAX_CHANNELS, Communicator
from ringside.sim.libraries.nccl.device.connect import heads, ordered
from ringside.sim.schedule import Step, step
from ringside.sim.trees import depths, heights
from ringside.sim.trees import trees as node_trees

Ints = NDArray[np.int64]

HEADED = ("nvls", "nvls_tree", "collnet_direct")
"""The algorithms whose chunks go to all the heads of a node in turn."""


def switches(comm: Communicator) -> tuple[tuple[int, ...], ...]:
    """Return two places in every node's NVSwitch, then one in the network per possible head."""
    ranks = np.arange(comm.ranks).reshape(comm.nodes, comm.gpus)
    inside = [tuple(node) for node in ranks.tolist() for _ in range(2)]
    return (*inside, *(tuple(rail) for rail in ranks.T.tolist()))


@dataclass(frozen=True, slots=True)
class _Chunks:
    """Chunks that move concurrently: their numbers, heads, and the node that owns or receives each.

    ``owner`` is -1 for chunks that all ranks contribute to and all get.
    """

    number: Ints
    head: Ints
    owner: Ints


def loops(
    comm: Communicator, kind: str, algorithm: str, channel: int, count: int, first: int, per_block: int
) -> Iterator[Step]:
    """Yield a channel's loops over ``count`` pieces of a block, beginning with ``first`` of ``per_block``."""
    if algorithm == "collnet_chain":
        yield from waves(_chains(comm, channel), range(first, first + count), channel=channel)
        return
    moves = _Moves(comm, algorithm, channel)
    if kind == "all_reduce":
        order = heads(comm, algorithm)
        for begin in range(first, first + count, len(order)):
            yield from moves.all_reduce(
                _Chunks(begin + np.arange(len(order)), order, np.full(len(order), -1))
            )
    else:
        rank = np.arange(comm.ranks)
        move = moves.all_gather if kind == "all_gather" else moves.reduce_scatter
        for piece in range(first, first + count):
            yield from move(_Chunks(rank * per_block + piece, rank % comm.gpus, rank // comm.gpus))


def _chains(comm: Communicator, channel: int) -> Ints:
    """Return the parent of each rank and switch: nodes' chains below the network's place for their heads."""
    order = ordered(comm).collnet_chain
    chain = np.array(order.order[channel % len(order.order)].gpus if order else [], dtype=np.int64)
    parent = np.full(comm.ranks + len(switches(comm)), -1, dtype=np.int64)
    starts = np.arange(comm.nodes)[:, None] * comm.gpus
    parent[starts + chain[1:]] = starts + chain[:-1]
    parent[starts + chain[0]] = _network(comm) + chain[0]
    return parent


def _network(comm: Communicator) -> int:
    """Return the first of the network's places."""
    return comm.ranks + 2 * comm.nodes


class _Moves:
    """The steps of one channel."""

    def __init__(self, comm: Communicator, algorithm: str, channel: int) -> None:
        self._comm, self._algorithm, self._channel = comm, algorithm, channel
        self._network = _network(comm)

    def all_reduce(self, chunks: _Chunks) -> Iterator[Step]:
        """Yield steps up to the heads, over the network and back, down from the heads."""
        yield from self._up(chunks)
        if self._algorithm == "nvls_tree":
            yield from self._over_the_tree(chunks)
        elif self._comm.nodes > 1:
            every = np.arange(self._comm.nodes)[:, None]
            yield self._to_network(every, chunks, reduce=True)
            yield self._from_network(every, chunks)
        yield from self._down(chunks)

    def reduce_scatter(self, chunks: _Chunks) -> Iterator[Step]:
        """Yield steps up to the heads, and over the network to the chunk's owner."""
        yield from self._up(chunks)
        if self._comm.nodes > 1:
            yield self._to_network(np.arange(self._comm.nodes)[:, None], chunks, reduce=True)
            yield self._from_network(chunks.owner, chunks)

    def all_gather(self, chunks: _Chunks) -> Iterator[Step]:
        """Yield steps over the network to the other nodes' heads, and down from all heads."""
        if self._comm.nodes > 1:
            yield self._to_network(chunks.owner, chunks, reduce=False)
            others = np.arange(1, self._comm.nodes)[:, None]
            yield self._from_network((chunks.owner + others) % self._comm.nodes, chunks)
        yield from self._down(chunks)

    def _up(self, chunks: _Chunks) -> Iterator[Step]:
        """Send every node's sum to its head."""
        gpus, node = self._comm.gpus, np.arange(self._comm.nodes)
        if self._algorithm == "collnet_direct":
            yield from self._beside(chunks, up=True)
        elif self._algorithm == "nvls_tree":
            # the head's own part waits at the head, where other nodes' sums arrive at any time
            rank, number, _ = self._others(chunks)
            yield self._step(rank, self._adder(rank // gpus), number, reduce=True)
            node = node[:, None]
            yield self._step(self._adder(node), node * gpus + chunks.head, chunks.number, reduce=True)
        else:
            rank = np.arange(self._comm.ranks)[:, None]
            yield self._step(rank, self._adder(rank // gpus), chunks.number, reduce=True)
            node = node[:, None]
            yield self._step(self._adder(node), node * gpus + chunks.head, chunks.number, reduce=False)

    def _down(self, chunks: _Chunks) -> Iterator[Step]:
        """Send from every node's head to the node's other GPUs."""
        gpus, node = self._comm.gpus, np.arange(self._comm.nodes)
        if self._algorithm == "collnet_direct":
            yield from self._beside(chunks, up=False)
        else:
            node = node[:, None]
            yield self._step(node * gpus + chunks.head, self._adder(node) + 1, chunks.number, reduce=False)
            rank, number, head = self._others(chunks)
            yield self._step(self._adder(head // gpus) + 1, rank, number, reduce=False)

    def _beside(self, chunks: _Chunks, *, up: bool) -> Iterator[Step]:
        rank, number, head = self._others(chunks)
        if not len(rank):
            return
        if up:
            yield self._step(rank, head, number, reduce=True)
        else:  # heads add for each other, so data on the way down need connections of their own
            channel = self._channel + MAX_CHANNELS
            yield step(head, rank, number, reduce=False, channel=channel)

    def _others(self, chunks: _Chunks) -> tuple[Ints, Ints, Ints]:
        """Return each rank with each chunk that has another head on its node, and that head."""
        rank, number = np.meshgrid(np.arange(self._comm.ranks), chunks.number, indexing="ij")
        head = rank // self._comm.gpus * self._comm.gpus + chunks.head
        other = rank != head
        return rank[other], number[other], head[other]

    def _over_the_tree(self, chunks: _Chunks) -> Iterator[Step]:
        """Send up the tree of nodes, level by level, and down again, between heads of one number."""
        parent = node_trees(self._comm.nodes)[self._channel % 2]
        height, depth = heights(parent), depths(parent)
        child = np.flatnonzero(parent >= 0)
        for level in range(int(height.max())):
            now = child[height[child] == level][:, None]
            yield self._between(now, parent[now], chunks, reduce=True)
        for level in range(1, int(depth.max()) + 1):
            now = child[depth[child] == level][:, None]
            yield self._between(parent[now], now, chunks, reduce=False)

    def _between(self, src: Ints, dst: Ints, chunks: _Chunks, *, reduce: bool) -> Step:
        gpus = self._comm.gpus
        return self._step(src * gpus + chunks.head, dst * gpus + chunks.head, chunks.number, reduce=reduce)

    def _to_network(self, node: Ints, chunks: _Chunks, *, reduce: bool) -> Step:
        head = node * self._comm.gpus + chunks.head
        return self._step(head, self._network + chunks.head, chunks.number, reduce=reduce)

    def _from_network(self, node: Ints, chunks: _Chunks) -> Step:
        head = node * self._comm.gpus + chunks.head
        return self._step(self._network + chunks.head, head, chunks.number, reduce=False)

    def _adder(self, node: Ints) -> Ints:
        """Return the place in a node's NVSwitch that adds; the next one broadcasts."""
        return self._comm.ranks + 2 * node

    def _step(self, src: Ints, dst: Ints, number: Ints, *, reduce: bool) -> Step:
        both = np.broadcast_arrays(src, dst, number)
        return step(*(column.ravel() for column in both), reduce=reduce, channel=self._channel)
