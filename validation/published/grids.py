"""The shipped grids of products and attention, from aiconfigurator-core's tables.

``python -m ringside.validation.published.grids FOLDER`` writes them from the tables in a folder, and prints
the median errors that thinning makes: at other multiples of a tile's 128 rows, and at all other values of m.
The tables are Apache-2.0 (github.com/ai-dynamo/aiconfigurator): ``systems/data`` of the wheel
aiconfigurator-core 0.12.0, or files whose names join its folders by underscores. A figure is the time of the
faster of two runtimes, as training's libraries choose among many kernels. Attention is TensorRT-LLM's, which
fits training better than vLLM's.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ringside.sim.compute.grids import FOLDER, product_rates
from ringside.sim.compute.waves import TILE
from ringside.topologies.disk import write_file


class MeasuredSystem(NamedTuple):
    """A GPU's system in the tables, with the runtime and version of each table."""

    name: str
    runtimes: tuple[str, ...] = ("trtllm/1.3.0rc20", "vllm/0.24.0")


SYSTEMS = {
    "a100": MeasuredSystem("a100_sxm", ("trtllm/1.0.0", "vllm/0.14.0")),
    "h100": MeasuredSystem("h100_sxm"),
    "h200": MeasuredSystem("h200_sxm"),
    "b200": MeasuredSystem("b200_sxm"),
    "b300": MeasuredSystem("b300_sxm"),
    "gb200": MeasuredSystem("gb200"),
    "rtxpro6000": MeasuredSystem("rtx_pro_6000_server"),
}
"""The systems by GPU."""

