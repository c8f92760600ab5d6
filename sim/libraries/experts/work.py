"""Exchanges as arrays: what one phase moves, and the links that it has. Microseconds, bytes and GB/s."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringside.sim.libraries.experts.ports import ExpertPorts
from ringside.sim.libraries.experts.tokens import ExpertTokens

Floats = NDArray[np.float64]

Task = tuple[ExpertTokens, ExpertPorts]


@dataclass(frozen=True, eq=False, slots=True)
class PhaseWork:
    """One phase of each exchange.

    ``kbytes`` is the size of a token in thousands of bytes. It goes to ``copies`` experts on ``gpus`` ranks
    of ``machines`` NVLink domains. ``busiest`` is the load of the busiest rank over the mean.
    """

    tokens: Floats
    hidden: Floats
    kbytes: Floats
    copies: Floats
    gpus: Floats
    machines: Floats
    experts: Floats
    ranks: Floats
    nodes: Floats
    sms: Floats
    busiest: Floats
    nvlink: Floats
    network: Floats
    multiprocessors: Floats
    blackwell: NDArray[np.bool_]

    @property
    def several(self) -> NDArray[np.bool_]:
        """Whether ranks are on several domains."""
        return self.nodes > 1

    def once_s(self) -> tuple[Floats, Floats]:
        """Return the microseconds of NVLink and cards at their full rates if a token goes to a place once.

        Between domains one copy goes to the rank of the same place there, which hands it on by NVLink.
        """
        load = self.tokens * self.kbytes * self.busiest
        inside = load * self.gpus * (1 - self.nodes / self.ranks) / self.nvlink
        return inside, load * self.machines * (1 - 1 / self.nodes) / self.network

    def each_s(self) -> tuple[Floats, Floats]:
        """Return the microseconds of NVLink and cards if each expert of a token is sent it separately."""
        load = self.tokens * self.kbytes * self.copies * self.busiest
        inside = load * (1 / self.nodes - 1 / self.ranks) / self.nvlink
        return inside, load * (1 - 1 / self.nodes) / self.network


def work_of(tasks: Sequence[Task], phase: str) -> PhaseWork:
    """Return a phase of the exchanges as arrays."""

    def column(figures: Sequence[float]) -> Floats:
        return np.array(figures, dtype=np.float64)

    spread = [_spread(exchange, ports) for exchange, ports in tasks]
    return PhaseWork(
        tokens=column([one.tokens for one, _ in tasks]),
        hidden=column([one.hidden for one, _ in tasks]),
        kbytes=column([one.nbytes(phase) for one, _ in tasks]) / 1e3,
        copies=column([one.topk for one, _ in tasks]),
        gpus=column([gpus for gpus, _ in spread]),
        machines=column([machines for _, machines in spread]),
        experts=column([one.experts for one, _ in tasks]),
        ranks=column([ports.ranks for _, ports in tasks]),
        nodes=column([ports.nodes for _, ports in tasks]),
        sms=column([one.sms for one, _ in tasks]),
        busiest=column([one.imbalance for one, _ in tasks]),
        nvlink=column([ports.nvlink for _, ports in tasks]) / 1e9,
        network=column([max(ports.network, 1.0) for _, ports in tasks]) / 1e9,
        multiprocessors=column([ports.multiprocessors for _, ports in tasks]),
        blackwell=np.array([ports.is_blackwell for _, ports in tasks], dtype=np.bool_),
    )


def _spread(exchange: ExpertTokens, ports: ExpertPorts) -> tuple[float, float]:
    """Return the mean numbers of ranks and of domains with a token's experts."""
    return exchange.distinct(ports.ranks, ports.nodes), exchange.distinct(ports.nodes, ports.nodes)
