"""Floors of bus bandwidth: what a healthy machine exceeds, but for a stated rate of false alarms.

floor = expected / exp(SPREAD * z * sigma),    z: the normal quantile of 1 - false alarms

sigma is the row's uncertainty in log time, from the 80 % interval of its prediction, and at least
`LEAST_SIGMA`. A run is below its floors where most of its rows of `LARGE` or more are, or most of those of
`SMALL` or less. The rows of a run err together, so most of them decide, not the worst. Between the two sizes
NCCL changes algorithms and protocols, and its times are least certain: those rows decide nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log
from statistics import NormalDist, median

from ringside.sim.libraries.gaussian import EIGHTY
from ringside.sim.record import Record
from ringside.validation.compare import Compared

KIB, MIB = 1024, 1024**2
SMALL, LARGE = 64 * KIB, 16 * MIB

LEAST_SIGMA = 0.1
"""The least uncertainty: healthy runs of one site differ by as much from day to day."""

SPREAD = 0.8
"""The spread of the typical row of a healthy run, in the row's sigmas, so that floors hold for runs.

Of 109 published runs, each predicted without its site, 97 % lie within 1.5 sigmas, where a normal
distribution has 1.88 (`tests/validation/test_floors.py`).
"""


def slack(time_s: float, high_s: float, false_alarms: float) -> float:
    """Return the factor by which a healthy row may take longer than ``time_s``.

    ``high_s`` is the end of the time's 80 % interval, ``false_alarms`` a share above 0.
    """
    sigma = max(log(high_s / time_s) / EIGHTY, LEAST_SIGMA)
    return exp(SPREAD * NormalDist().inv_cdf(1 - false_alarms) * sigma)


@dataclass(frozen=True, slots=True)
class FlooredRow:
    """A measured row, and the floor of its bus bandwidth in bytes/s, None without an interval."""

    compared: Compared
    floor: float | None
    is_below: bool = field(init=False)

    def __post_init__(self) -> None:
        is_below = self.floor is not None and self.compared.record.busbw < self.floor
        object.__setattr__(self, "is_below", is_below)

    @property
    def decides(self) -> bool:
        """Whether the row counts in the verdict on its run."""
        nbytes = self.compared.record.nbytes
        return self.floor is not None and not SMALL < nbytes < LARGE


@dataclass(frozen=True, slots=True)
class RunVerdict:
    """The verdict on the rows of a run that decide; ``below`` is empty for a healthy run.

    ``below`` are the rows below their floors, of the sizes where most are; ``slower`` is how many times as
    long as expected they typically take.
    """

    rows: Sequence[FlooredRow]
    below: Sequence[FlooredRow]
    slower: float

    @property
    def record(self) -> Record:
        """A record of the run."""
        return self.rows[0].compared.record


def floored(compared: Sequence[Compared], false_alarms: float) -> list[FlooredRow]:
    """Return every row with its floor."""
    rows = []
    for one in compared:
        is_known = one.hi_s > one.predicted_s
        factor = slack(one.predicted_s, one.hi_s, false_alarms) if is_known else None
        rows.append(FlooredRow(one, one.predicted_busbw / factor if factor else None))
    return rows


def verdicts(rows: Sequence[FlooredRow]) -> list[RunVerdict]:
    """Judge each run by its rows that decide; runs without any are left out."""
    runs: dict[tuple[str | int, ...], list[FlooredRow]] = {}
    for row in rows:
        if row.decides:
            runs.setdefault(_run_of(row.compared.record), []).append(row)
    return [_verdict(of_run) for of_run in runs.values()]


def _run_of(record: Record) -> tuple[str | int, ...]:
    pins = record.algorithm, record.protocol, record.dtype, record.redop
    return (record.source, record.library, record.collective, record.num_nodes, record.ranks, *pins)


def _verdict(rows: Sequence[FlooredRow]) -> RunVerdict:
    below: list[FlooredRow] = []
    for part in (
        [row for row in rows if row.compared.record.nbytes >= LARGE],
        [row for row in rows if row.compared.record.nbytes <= SMALL],
    ):
        low = [row for row in part if row.is_below]
        below += low if 2 * len(low) > len(part) else []
    ratios = [row.compared.record.time_s / row.compared.predicted_s for row in below]
    return RunVerdict(rows, below, median(ratios) if ratios else 1.0)
