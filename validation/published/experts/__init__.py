"""Published times of dispatch and combine; `README.md` names their source."""

import csv
from dataclasses import dataclass
from functools import cache
from math import nan
from pathlib import Path

from ringside.sim.libraries.experts.tokens import ExpertTokens
from ringside.topologies.catalogue import split

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class ExchangeRow:
    """One measured exchange; phases in microseconds, NaN where they were not measured.

    ``caller`` is one of `ringside.sim.libraries.experts.measured.CALLERS`. ``prepare_us`` are the kernels
    that run before both phases.
    """

    series: str
    software: str
    mechanism: str
    caller: str
    cluster: str
    ranks: int
    exchange: ExpertTokens
    prepare_us: float
    dispatch_us: float
    combine_us: float

    @property
    def machine(self) -> str:
        """The kind of machine."""
        return split(self.cluster)[0]

    @property
    def machines(self) -> int:
        """The number of machines."""
        return split(self.cluster)[1] or 1

    def us(self, name: str) -> float:
        """Return the time of ``prepare``, ``dispatch`` or ``combine``."""
        return {"prepare": self.prepare_us, "dispatch": self.dispatch_us, "combine": self.combine_us}[name]


@cache
def exchange_rows() -> tuple[ExchangeRow, ...]:
    """Return all rows, in the files' order."""
    with (HERE / "series.csv").open(encoding="utf-8", newline="") as lines:
        series = {one["series"]: one for one in csv.DictReader(lines)}
    with (HERE / "rows.csv").open(encoding="utf-8", newline="") as lines:
        return tuple(_row(series[one["series"]], one) for one in csv.DictReader(lines))


def _row(series: dict[str, str], row: dict[str, str]) -> ExchangeRow:
    sms = {"sms": int(row["sms"])} if row["sms"] else {}
    limits = {name: int(series[name]) for name in ("groups", "topk_groups") if series[name]}
    exchange = ExpertTokens(
        tokens=int(row["tokens"]), hidden=int(series["hidden"]), topk=int(series["topk"]),
        experts=int(series["experts"]), dispatch_dtype=series["dispatch_dtype"],
        combine_dtype=series["combine_dtype"], routing=series["routing"], **sms, **limits,
    )  # fmt: skip
    return ExchangeRow(
        series["series"], series["software"], series["mechanism"], series["caller"], series["cluster"],
        int(series["ranks"]), exchange, *(float(row[f"{name}_us"] or nan) for name in _NAMES),
    )  # fmt: skip


_NAMES = ("prepare", "dispatch", "combine")
