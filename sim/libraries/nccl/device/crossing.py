"""What a fabric's cables have to carry of sends and receives and of PAT, which have no wires of their own.

Every message goes its way from card to card. A cable between switches needs at least the time of all bytes
that cross it, so that a time below that is too short on this fabric. What CollNet and NVLS add up in switches
crosses a cable once for many, by rules of the network's makers.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sim.collective import Collective
from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.device.fabric import way
from sim.libraries.nccl.device.machine import Hops, Machine
from sim.libraries.nccl.device.schedules import schedule
from sim.schedule import Ints, even_chunks
from topologies.graph import Hop
from topologies.units import format_duration, format_size

MAX_MESSAGES = 2_000_000
"""As many are looked at, some seconds' work."""

MAX_WAYS = 200_000
"""As many ways from card to card are followed, some seconds' work."""

Messages = Iterable[tuple[Ints, Ints, Ints]]
"""Some at a time: who sends to whom, and how many bytes."""


class Busiest(NamedTuple):
    """The cable between switches that needs longest for its bytes; ``None`` if nothing crosses one."""

    seconds: float
    link: Hop | None
    nbytes: int

    @property
    def words(self) -> str:
        """Which it is, and what it needs."""
        if self.link is None:
            return "no message crosses a cable between its switches"
        carries = f"{' -> '.join(self.link)} has {format_size(self.nbytes)} to carry"
        return f"{carries}, {format_duration(self.seconds, 4)} at the least"


@lru_cache(maxsize=256)
def busiest(comm: Communicator, collective: Collective, algorithm: str) -> Busiest | None:
    """The cable that sends and receives, or PAT, keep longest; ``None`` where none is known or too many."""
    graph = comm.network
    if graph is None or algorithm not in ("p2p", "pat"):
        return None
    pair = Machine(replace(comm, nodes=2, network=None), Hops.of(comm, "ring", collective.kind))
    few = comm.ranks * (comm.ranks - 1 if collective.kind == "all_to_all" else 1) <= MAX_MESSAGES
    if pair.many_ports or not few:
        return None
    if algorithm == "p2p":
        sent: Messages = _messages(collective)
    else:
        plan = schedule(comm, collective, algorithm, "simple")
        if plan.longer_than(MAX_MESSAGES):
            return None
        sent = ((moved.src, moved.dst, plan.nbytes(moved)) for moved in plan.steps())
    carried = _between_cards(comm, pair, sent)
    if len(carried) > MAX_WAYS:
        return None
    structure, load = graph.graph["structure"], Counter[Hop]()
    for ends, nbytes in carried.items():
        for hop in pairwise(way(structure, ends)):
            load[hop] += nbytes
    needs = ((nbytes / graph.edges[hop]["bandwidth"], hop, nbytes) for hop, nbytes in load.items())
    return Busiest(*max(needs, default=(0.0, None, 0)))


def _messages(collective: Collective) -> Iterator[tuple[Ints, Ints, Ints]]:
    """Those of sends and receives; what a rank sends itself is among them."""
    rank, sizes = np.arange(collective.ranks), np.diff(even_chunks(collective).bounds)
    root = np.full_like(rank, collective.root)
    match collective.kind:
        case "all_to_all":
            for shift in range(1, collective.ranks):
                peer = (rank + shift) % collective.ranks
                yield rank, peer, sizes[rank * collective.ranks + peer]
        case "gather":
            yield rank, root, sizes
        case "scatter":
            yield root, rank, sizes
        case _:
            yield rank, (rank + 1) % collective.ranks, sizes


def _between_cards(comm: Communicator, pair: Machine, sent: Messages) -> dict[tuple[int, int, int, int], int]:
    """The bytes from card to card, by node and card and node and card."""
    gpus, cards = range(comm.gpus), len(comm.network.graph["structure"].cards) if comm.network else 1
    of_pair = np.array([[pair.cards(a, comm.gpus + b) for b in gpus] for a in gpus]) % cards
    totals: Counter[int] = Counter()
    for src, dst, nbytes in sent:
        (here, a), (there, b) = np.divmod(src, comm.gpus), np.divmod(dst, comm.gpus)
        away = here != there
        out, into = of_pair[a[away], b[away]].T
        ends = ((here[away] * cards + out) * comm.nodes + there[away]) * cards + into
        some, place = np.unique(ends, return_inverse=True)
        moved = np.zeros(len(some), dtype=np.int64)
        np.add.at(moved, place, nbytes[away])
        for one, figure in zip(some.tolist(), moved.tolist(), strict=True):
            totals[one] += figure
    found = {}
    for one, figure in totals.items():
        start, end = divmod(one, comm.nodes * cards)
        found[*divmod(start, cards), *divmod(end, cards)] = figure
    return found
