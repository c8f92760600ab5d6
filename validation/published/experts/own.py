"""DeepEP's own figures, from bandwidths back to times: H800 on 1 to 32 machines.

`ringside.validation.published.training.deepep` has their source. What is printed is a token's bytes times the
machines that it goes to (GPUs on one machine; copies for the kernels of low latency), the own one included,
over the time.
"""

from math import nan

from ringside.sim.libraries.experts.tokens import ExpertTokens
from ringside.validation.published.experts import ExchangeRow
from ringside.validation.published.training.deepep import EXPERTS, GPUS, ExchangeRate, rows

MECHANISM = {"normal": "deepep", "low latency": "deepep_ll"}

SMS = 24
"""Thread blocks of DeepEP's own benchmark of the normal kernels (tests/test_internode.py)."""


def own_rows() -> list[ExchangeRow]:
    """Return a row for each number of machines, with both phases."""
    both: dict[tuple[str, int], dict[str, ExchangeRate]] = {}
    for rate in rows():
        if rate.part in MECHANISM:
            both.setdefault((rate.part, rate.machines), {})[rate.op] = rate
    return [_row(part, machines, rates) for (part, machines), rates in both.items()]


def _row(part: str, machines: int, rates: dict[str, ExchangeRate]) -> ExchangeRow:
    one = rates["dispatch"]
    exchange = ExpertTokens(tokens=one.tokens, experts=EXPERTS, sms=SMS)
    ranks = machines * GPUS
    places = exchange.distinct(machines if machines > 1 else ranks, machines)
    counted = exchange.topk if part == "low latency" else places
    us = {
        phase: one.tokens * counted * exchange.nbytes(phase) / rate.gb_per_s / 1e3
        for phase, rate in rates.items()
    }
    return ExchangeRow(
        "own", "DeepEP", MECHANISM[part], "kernels", f"hgx-h800:{machines}", ranks, exchange, nan,
        us["dispatch"], us["combine"],
    )  # fmt: skip