PRECISIONS = {"bf16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
"""The tables' names of precisions."""

ROWS = (128, 256, 512, 1024, 2048, 3072, 4096, 8192, 16384, 32768)
"""Values of m that grids keep, of 74."""

NARROWEST = 128
"""The smallest n and k that grids keep."""

HEADS = tuple(2**power for power in range(13))
SEQUENCES = (128, 256, 512, 1024, 2048, 4096, 8192, 16384)
HEAD_DIMS = (64, 128)
"""Attention that grids keep: heads of all sequences, sequences, sizes of heads."""

GEMM = ("gemm_dtype", "m", "n", "k", "latency")
ATTENTION = (
    *("batch_size", "num_heads", "isl", "head_dim", "latency"),
    *("attn_dtype", "kv_cache_dtype", "window_size", "step"),
)
"""Columns of the tables; ``latency`` is in milliseconds."""

Sizes = tuple[int, int, int]
Table = Mapping[Sizes, float]
"""FLOP/s by sizes: m, n, k of products; heads, sequence and head size of attention."""


def product_table(runtimes: Iterable[Table]) -> Table:
    """Return the rates of the faster runtime, from milliseconds of each by m, n, k."""
    times: dict[Sizes, float] = {}
    for table in runtimes:
        for sizes, milliseconds in table.items():
            times[sizes] = min(milliseconds, times.get(sizes, milliseconds))
    return {
        (m, n, k): 2e3 * m * n * k / milliseconds
        for (m, n, k), milliseconds in times.items()
        if n >= NARROWEST and k >= NARROWEST
    }


def attention_table(rows: Iterable[tuple[Sizes, float]]) -> Table:
    """Return the median rates, over numbers of key-value heads and batches, from sizes and milliseconds."""
    rates: dict[Sizes, list[float]] = {}
    for (heads, sequence, head_dim), milliseconds in rows:
        flops = 2.0 * heads * sequence**2 * head_dim
        rates.setdefault((heads, sequence, head_dim), []).append(flops * 1e3 / milliseconds)
    return {sizes: median(several) for sizes, several in rates.items()}


def kept(table: Table, *sizes: Iterable[int]) -> tuple[list[int], ...]:
    """Return the sizes of each axis that the table has and a grid keeps."""
    return tuple(
        sorted({one[place] for one in table}.intersection(allowed)) for place, allowed in enumerate(sizes)
    )


def lines(precision: str, table: Table, axes: Sequence[Sequence[int]]) -> Iterator[str]:
    """Return a grid's lines: precision, two sizes, and TFLOP/s to three digits for each of the third.

    What was too large to be measured has the figure of the next smaller first size, or second one.
    """
    figures: dict[Sizes, float] = {}
    before = [dict(zip(axis[1:], axis, strict=False)) for axis in axes]
    for first, second in product(*axes[:2]):
        for third in axes[2]:
            smaller = (before[0].get(first, 0), second, third), (first, before[1].get(second, 0), third)
            known = (table.get((first, second, third)), *map(figures.get, smaller))
            figures[first, second, third] = next(rate for rate in known if rate)
        rounded = (f"{float(f'{figures[first, second, third] / 1e12:.3g}'):g}" for third in axes[2])
        yield ",".join((precision, str(first), str(second), *rounded))


def text(names: tuple[str, str], grids: Mapping[str, tuple[Table, tuple[Sequence[int], ...]]]) -> str:
    """Return a file of grids by precision, all with the same sizes of the third axis."""
    (thirds,) = {tuple(axes[2]) for _, axes in grids.values()}
    rows = [line for precision, (table, axes) in grids.items() for line in lines(precision, table, axes)]
    return "\n".join((",".join(("precision", *names, *map(str, thirds))), *rows, ""))


def read(folder: Path, system: str, operation: str, runtime: str, table: str, columns: Sequence[str]) -> Any:
    """Return the columns of a table as tuples, row by row."""
    from pyarrow import parquet

    parts = (system, operation, *runtime.split("/"), f"{table}_perf.parquet")
    path = next((one for one in (folder.joinpath(*parts), folder / "_".join(parts)) if one.exists()), None)
    if path is None:
        raise ValueError(
            f"{folder} has no {'/'.join(parts)}; write the folder systems/data of aiconfigurator"
        )
    values = parquet.read_table(path, columns=list(columns)).to_pydict()
    return zip(*(values[column] for column in columns), strict=True)


def products(folder: Path, system: MeasuredSystem) -> dict[str, Table]:
    """Return a system's rates of products by precision."""
    tables: dict[str, list[dict[Sizes, float]]] = {}
    for runtime in system.runtimes:
        own: dict[str, dict[Sizes, float]] = {}
        for kind, m, n, k, milliseconds in read(folder, system.name, "gemm", runtime, "gemm", GEMM):
            own.setdefault(kind, {})[m, n, k] = milliseconds
        for precision, kind in PRECISIONS.items():
            if kind in own:
                tables.setdefault(precision, []).append(own[kind])
    return {precision: product_table(several) for precision, several in tables.items()}


def attention(folder: Path, system: MeasuredSystem) -> Table:
    """Return a system's rates of causal attention in bfloat16, without a window or a prefix."""
    rows = read(folder, system.name, "attention", system.runtimes[0], "context_attention", ATTENTION)
    return attention_table(
        ((batch * heads, sequence, head_dim), milliseconds)
        for batch, heads, sequence, head_dim, milliseconds, *others in rows
        if tuple(others) == ("bfloat16", "bfloat16", 0, 0)
    )


def thinned(gpu: str, precision: str, table: Table) -> list[float]:
    """Return the median errors of a grid at other values of m: multiples of a tile's rows, and all others."""
    grid = product_rates(gpu, precision)
    assert grid
    errors: dict[bool, list[float]] = {True: [], False: []}
    for (m, n, k), rate in table.items():
        if m > ROWS[0] and m not in ROWS:
            errors[m % TILE == 0].append(abs(grid.flops_per_s(m, n, k) / rate - 1))
    return [median(several) for several in errors.values()]


def main(folder: Path) -> None:
    """Write the grids of all systems, and print the errors that thinning makes."""
    print(f"{'gpu':11}{'precision':10}{'figures':>16}{'whole':>7}{'others':>7}")
    for gpu, system in SYSTEMS.items():
        tables = products(folder, system)
        sizes = range(NARROWEST, 2**20)
        grids = {precision: (table, kept(table, ROWS, sizes, sizes)) for precision, table in tables.items()}
        write_file(FOLDER / "products" / f"{gpu}.csv", text(("m", "n"), grids))
        table = attention(folder, system)
        axes = kept(table, HEADS, SEQUENCES, HEAD_DIMS)
        write_file(FOLDER / "attention" / f"{gpu}.csv", text(("heads", "sequence"), {"bf16": (table, axes)}))
        for precision, all_sizes in tables.items():
            count = prod(map(len, grids[precision][1]))
            whole, others = thinned(gpu, precision, all_sizes)
            print(f"{gpu:11}{precision:10}{count:6} of {len(all_sizes):6}{whole:7.1%}{others:7.1%}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("write the folder systems/data of aiconfigurator-core")
    main(Path(sys.argv[1]))
