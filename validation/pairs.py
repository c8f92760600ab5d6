"""Find the slow nodes and links of a cluster from measurements between every two of its nodes.

The time of a pair is modelled as a product, level x node x node, a sum in logarithms. Median polish fits it
(Tukey, Exploratory Data Analysis, 1977, chapter 11), so single outliers of a node have no effect. A cost to
all partners is the node's, a residual at one pair is the pair's. Either is named only if it deviates by more
than noise explains among all those tested, on scales that are robust against outliers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from ringside.sim.questions.answer import AnswerOnDemand
from ringside.validation.readers.pairs import Pair, read_pairs

CHANCE = 1e-3
"""The probability of a false alarm on a sound cluster, over all matrices."""

LEAST_NODE = 0.02
LEAST_PAIR = 0.05
"""Slowdowns below these shares are not reported, even if certain."""

MOST_NAMED = 3
"""Nodes, and pairs, that a headline names."""

LEAST_PARTNERS = 3
"""With fewer measured partners a node is indistinguishable from its links."""

_RESOLUTION = 1e-3  # nccl-tests prints four digits and more; no scale is finer
_TO_SIGMA = 1.4826  # from a median absolute deviation to a normal distribution's standard deviation
_SWEEPS = 60

Logs = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class PairMatrix:
    """All pairs of one collective, at one size, with the same number of GPUs per node.

    Natural logarithms, each positive for "slower": ``slower`` is a pair's time over ``median_s``, symmetric,
    NaN where nothing was measured; ``effects`` is each node's cost to its partners; ``residuals`` is each
    pair's remainder. ``noise`` and ``spread`` are robust standard deviations of residuals and effects.
    ``judged`` is which nodes are distinguishable from their links.
    """

    collective: str
    gpus_per_node: int
    nbytes: int
    nodes: tuple[str, ...]
    median_s: float
    slower: Logs = field(repr=False)
    effects: Logs = field(repr=False)
    residuals: Logs = field(repr=False)
    noise: float
    spread: float
    judged: NDArray[np.bool_] = field(repr=False)

    @property
    def pairs(self) -> int:
        """The number of measured pairs."""
        return int(np.isfinite(self.slower).sum()) // 2

    @property
    def missing(self) -> int:
        """The number of missing pairs."""
        return len(self.nodes) * (len(self.nodes) - 1) // 2 - self.pairs


@dataclass(frozen=True, slots=True)
class SlowNode:
    """A node that is slow with all partners: ``factor`` times in ``worst``, in ``matrices`` ``of`` all."""

    node: str
    factor: float
    worst: PairMatrix
    matrices: int
    of: int


@dataclass(frozen=True, slots=True)
class SlowPair:
    """Two nodes that are slow together and not with others: ``factor`` is the median over all sizes.

    They were found slow in ``sizes`` ``of`` those that were measured.
    """

    nodes: tuple[str, str]
    collective: str
    gpus_per_node: int
    factor: float
    sizes: int
    of: int


@dataclass(frozen=True, slots=True)
class PairsVerdict(AnswerOnDemand):
    """The findings; ``indistinct`` are nodes that no matrix distinguishes from their links.

    ``failed`` are runs that started but produced no row: both nodes, if known, and the file.
    """

    matrices: tuple[PairMatrix, ...]
    nodes: tuple[SlowNode, ...]
    pairs: tuple[SlowPair, ...]
    indistinct: tuple[str, ...]
    failed: tuple[tuple[tuple[str, ...], str], ...] = ()

    @property
    def headline(self) -> str:
        """The slow nodes and pairs by name."""
        nodes = ", ".join(f"{one.node} {one.factor:.2f}x" for one in self.nodes[:MOST_NAMED])
        pairs = {one.nodes: one.factor for one in self.pairs}
        named = ", ".join(f"{a} and {b} {factor:.2f}x" for (a, b), factor in [*pairs.items()][:MOST_NAMED])
        more = " ..." if max(len(self.nodes), len(pairs)) > MOST_NAMED else ""
        return f"slow nodes: {nodes or 'none'}; slow pairs of normal nodes: {named or 'none'}{more}"

    @property
    def grounds(self) -> str:
        """How many pairs were measured."""
        counted = sum(one.pairs for one in self.matrices)
        often = f"a false alarm once in {1 / CHANCE:,.0f} sound clusters"
        return f"{counted:,} measured pairs in {len(self.matrices)} matrices; {often}"

    @property
    def doubts(self) -> list[str]:
        """What these measurements cannot tell."""
        doubts = []
        if self.indistinct:
            doubts.append(
                f"nodes with too few partners: {', '.join(self.indistinct)}; measure more of their pairs"
            )
        if self.failed:
            doubts.append(f"{len(self.failed)} runs without a row")
        return doubts

    @property
    def inputs(self) -> dict[str, Any]:
        """The nodes."""
        return {"nodes": sorted({node for one in self.matrices for node in one.nodes})}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each collective, number of GPUs a node and size."""
        names = ("collective", "gpus_per_node", "nbytes", "pairs", "missing", "median_s", "noise", "spread")
        return [{name: getattr(one, name) for name in names} for one in self.matrices]

    @property
    def notes(self) -> list[str]:
        """What these measurements cannot tell, a sentence each."""
        return self.doubts


