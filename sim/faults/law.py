"""The law of a cluster's faults: how often they come, come back and come together, and how long repairs take.

- Nodes down at a moment follow a negative binomial law, a Poisson law whose mean itself follows a gamma
  law: its mean and variance are those of the record. Faults that came independently would leave Poisson's.
- The rate keeps a level for a time, exponentially distributed, then takes another from a gamma law of mean 1.
- A repair fails with a probability: the node has a fault again soon after. Beyond that, nodes differ by a
  gamma law, whose spread is what their faults in the record's halves have in common.
- Repair times are those of the record, by kind of fault; of faults that were open at its end only the least
  is known (Kaplan and Meier, JASA 53, 1958, by Efron's redistribution to the right). They are scaled so that
  rate times mean is what was down (Little's law), which depends less on where the record ends.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ringside.sim.faults.history import FaultHistory, FaultsError, Floats, NodeFault, quantile_of

DAY_S = 86_400.0

RELAPSE_S = 3 * DAY_S
"""A fault of a node this soon after a repair is a relapse: on a cluster of 400 nodes, 95 of 309 where
unrelated faults would give 4; after it, 41 in a month where they would give 38."""

LEAST_FAULTS = 10
"""Faults from which a law is learnt."""

_BIN_S = 7 * DAY_S
_REPAIRS = 4000
_PAIRS = 20_000
_TAIL = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class KindLaw:
    """Faults of one kind: their share of all, and repair times with weights that add up to 1."""

    name: str
    faults: int
    share: float
    repair_s: Floats
    weights: Floats

    @property
    def mean_s(self) -> float:
        """The mean repair time."""
        return float(self.repair_s @ self.weights)

    def repaired_within_s(self, share: float) -> float:
        """Return the time within which a share of the repairs ends."""
        return float(self.repair_s[quantile_of(self.weights, share)])


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultLaw:
    """A law of faults, learnt by `learn`.

    ``per_node_s`` counts all faults, relapses too. ``relapse`` is the probability of a relapse after a
    repair, ``gaps_s`` are times from repair to relapse. ``offenders`` and ``level`` are relative variances,
    of nodes' rates and of the cluster's, whose levels last ``level_s`` in the mean. ``down_share`` is the
    share of nodes down, ``crowding`` the relative variance of their number beyond a Poisson law's.
    """

    nodes: int
    span_s: float
    per_node_s: float
    relapse: float
    gaps_s: Floats
    offenders: float
    level: float
    level_s: float
    kinds: tuple[KindLaw, ...]
    down_share: float
    crowding: float

    def down(self, nodes: int) -> Floats:
        """Return the probabilities of 0, 1, 2, ... of that many nodes down."""
        mean = self.down_share * nodes
        most = int(mean + 12 * math.sqrt(mean) + 30 * (1 + self.crowding * mean))
        counts = np.arange(min(most, nodes) + 1)
        shares = np.exp([_log_probability(int(count), mean, self.crowding) for count in counts])
        shares[-1] += max(0.0, 1 - shares.sum())
        return shares

    def down_quantile(self, share: float, nodes: int) -> int:
        """Return the number of nodes down that is not exceeded for a share of the time."""
        return quantile_of(self.down(nodes), share)

    def whole(self, nodes: int, spares: int) -> float:
        """Return the share of time in which of nodes and spares no more are down than there are spares."""
        return min(1.0, float(self.down(nodes + spares)[: spares + 1].sum()))

    def spares(self, nodes: int, share: float) -> int:
        """Return the least spares with which a job of ``nodes`` nodes is whole for a share of the time."""
        count = bisect_left(range(nodes + 1), share - _TAIL, key=lambda count: self.whole(nodes, count))
        if count > nodes:
            raise FaultsError(
                f"{nodes} spares do not keep {nodes} nodes whole for {share:.4g} of the time; write "
                "`spares`, or a smaller `whole`"
            )
        return count

    def largest_job(self, share: float) -> int:
        """Return the most nodes that are up at once, in the recorded cluster, for a share of the time."""
        nodes = self.nodes - self.down_quantile(share, self.nodes)
        if nodes < 1:
            raise FaultsError(f"no node of {self.nodes} is up for {share:.4g} of the time; ask for less")
        return nodes


def learn(history: FaultHistory) -> FaultLaw:
    """Learn the law of a record; raise FaultsError where it has too few faults."""
    begun = [one for one in history.faults if one.begin_s is not None]
    if len(begun) < LEAST_FAULTS:
        raise FaultsError(f"{len(begun)} faults begin in the record; a law needs {LEAST_FAULTS} or more")
    if not history.node_s_down:
        raise FaultsError("no node is down at any time; write when faults end, after they begin")
    down = history.down()
    counts = np.arange(len(down))
    mean = float(counts @ down)
    variance = float((counts - mean) ** 2 @ down)
    gaps_s, relapse = _relapses(history)
    kinds = _kinds(history, begun, mean * history.span_s / len(begun))
    crowding = max(0.0, (variance - mean) / mean**2)
    level_s = _level_s(history, begun)
    return FaultLaw(
        nodes=history.nodes,
        span_s=history.span_s,
        per_node_s=len(begun) / history.span_s / history.nodes,
        relapse=relapse,
        gaps_s=gaps_s,
        offenders=_offenders(history),
        level=crowding / _smoothing(kinds, relapse, gaps_s, level_s),
        level_s=level_s,
        kinds=kinds,
        down_share=mean / history.nodes,
        crowding=crowding,
    )


def _log_probability(count: int, mean: float, crowding: float) -> float:
    """Return the logarithm of the negative binomial probability; of Poisson's without crowding."""
    if crowding * mean < _TAIL:
        return count * math.log(mean) - mean - math.lgamma(count + 1)
    size = 1 / crowding
    return (
        math.lgamma(size + count) - math.lgamma(size) - math.lgamma(count + 1)
        - size * math.log1p(mean / size) - count * math.log1p(size / mean)
    )  # fmt: skip


