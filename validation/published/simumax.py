"""Measured rates of a machine from its system file of SimuMax, for ``--products``.

``python -m ringside.validation.published.simumax SYSTEM.json RATES.json`` converts the shares of the peaks
that SimuMax (github.com/MooreThreads/SimuMax, Apache-2.0) measured by shape. A shape that was measured in
several layouts gets their mean. Products that add to float32 results count with the rate of plain ones, of
which Ringside takes `ringside.sim.compute.prices.ACCUMULATED`.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from ringside.sim.compute.grids import RatesFile
from ringside.sim.compute.prices import ACCUMULATED
from ringside.topologies.disk import regular, write_file

TYPES = {"bf16": "", "fp8": "fp8_"}
"""The beginning of an operation's name, by precision."""

GROUPED = {"fwd": "MNK", "bwd_grad_act": "MKN", "bwd_grad_w": "NKM"}
"""The letters that are m, n and k of a grouped product, by pass."""

Shape = Mapping[str, str]
"""Letters and what a case has for them: ``{"m": "4096", "layout": "TN", ...}``."""


def product(shape: Shape) -> tuple[int, ...]:
    """Return m, n and k."""
    return int(shape["m"]), int(shape["n"]), int(shape["k"])


def grouped(shape: Shape) -> tuple[int, ...]:
    """Return the count of products in one launch, m, n and k of each."""
    return int(shape["ng"]), *(int(shape[letter]) for letter in GROUPED[shape["stage"]])


def attention(shape: Shape) -> tuple[int, ...]:
    """Return the heads of all sequences, the sequence, and the mean size of a query's and a value's head."""
    sizes = int(shape["qk_head_dim"]) + int(shape["v_head_dim"])
    return int(shape["batch"]) * int(shape["head_num"]), int(shape["seq_len"]), sizes // 2


def points(operation: Mapping[str, Any], sizes: Callable[[Shape], tuple[int, ...]], share: float = 1) -> Any:
    """Return the points of an operation's cases: sizes and FLOP/s, a ``share`` of what the file counts."""
    rates: dict[tuple[int, ...], list[float]] = {}
    for case, efficiency in operation["accurate_efficient_factor"].items():
        shape = dict(re.findall(r"(\w+)=(\w+)", case))
        plain = efficiency / ACCUMULATED if shape.get("accumulate") == "True" else efficiency
        rates.setdefault(sizes(shape), []).append(plain * share * operation["tflops"] * 1e12)
    return tuple((*one, fmean(several)) for one, several in rates.items())


def tables(operations: Mapping[str, Any], name: str, sizes: Callable[[Shape], tuple[int, ...]]) -> Any:
    """Return the points of an operation for each precision in which it was measured."""
    cases = {precision: operations.get(f"{begin}{name}", {}) for precision, begin in TYPES.items()}
    return {
        precision: points(operation, sizes)
        for precision, operation in cases.items()
        if operation.get("accurate_efficient_factor")
    }


def converted(path: Path) -> RatesFile:
    """Return the rates of a system file; raise ValueError for any other file."""
    try:
        system = json.loads(regular(path).read_text(encoding="utf-8"))
        operations, stream = system["accelerator"]["op"], system["accelerator"]["bandwidth"]["default"]
        return RatesFile(
            device=system["sys_name"],
            source=f"{path.name} of SimuMax (github.com/MooreThreads/SimuMax, Apache-2.0)",
            date="",
            products=tables(operations, "matmul", product),
            grouped=tables(operations, "group_matmul", grouped),
            attention=points(operations["sdp_fwd"], attention, 0.5),  # it counts the whole square
            streaming=stream["gbps"] * 1e9 * stream["efficient_factor"],
            launch_s=stream["latency_us"] * 1e-6,
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{path}: no system file of SimuMax: {error!r}; write one with accelerator.op and its measured "
            "efficiencies (accurate_efficient_factor)"
        ) from None


def main(arguments: list[str]) -> None:
    """Write the rates of a system file; end with a message for any other file."""
    if len(arguments) != 2:
        sys.exit("write two files: SYSTEM.json, which is read, and RATES.json, which is written")
    try:
        write_file(Path(arguments[1]), converted(Path(arguments[0])).dumps())
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1:])