def judge_files(files: Sequence[Path], ranks: int = 2) -> PairsVerdict:
    """Judge files, which `ringside.validation.readers.pairs.read_pairs` reads."""
    pairs = read_pairs(files, ranks)
    return replace(judge(pairs.measured), failed=pairs.failed)


def judge(pairs: Sequence[Pair]) -> PairsVerdict:
    """Return nodes that are slow in any matrix, and pairs that are slow at half of a collective's sizes."""
    matrices = matrices_of(pairs)
    looked_at = sum(int(m.judged.sum()) for m in matrices)
    nodes = _slow_nodes(matrices, CHANCE / max(looked_at, 1))
    slow_pairs = _slow_pairs(matrices, CHANCE / max(sum(m.pairs for m in matrices), 1))
    known = {node for m in matrices for node, judged in zip(m.nodes, m.judged, strict=True) if judged}
    indistinct = sorted({node for m in matrices for node in m.nodes} - known)
    return PairsVerdict(tuple(matrices), nodes, slow_pairs, tuple(indistinct))


def matrices_of(pairs: Sequence[Pair]) -> list[PairMatrix]:
    """Return one matrix per collective, GPUs per node and size; unconnected clusters are separate."""
    groups: dict[tuple[str, int, int], dict[tuple[str, str], list[float]]] = {}
    for pair in pairs:
        times = groups.setdefault((pair.collective, pair.gpus_per_node, pair.nbytes), {})
        times.setdefault(pair.nodes, []).append(pair.time_s)
    matrices = []
    for (collective, gpus, nbytes), times in sorted(groups.items()):
        measured = nx.Graph(list(times))
        for part in sorted(map(sorted, nx.connected_components(measured))):
            within = {nodes: median(seconds) for nodes, seconds in times.items() if nodes[0] in part}
            odd_cycle = not nx.is_bipartite(measured.subgraph(part))
            matrices.append(_matrix(collective, gpus, nbytes, tuple(part), within, odd_cycle))
    return matrices


def _matrix(
    collective: str,
    gpus: int,
    nbytes: int,
    nodes: tuple[str, ...],
    times: dict[tuple[str, str], float],
    odd_cycle: bool,
) -> PairMatrix:
    """Fit one matrix. Without an odd cycle, one side's slow nodes are indistinguishable from the other's."""
    slower = np.full((len(nodes), len(nodes)), np.nan)
    middle = median(times.values())
    place = {node: i for i, node in enumerate(nodes)}
    for (a, b), seconds in times.items():
        i, j = place[a], place[b]
        slower[i, j] = slower[j, i] = np.log(seconds / middle)
    partners = np.isfinite(slower).sum(axis=1)
    effects, residuals = _polish(slower)
    free = len(times) - len(nodes)
    spread = max(_scale(effects), _RESOLUTION)
    return PairMatrix(
        collective, gpus, nbytes, nodes, middle, slower, effects, residuals,
        noise=_noise(residuals, free), spread=spread,
        judged=(partners >= LEAST_PARTNERS) & (odd_cycle and free > 0),
    )  # fmt: skip