def _relapses(history: FaultHistory) -> tuple[Floats, float]:
    """Return the times from repair to relapse, and the probability beyond what chance gives."""
    gaps, repaired, begun = [], 0, 0
    for faults in history.by_node().values():
        begun += sum(one.begin_s is not None for one in faults)
        repaired += sum(one.end_s is not None for one in faults)
        for one, following in pairwise(faults):
            if one.end_s is not None and following.begin_s is not None:
                gap = following.begin_s - one.end_s
                gaps += [gap] if 0 <= gap < RELAPSE_S else []
    chance = begun / history.nodes / history.span_s * RELAPSE_S
    beyond = len(gaps) / repaired - chance if repaired else 0.0
    return np.array(gaps or [0.0]), min(max(beyond, 0.0), 0.95)


def _offenders(history: FaultHistory) -> float:
    """Return the relative variance of nodes' rates: their faults' covariance between the record's halves."""
    middle_s = history.begin_s + history.span_s / 2
    first, second = 0, 0
    both = 0
    for faults in history.by_node().values():
        fresh = [one for place, one in enumerate(faults) if _is_fresh(faults, place)]
        early = sum(one.begin_s is not None and one.begin_s < middle_s for one in fresh)
        late = sum(one.begin_s is not None and one.begin_s >= middle_s for one in fresh)
        first, second, both = first + early, second + late, both + early * late
    return max(0.0, both * history.nodes / (first * second) - 1) if first and second else 0.0


def _is_fresh(faults: list[NodeFault], place: int) -> bool:
    """Return whether a fault is no relapse of the one before."""
    begin_s, before_s = faults[place].begin_s, faults[place - 1].end_s
    return place == 0 or begin_s is None or before_s is None or begin_s - before_s >= RELAPSE_S


