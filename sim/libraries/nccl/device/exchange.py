"""Bytes of sends and receives, and of PAT, from rank to rank, and the cards that they use.

They have no wires of their own: every message goes from card to card on the machine's paths
(`ringside.sim.libraries.nccl.device.machine`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ringside.sim.collective import Collective
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.device.machine import Hops, MachineRoutes
from ringside.sim.libraries.nccl.device.schedules import schedule
from ringside.sim.schedule import Ints

Floats = NDArray[np.float64]

MAX_TRANSFERS = 2_000_000
"""Maximum number of PAT's messages that are counted, some seconds' work."""

MAX_WAYS = 100_000_000
"""Maximum number of routes from card to card that are followed, some seconds' work."""

_BLOCK = 2**20
"""Routes that are followed at once, to limit memory."""


@dataclass(frozen=True, eq=False, slots=True)
class ExchangedBytes:
    """Bytes between local ranks, a table per node; one table if all nodes are alike.

    ``inside`` is from a rank of a node to another of the same, ``leaving`` from a rank of the node to one on
    another, ``arriving`` the reverse. ``sent`` has all messages between nodes, by source and destination;
    it is ``None`` if every rank sends ``each`` to every other.
    """

    inside: Floats
    leaving: Floats
    arriving: Floats
    sent: tuple[Ints, Ints, Floats] | None
    each: float = 0.0


@dataclass(frozen=True, slots=True)
class Cards:
    """The cards by which a message leaves its node and arrives, by the local ranks of its ends.

    There is one such table per channel with other cards; all carry the same bytes.
    """

    out: tuple[Ints, ...]
    into: tuple[Ints, ...]


def exchange(comm: Communicator, collective: Collective, algorithm: str) -> ExchangedBytes | None:
    """Return the bytes of ``p2p`` or ``pat``; ``None`` if there are too many messages."""
    if algorithm == "pat":
        plan = schedule(comm, collective, algorithm, "simple")
        if plan.longer_than(MAX_TRANSFERS):
            return None
        steps = [(one.src, one.dst, plan.nbytes(one)) for one in plan.steps()]
        src, dst, nbytes = (np.concatenate(column) for column in zip(*steps, strict=True))
        return _of_messages(comm, src, dst, nbytes.astype(np.float64))
    rank, part = np.arange(comm.ranks), collective.nbytes / comm.ranks
    root = np.full_like(rank, collective.root)
    match collective.kind:
        case "all_to_all" if collective.splits is not None:
            table = np.array(collective.splits, dtype=np.float64) * collective.itemsize
            src, dst = np.divmod(np.arange(comm.ranks**2), comm.ranks)
            return _of_messages(comm, src, dst, table.ravel())
        case "all_to_all":
            alike = np.full((1, comm.gpus, comm.gpus), part)
            between = alike * (comm.nodes - 1)
            return ExchangedBytes(alike * (1 - np.eye(comm.gpus)), between, between, None, part)
        case "gather":
            return _of_messages(comm, rank, root, np.full(comm.ranks, part))
        case "scatter":
            return _of_messages(comm, root, rank, np.full(comm.ranks, part))
        case _:
            whole = np.full(comm.ranks, float(collective.nbytes))
            return _of_messages(comm, rank, (rank + 1) % comm.ranks, whole)


def _of_messages(comm: Communicator, src: Ints, dst: Ints, nbytes: Floats) -> ExchangedBytes:
    (here, a), (there, b) = np.divmod(src, comm.gpus), np.divmod(dst, comm.gpus)

    def table(node: Ints, which: NDArray[np.bool_]) -> Floats:
        bytes_ = np.zeros((comm.nodes, comm.gpus, comm.gpus))
        np.add.at(bytes_, (node[which], a[which], b[which]), nbytes[which])
        return bytes_

    away = here != there
    sent = src[away], dst[away], nbytes[away]
    return ExchangedBytes(table(here, ~away & (src != dst)), table(here, away), table(there, away), sent)


@lru_cache(maxsize=256)
def cards_of(comm: Communicator) -> Cards:
    """Return the cards of every pair of local ranks of two nodes."""
    pair = MachineRoutes(replace(comm, nodes=2, network=None), Hops.of(comm, "ring", "all_reduce"))
    gpus = range(comm.gpus)
    tables = [
        np.array([[pair.on(channel).cards(a, comm.gpus + b) for b in gpus] for a in gpus])
        for channel in range(pair.most_ports)
    ]
    return Cards(tuple(table[..., 0] for table in tables), tuple(table[..., 1] for table in tables))


def between_cards(
    comm: Communicator, moved: ExchangedBytes, cards: int
) -> Iterator[tuple[Ints, Ints, Floats]] | None:
    """Return all bytes from port to port, ``cards`` on each node, in parts; ``None`` for too many routes."""
    table = cards_of(comm)
    if moved.sent is None:
        pairs = np.concatenate(
            [
                out.ravel() % cards * cards + into.ravel() % cards
                for out, into in zip(*_both(table), strict=True)
            ]
        )
        used, times = np.unique(pairs, return_counts=True)
        if comm.nodes**2 * len(used) > MAX_WAYS:
            return None
        return _everywhere(_numbers(comm), cards, used, times * moved.each / len(table.out))
    return _sent(comm, moved.sent, cards, table)


def _both(table: Cards) -> tuple[tuple[Ints, ...], tuple[Ints, ...]]:
    return table.out, table.into


def _everywhere(
    machines: Ints, cards: int, pairs: Ints, nbytes: Floats
) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Yield bytes from every node to every other by the same pairs of cards."""
    out, into = np.divmod(pairs, cards)
    at_once = max(_BLOCK // (len(machines) * len(pairs)), 1)
    for first in range(0, len(machines), at_once):
        here, there = np.meshgrid(machines[first : first + at_once], machines)
        here, there = here[here != there], there[here != there]
        src, dst = here[:, None] * cards + out, there[:, None] * cards + into
        yield src.ravel(), dst.ravel(), np.tile(nbytes, len(here))


def _sent(
    comm: Communicator, sent: tuple[Ints, Ints, Floats], cards: int, table: Cards
) -> Iterator[tuple[Ints, Ints, Floats]]:
    src, dst, nbytes = sent
    (here, a), (there, b) = np.divmod(src, comm.gpus), np.divmod(dst, comm.gpus)
    here, there = _numbers(comm)[here] * cards, _numbers(comm)[there] * cards
    for out, into in zip(*_both(table), strict=True):
        yield here + out[a, b] % cards, there + into[a, b] % cards, nbytes / len(table.out)


def _numbers(comm: Communicator) -> Ints:
    """Return the numbers of the nodes' machines on the fabric."""
    return np.array(comm.machines or range(comm.nodes), dtype=np.int64)
