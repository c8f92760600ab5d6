"""``ringside pairs``: which node or link of a cluster is slow."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ringside import console, options
from ringside.options import asks
from ringside.topologies.disk import check_outputs
from ringside.topologies.units import format_size
from ringside.validation.pairs import PairMatrix, PairsVerdict, SlowNode, SlowPair
from ringside.validation.questions.explanation import SlowNodes

HEADS = (
    ("collective", ""),
    ("GPUs", "per node"),
    ("size", "(B)"),
    ("slowest node", ""),
    ("by", "(%)"),
    ("slowest pair", ""),
    ("by", "(%)"),
    ("median", "(us)"),
    ("noise", "(%)"),
    ("nodes", "(+-%)"),
    ("pairs", ""),
    ("missing", ""),
)


@asks(SlowNodes)
def command(
    question: SlowNodes,
    plot: options.Plot = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Find the slow nodes and links, from measurements between every two nodes."""
    check_outputs([plot], inputs=question.files)
    verdict = question.ask()
    if plot:
        from ringside.pictures.measured.pairs import draw_pairs

        draw_pairs(verdict, plot)
    if json:
        console.print_json("pairs", {"inputs": question.inputs(), **_content(verdict)})
    else:
        cells = [_cells(matrix) for matrix in verdict.matrices]
        console.print_answer(
            verdict.headline, console.TextTable(HEADS, cells), rests_on=verdict.rests_on, notes=lines(verdict)
        )


def lines(verdict: PairsVerdict) -> list[str]:
    """Describe slow nodes and pairs, and the limits of these measurements."""
    together: dict[tuple[str, str], list[SlowPair]] = {}
    for pair in verdict.pairs:
        together.setdefault(pair.nodes, []).append(pair)
    sentences = [
        f"slow nodes: {len(verdict.nodes) or 'none'}",
        *(f"  {_node(node)}" for node in verdict.nodes),
        f"slow pairs of otherwise normal nodes: {len(together) or 'none'}",
        *(f"  {' and '.join(nodes)}: {'; '.join(map(_pair, slow))}" for nodes, slow in together.items()),
    ]
    if verdict.failed:
        sentences.append(f"{len(verdict.failed)} runs without a row; these pairs failed or were interrupted:")
        runs = (" and ".join(nodes) or f"nodes unknown, {file}" for nodes, file in verdict.failed)
        sentences += [f"  {one}" for one in dict.fromkeys(runs)]
    return [*sentences, *_indistinct(verdict)]


def _indistinct(verdict: PairsVerdict) -> list[str]:
    most = max(matrix.gpus_per_node for matrix in verdict.matrices)
    sentences = ["unknown:"]
    if verdict.indistinct:
        sentences.append(
            f"  nodes with too few partners: {', '.join(verdict.indistinct)}; measure more of their pairs"
        )
    if verdict.pairs:
        sentences.append("  whether a slow pair has a bad link or met other traffic; measure it again, alone")
    sentences.append(f"  defects common to all nodes, or visible only with more than {_gpus(most)}")
    return sentences


def _node(node: SlowNode) -> str:
    where = f"{node.worst.collective} of {format_size(node.worst.nbytes)}, {_gpus(node.worst.gpus_per_node)}"
    return (
        f"{node.node}: {node.factor:.2f}x, with all partners, {where}; in {node.matrices} of {node.of} rows"
    )


def _pair(pair: SlowPair) -> str:
    where = f"{pair.collective}, {_gpus(pair.gpus_per_node)}"
    return f"{where}: {pair.factor:.2f}x, in {pair.sizes} of {pair.of} sizes"


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count > 1)} per node"


def _cells(matrix: PairMatrix) -> tuple[console.Cell, ...]:
    node = int(np.argmax(matrix.effects))
    i, j = np.unravel_index(np.nanargmax(matrix.residuals), matrix.residuals.shape)
    return (
        *(matrix.collective, matrix.gpus_per_node, matrix.nbytes),
        *(matrix.nodes[node], _percent(matrix.effects[node])),
        *(f"{matrix.nodes[i]} {matrix.nodes[j]}", _percent(matrix.residuals[i, j])),
        *(matrix.median_s * 1e6, matrix.noise * 100, matrix.spread * 100, matrix.pairs, matrix.missing),
    )


def _percent(slower: float) -> float:
    return float(np.expm1(slower)) * 100


def _content(verdict: PairsVerdict) -> dict[str, Any]:
    return {
        "slow_nodes": [
            {"node": n.node, "factor": n.factor, "worst": _key(n.worst), "matrices": n.matrices, "of": n.of}
            for n in verdict.nodes
        ],
        "slow_pairs": [
            {
                "nodes": list(p.nodes), "collective": p.collective, "gpus_per_node": p.gpus_per_node,
                "factor": p.factor, "sizes": p.sizes, "of": p.of,
            }
            for p in verdict.pairs
        ],
        "untold": list(verdict.indistinct),
        "failed": [{"nodes": list(nodes), "file": file} for nodes, file in verdict.failed],
        "matrices": [
            {
                **_key(m), "pairs": m.pairs, "missing": m.missing, "median_s": m.median_s, "noise": m.noise,
                "spread": m.spread, "effects": dict(zip(m.nodes, _factors(m.effects), strict=True)),
            }
            for m in verdict.matrices
        ],
    }  # fmt: skip


def _key(matrix: PairMatrix) -> dict[str, Any]:
    return {
        "collective": matrix.collective,
        "gpus_per_node": matrix.gpus_per_node,
        "size_bytes": matrix.nbytes,
    }


def _factors(slower: Sequence[float] | np.ndarray[Any, Any]) -> list[float]:
    return [float(factor) for factor in np.exp(slower)]
