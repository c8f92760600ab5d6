"""Measured rates of products and attention: shipped grids of GPUs, and files of one's own.

The shipped grids are thinned tables of aiconfigurator-core 0.12.0, made by
``python -m ringside.validation.published.grids``; `rates/README.md` says what is in them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, PositiveFloat, PositiveInt, TypeAdapter

from ringside.sim.compute.interpolation import Grid, Points
from ringside.sim.record import COMPUTE_SCHEMA, read_steps
from ringside.topologies.names import one_of

FOLDER = Path(__file__).parent / "rates"
"""The shipped grids: ``products/GPU.csv`` and ``attention/GPU.csv``; ``torch/GPU.json`` is PyTorch's own."""

Precision = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "fp8_block", "mxfp8", "nvfp4"]
"""The type of a product's factors."""

SAME_CHIP = {"a100-40gb": "a100", "h100-96gb": "h100", "h800": "h100"}
"""GPUs whose multiprocessors and peaks are those of a measured one; only memory or NVLink differ."""

SAME_CORES = {**SAME_CHIP, "h200": "h100"}
"""GPUs that compute as a measured one; memory may differ."""

SAME_RATE = {"fp16": "bf16", "mxfp8": "fp8"}
"""Precisions that tensor cores compute as fast as another."""


@dataclass(frozen=True, slots=True)
class ProductRates:
    """Rates of matrix products."""

    figures: Grid | Points

    def flops_per_s(self, m: int, n: int, k: int) -> float:
        """Return the FLOP/s of a product of m x k by k x n elements, a multiply-add as two."""
        return self.figures.at(m, n, k)


@dataclass(frozen=True, slots=True)
class GroupedRates:
    """Rates of several products in one launch, as a mixture of experts has them."""

    figures: Points

    def flops_per_s(self, count: int, m: int, n: int, k: int) -> float:
        """Return the FLOP/s of ``count`` products of m x k by k x n elements together."""
        return self.figures.at(count, m, n, k)


@dataclass(frozen=True, slots=True)
class AttentionRates:
    """Rates of causal flash attention, forward."""

    figures: Grid | Points

    def flops_per_s(self, heads: int, sequence: int, head_dim: int) -> float:
        """Return the FLOP/s on the half square that is computed, of the heads of all sequences together."""
        return self.figures.at(heads, sequence, head_dim)


def product_rates(gpu: str, precision: str) -> ProductRates | None:
    """Return the shipped rates of a GPU's products in a precision; None where it was not measured."""
    grid = _grid("products", gpu, SAME_RATE.get(precision, precision))
    if grid is not None:
        return ProductRates(grid)
    own = torch_rates(gpu)
    return None if own is None else own.products.get(precision)


def attention_rates(gpu: str) -> AttentionRates | None:
    """Return the shipped rates of a GPU's attention in 16 bits; None where it was not measured.

    A100 was measured with heads of 128 only, and has their rates for all.
    """
    grid = _grid("attention", gpu, "bf16")
    return None if grid is None else AttentionRates(grid)


@cache
def torch_rates(gpu: str) -> "Rates | None":
    """Return the rates that ``ringside measure compute`` measured on a GPU; None where none are shipped."""
    path = FOLDER / "torch" / f"{SAME_CORES.get(gpu, gpu)}.json"
    return read_rates(path) if path.exists() else None


@cache
def _grid(kind: str, gpu: str, precision: str) -> Grid | None:
    """Return a shipped grid: a line has precision, two sizes, and TFLOP/s for each size of the header."""
    path = FOLDER / kind / f"{SAME_CHIP.get(gpu, gpu)}.csv"
    if not path.exists():
        return None
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split(",")[1:] for line in lines if line.startswith(f"{precision},")]
    if not rows:
        return None
    outer, inner = (tuple(dict.fromkeys(int(row[place]) for row in rows)) for place in (0, 1))
    figures = tuple(float(figure) * 1e12 for row in rows for figure in row[2:])
    return Grid((outer, inner, tuple(map(int, header.split(",")[3:]))), figures)


ProductPoint = tuple[PositiveInt, PositiveInt, PositiveInt, PositiveFloat]
GroupedPoint = tuple[PositiveInt, PositiveInt, PositiveInt, PositiveInt, PositiveFloat]
AttentionPoint = tuple[PositiveInt, PositiveInt, PositiveInt, PositiveFloat]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesFile:
    """A file of measured rates: points with their sizes and FLOP/s, and where they are from.

    ``products`` have m, n, k and FLOP/s, ``grouped`` ones their count before that, ``attention`` heads of all
    sequences, sequence, head size and FLOP/s on the half square. ``streaming`` are bytes/s read and written,
    ``launch_s`` the seconds of a kernel that moves memory besides its bytes.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", allow_inf_nan=False)

    device: str
    source: str
    date: str
    products: Annotated[
        dict[Precision, Annotated[tuple[ProductPoint, ...], Field(min_length=1)]], Field(min_length=1)
    ]
    grouped: dict[Precision, Annotated[tuple[GroupedPoint, ...], Field(min_length=1)]] = field(
        default_factory=dict
    )
    attention: tuple[AttentionPoint, ...] = ()
    streaming: PositiveFloat | None = None
    launch_s: PositiveFloat | None = None
    fingerprint: dict[str, str] = field(default_factory=dict)

    def dumps(self) -> str:
        """Return the file's text, JSON."""
        return json.dumps({"schema": COMPUTE_SCHEMA, **asdict(self)}) + "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Measured rates of one device, by precision; fields are those of `RatesFile`."""

    device: str
    products: Mapping[str, ProductRates]
    grouped: Mapping[str, GroupedRates]
    attention: AttentionRates | None
    streaming: float | None
    launch_s: float | None = None

    def name_of(self, precision: str) -> str:
        """Return the precision whose rates are those of products in ``precision``; raise ValueError else."""
        names = precision, SAME_RATE.get(precision, precision)
        known = next((name for name in names if name in self.products), None)
        if known is None:
            raise ValueError(
                f"the rates of {self.device} have no products in {precision}; write `precision` "
                f"{one_of(self.products, precision)}"
            )
        return known


def read_rates(path: Path) -> Rates:
    """Read a file of measured rates; raise ValueError with everything that is wrong with it."""
    file = read_steps(path, COMPUTE_SCHEMA, TypeAdapter(RatesFile), "ringside measure compute")
    return Rates(
        device=file.device,
        products={name: ProductRates(_points(points)) for name, points in file.products.items()},
        grouped={name: GroupedRates(_points(points)) for name, points in file.grouped.items()},
        attention=AttentionRates(_points(file.attention)) if file.attention else None,
        streaming=file.streaming,
        launch_s=file.launch_s,
    )


def _points(points: Sequence[tuple[Any, ...]]) -> Points:
    return Points([tuple(sizes) for *sizes, _ in points], [rate for *_, rate in points])