def _kinds(history: FaultHistory, begun: list[NodeFault], mean_s: float) -> tuple[KindLaw, ...]:
    """Return the laws of repair by kind, the most frequent first, scaled to a mean of all."""
    times: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for one in begun:
        assert one.begin_s is not None
        end_s = history.end_s if one.end_s is None else one.end_s
        times[one.kind].append((end_s - one.begin_s, one.end_s is None))
    laws = {kind: _survived(spans) for kind, spans in times.items()}
    whole_s = sum(len(times[kind]) * float(t @ w) for kind, (t, w) in laws.items()) / len(begun)
    scale = mean_s / whole_s if whole_s else 1.0
    return tuple(
        KindLaw(
            name=kind,
            faults=len(times[kind]),
            share=len(times[kind]) / len(begun),
            repair_s=t * scale,
            weights=w,
        )
        for kind, (t, w) in sorted(laws.items(), key=lambda pair: (-len(times[pair[0]]), pair[0]))
    )


def _survived(times: list[tuple[float, bool]]) -> tuple[Floats, Floats]:
    """Return times in order and their weights; an open one gives its weight to all that are longer."""
    ordered = sorted(times)
    weights = np.full(len(ordered), 1 / len(ordered))
    for place, (_, is_open) in enumerate(ordered[:-1]):
        if is_open:
            weights[place + 1 :] += weights[place] / (len(ordered) - place - 1)
            weights[place] = 0.0
    return np.array([seconds for seconds, _ in ordered]), weights


def _level_s(history: FaultHistory, begun: list[NodeFault]) -> float:
    """Return how long a level lasts: from how much faults of a week have in common with those of the next.

    With x = e^(-week/level) their covariance is (1 - x)^2 / (2 (x - 1 - ln x)) of the variance of one week
    beyond a Poisson law's; the level is a week where weeks are too few or too alike to tell.
    """
    weeks = int(history.span_s / _BIN_S)
    counts = np.bincount(
        [int((one.begin_s - history.begin_s) / _BIN_S) for one in begun if one.begin_s is not None],
        minlength=weeks,
    )[:weeks].astype(float)
    if weeks < 4 or counts.var() <= counts.mean():
        return _BIN_S
    apart = counts - counts.mean()
    wanted = float(np.mean(apart[1:] * apart[:-1])) / (counts.var() - counts.mean())
    low, high = math.exp(-7.0), math.exp(-1 / 8)
    for _ in range(50):
        x = math.sqrt(low * high)
        low, high = (x, high) if (1 - x) ** 2 / (2 * (x - 1 - math.log(x))) < wanted else (low, x)
    return -_BIN_S / math.log(low)


def _smoothing(kinds: tuple[KindLaw, ...], relapse: float, gaps_s: Floats, level_s: float) -> float:
    """Return how much of the level's variance is left in the number of nodes down.

    Each node that is down began a time ago: it is the mean of e^(-|u - v|/level) over pairs of these times.
    """
    rng = np.random.default_rng(0)
    pool = np.concatenate([kind.repair_s for kind in kinds])
    weights = np.concatenate([kind.share * kind.weights for kind in kinds])
    repairs = rng.choice(pool, _REPAIRS, p=weights / weights.sum())
    comes_back, gaps = rng.random(_REPAIRS) < relapse, rng.choice(gaps_s, _REPAIRS)
    begins, begin_s = [], 0.0
    for repair_s, again, gap_s in zip(repairs, comes_back, gaps, strict=True):
        begins.append(begin_s)
        begin_s = begin_s + repair_s + gap_s if again else 0.0
    ages = np.array(begins) + repairs * rng.random(_REPAIRS)
    one, other = (rng.choice(ages, _PAIRS, p=repairs / repairs.sum()) for _ in range(2))
    return float(np.mean(np.exp(-np.abs(one - other) / level_s)))