def _polish(slower: Logs) -> tuple[Logs, Logs]:
    """Return the nodes' effects, whose median is 0, and the residuals.

    Half steps, because all nodes step at once and a whole step would overshoot.
    """
    level, effects = 0.0, np.zeros(len(slower))
    for _ in range(_SWEEPS):
        effects += _medians(slower - level - effects[:, None] - effects) / 2
        middle = float(np.median(effects))
        effects -= middle
        level += 2 * middle
    return effects, slower - level - effects[:, None] - effects


def _medians(rows: Logs) -> Logs:
    """Return each row's median without NaN; numpy's nanmedian takes tens of times longer."""
    ordered, counts = np.sort(rows, axis=1), np.isfinite(rows).sum(axis=1)
    middles = np.stack([(counts - 1) // 2, counts // 2], axis=1)
    medians: Logs = np.take_along_axis(ordered, middles, axis=1).mean(axis=1)
    return medians


def _scale(values: Logs) -> float:
    return _TO_SIGMA * float(np.median(np.abs(values - np.median(values))))


def _noise(residuals: Logs, free: int) -> float:
    """Return the residuals' standard deviation, without those that the fit forces to 0, one per node."""
    sizes = np.sort(np.abs(residuals[np.triu(np.isfinite(residuals))]))
    return max(_TO_SIGMA * float(np.median(sizes[-free:])) if free > 0 else 0.0, _RESOLUTION)


def _sure(chance: float, free: int) -> float:
    """Return the deviations that noise exceeds with probability ``chance``, given ``free`` values."""
    from scipy.special import stdtrit  # a local import: help must not wait for scipy

    return -float(stdtrit(max(free, 1), chance))


def _slow_nodes(matrices: Sequence[PairMatrix], chance: float) -> tuple[SlowNode, ...]:
    effects: dict[str, list[tuple[float, PairMatrix]]] = {}
    seen: dict[str, int] = {}
    for m in matrices:
        partners = np.isfinite(m.slower).sum(axis=1)
        sure = _sure(chance, len(m.nodes) - 2)
        # a median of k values has a standard error of sqrt(pi / 2k) standard deviations
        doubt = sure * np.hypot(m.spread, m.noise * np.sqrt(np.pi / (2 * partners)))
        for i, node in enumerate(m.nodes):
            seen[node] = seen.get(node, 0) + int(m.judged[i])
            if m.judged[i] and m.effects[i] > max(doubt[i], np.log1p(LEAST_NODE)):
                effects.setdefault(node, []).append((float(np.exp(m.effects[i])), m))
    slow = []
    for node, factors in effects.items():
        factor, worst = max(factors, key=lambda entry: entry[0])
        slow.append(SlowNode(node, factor, worst, len(factors), seen[node]))
    return tuple(sorted(slow, key=lambda entry: -entry.factor))


def _slow_pairs(matrices: Sequence[PairMatrix], chance: float) -> tuple[SlowPair, ...]:
    factors: dict[tuple[tuple[str, str], str, int], list[tuple[float, bool]]] = {}
    for m in matrices:
        free = m.pairs - len(m.nodes)
        sure = max(_sure(chance, free) * m.noise, np.log1p(LEAST_PAIR))
        for i, j in zip(*np.nonzero(np.triu(np.isfinite(m.residuals))), strict=True):
            stands_out = bool(m.judged[i] and m.judged[j] and m.residuals[i, j] > sure)
            key = (m.nodes[i], m.nodes[j]), m.collective, m.gpus_per_node
            factors.setdefault(key, []).append((float(np.exp(m.residuals[i, j])), stands_out))
    slow = []
    for (nodes, collective, gpus), values in factors.items():
        named = sum(stands_out for _, stands_out in values)
        if 2 * named >= len(values) and named:
            factor = median(factor for factor, _ in values)
            slow.append(SlowPair(nodes, collective, gpus, factor, named, len(values)))
    return tuple(sorted(slow, key=lambda entry: -entry.factor))
