"""The faults of a cluster's nodes as they were recorded: which node was away, from when to when, and why."""

from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from ringside.topologies.units import format_span

Floats = npt.NDArray[np.float64]


class FaultsError(ValueError):
    """Faults that cannot be read, or from which nothing can be learnt; the message says what to write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFault:
    """A node that was away; ``begin_s`` is None if since before the record, ``end_s`` if until after it."""

    node: str
    begin_s: float | None
    end_s: float | None
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultHistory:
    """All faults of ``nodes`` nodes between two moments, in seconds on any clock."""

    nodes: int
    begin_s: float
    end_s: float
    faults: tuple[NodeFault, ...]
    source: str = ""

    def __post_init__(self) -> None:
        failed = len({one.node for one in self.faults})
        if self.nodes < max(failed, 1):
            raise FaultsError(f"{self.nodes} nodes, but {failed} had faults; write the number of all nodes")
        if not self.end_s > self.begin_s:
            raise FaultsError("the record ends before it begins; write its end after its begin")
        for one in self.faults:
            begin_s = self.begin_s if one.begin_s is None else one.begin_s
            end_s = self.end_s if one.end_s is None else one.end_s
            if not self.begin_s <= begin_s <= end_s <= self.end_s:
                raise FaultsError(
                    f"a fault of node {one.node} from {format_span(begin_s)} to {format_span(end_s)} is not "
                    f"in order within the record, {format_span(self.begin_s)} to {format_span(self.end_s)}"
                )

    @property
    def span_s(self) -> float:
        """The duration of the record."""
        return self.end_s - self.begin_s

    def between(self, begin_s: float, end_s: float) -> "FaultHistory":
        """Return the part between two moments; what is not over at its ends is open there."""
        kept = []
        for one in self.faults:
            first = None if one.begin_s is None or one.begin_s < begin_s else one.begin_s
            last = None if one.end_s is None or one.end_s > end_s else one.end_s
            begins_later = one.begin_s is not None and one.begin_s >= end_s
            ends_earlier = one.end_s is not None and one.end_s <= begin_s
            if not begins_later and not ends_earlier:
                kept.append(replace(one, begin_s=first, end_s=last))
        return replace(self, begin_s=begin_s, end_s=end_s, faults=tuple(kept))

    def by_node(self) -> dict[str, list[NodeFault]]:
        """Return the faults of each node that had any, in time."""
        nodes: dict[str, list[NodeFault]] = defaultdict(list)
        for one in sorted(
            self.faults, key=lambda fault: (fault.begin_s or self.begin_s, fault.end_s or self.end_s)
        ):
            nodes[one.node].append(one)
        return nodes

    def down(self) -> Floats:
        """Return the share of time with 0, 1, 2, ... nodes down; a node with two faults is down once."""
        changes = [(self.begin_s, 0), (self.end_s, 0)]
        for faults in self.by_node().values():
            reached_s = self.begin_s
            for one in faults:
                begin_s = max(reached_s, self.begin_s if one.begin_s is None else one.begin_s)
                end_s = self.end_s if one.end_s is None else one.end_s
                if end_s > begin_s:
                    changes += [(begin_s, 1), (end_s, -1)]
                    reached_s = end_s
        moments, steps = np.array(sorted(changes)).T
        counts = np.cumsum(steps).astype(int)[:-1]
        return np.bincount(counts, weights=np.diff(moments)) / self.span_s

    @property
    def node_s_down(self) -> float:
        """Seconds of all nodes that were down."""
        return float(np.arange(len(self.down())) @ self.down()) * self.span_s


def quantile_of(shares: Floats, share: float) -> int:
    """Return the number that is not exceeded for a share of the time, by the shares of 0, 1, 2, ..."""
    return min(int(np.searchsorted(np.cumsum(shares), share - 1e-12)), len(shares) - 1)
