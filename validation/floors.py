"""Floors of bus bandwidth: what a healthy machine exceeds, but for a stated rate of false alarms.

floor = expected / exp(SPREAD * z * sigma),    z: the normal quantile of 1 - false alarms

sigma is the row's uncertainty in log time, from the 80 % interval of its prediction, and at least
`LEAST_SIGMA`. Of a row that a healthy log of the same site has too, the time there is what is expected, and
sigma is `LEAST_SIGMA`.

A run is below its floors where most of its rows of `LARGE` or more are, or most of those of `SMALL` or less.
The rows of a run err together, so most of them decide, not the worst. Between the two sizes NCCL changes
algorithms and protocols, and its times are least certain: those rows decide nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import NormalDist, median
from types import MappingProxyType

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


Own = Mapping[tuple[str | int, ...], float]
"""Seconds of rows of the same site, healthy: see `own_times`."""


def slack(time_s: float, high_s: float, false_alarms: float) -> float:
    """Return the factor by which a healthy row may take longer than ``time_s``.

    ``high_s`` is the end of the time's 80 % interval, ``false_alarms`` a share above 0.
    """
    sigma = max(log(high_s / time_s) / EIGHTY, LEAST_SIGMA)
    return exp(SPREAD * NormalDist().inv_cdf(1 - false_alarms) * sigma)


def own_times(records: Sequence[Record]) -> Own:
    """Return the median time of each kind of row of a healthy log."""
    times: dict[tuple[str | int, ...], list[float]] = {}
    for record in records:
        times.setdefault(_kind_of(record), []).append(record.time_s)
    return {kind: median(of_kind) for kind, of_kind in times.items()}


@dataclass(frozen=True, slots=True)
class FlooredRow:
    """A measured row, the time that is expected, and the factor by which a healthy one may exceed it.

    The factor is None where no interval is known. Bandwidths are of the bus, in bytes/s.
    """

    record: Record
    expected_s: float
    slack: float | None

    @property
    def expected(self) -> float:
        """The bandwidth of the expected time."""
        return self.record.busbw * self.record.time_s / self.expected_s

    @property
    def floor(self) -> float | None:
        """The least bandwidth of a healthy row, None where no interval is known."""
        return self.expected / self.slack if self.slack else None

    @property
    def is_below(self) -> bool:
        """Whether the row takes longer than a healthy one."""
        return self.slack is not None and self.record.time_s > self.expected_s * self.slack

    @property
    def decides(self) -> bool:
        """Whether the row counts in the verdict on its run."""
        return self.slack is not None and not SMALL < self.record.nbytes < LARGE


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
        return self.rows[0].record


def floored(
    compared: Sequence[Compared], false_alarms: float, own: Own = MappingProxyType({})
) -> list[FlooredRow]:
    """Return every row with its floor; ``own`` are times of a healthy log of the same site."""
    rows = []
    for one in compared:
        time_s, high_s = one.predicted_s, one.hi_s
        if known := own.get(_kind_of(one.record)):
            rows.append(FlooredRow(one.record, known, slack(known, known, false_alarms)))
        elif high_s > time_s:
            rows.append(FlooredRow(one.record, time_s, slack(time_s, high_s, false_alarms)))
        else:
            rows.append(FlooredRow(one.record, time_s, None))
    return rows


def verdicts(rows: Sequence[FlooredRow]) -> list[RunVerdict]:
    """Judge each run by its rows that decide; runs without any are left out."""
    runs: dict[tuple[str | int, ...], list[FlooredRow]] = {}
    for row in rows:
        if row.decides:
            runs.setdefault((row.record.source, *_kind_of(row.record)[1:]), []).append(row)
    return [_verdict(of_run) for of_run in runs.values()]


def _kind_of(record: Record) -> tuple[str | int, ...]:
    """Return what a row has in common with its repetitions, its size first."""
    pins = record.algorithm, record.protocol, record.dtype, record.redop
    return (record.nbytes, record.library, record.collective, record.num_nodes, record.ranks, *pins)


def _verdict(rows: Sequence[FlooredRow]) -> RunVerdict:
    below: list[FlooredRow] = []
    for part in (
        [row for row in rows if row.record.nbytes >= LARGE],
        [row for row in rows if row.record.nbytes <= SMALL],
    ):
        low = [row for row in part if row.is_below]
        below += low if 2 * len(low) > len(part) else []
    ratios = [row.record.time_s / row.expected_s for row in below]
    return RunVerdict(rows, below, median(ratios) if ratios else 1.0)
