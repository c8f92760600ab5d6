"""DeepEP's own figures, from bandwidths back to times: H800 on 1 to 32 machines.

github.com/deepseek-ai/DeepEP @ dd758caf4518, docs/legacy.md (MIT): H800 with NVLink of 160 and a network card
of 50 GB/s a GPU, 8 GPUs a machine; tokens of 7168 elements, 8 of 256 experts each, sent in 8 bits with a
scale for every 128 elements and returned in 16. What is printed is a token's bytes times the machines that it
goes to (GPUs on one machine; copies for the kernels of low latency), the own one included, over the time.
"""

import csv
from math import nan

from ringside.sim.libraries.experts.tokens import ExpertTokens
from ringside.validation.published.experts import HERE, ExchangeRow

GPUS = 8
"""GPUs of a machine."""

SMS = 24
"""Thread blocks of DeepEP's own benchmark of the normal kernels (tests/test_internode.py)."""


def own_rows() -> list[ExchangeRow]:
    """Return a row for each number of machines, with both phases."""
    both: dict[tuple[str, int, int], dict[str, float]] = {}
    with (HERE / "own.csv").open(encoding="utf-8", newline="") as lines:
        for row in csv.DictReader(lines):
            setting = row["mechanism"], int(row["machines"]), int(row["tokens"])
            both.setdefault(setting, {})[row["phase"]] = float(row["gb_per_s"])
    return [_row(*setting, rates) for setting, rates in both.items()]


def _row(mechanism: str, machines: int, tokens: int, rates: dict[str, float]) -> ExchangeRow:
    exchange = ExpertTokens(tokens=tokens, sms=SMS)
    ranks = machines * GPUS
    places = exchange.distinct(machines if machines > 1 else ranks, machines)
    counted = exchange.topk if mechanism == "deepep_ll" else places
    us = {
        phase: tokens * counted * exchange.nbytes(phase) / gb_per_s / 1e3 for phase, gb_per_s in rates.items()
    }
    return ExchangeRow(
        "own", "DeepEP", mechanism, "kernels", f"hgx-h800:{machines}", ranks, exchange, nan,
        us["dispatch"], us["combine"],
    )  # fmt: skip
