"""Fit the kernels of each phase to measured exchanges: least squares in log time, with priors.

Every kind and number of machines has the same weight, however many rows it has. Few figures of a kernel are
free of physics; where no row tells one, its prior remains.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from math import exp, log

import numpy as np
from scipy.optimize import least_squares

from ringside.sim.libraries.experts.kernels import EXPECTED, KernelPrior, Values
from ringside.sim.libraries.experts.measured import CallFit
from ringside.sim.libraries.experts.mechanisms import MECHANISMS
from ringside.sim.libraries.experts.ports import ExpertPorts, ports_of
from ringside.sim.libraries.experts.work import Floats, PhaseWork, Task, work_of
from ringside.sim.libraries.find import find_library
from ringside.validation.published.experts import ExchangeRow

ROW, ROWS_EACH = 0.1, 30
"""Error of a row in log time, and the number of independent rows that each number of machines counts for."""

CALL = {"arm": (1.5, 0.4), "factor": (1.5, 0.5), "blackwell": (1.2, 0.3)}
"""Priors of the factors of a framework's call, and their deviations in log."""

_ROBUST = 1.0


@cache
def ports(cluster: str, ranks: int) -> ExpertPorts:
    """Return the ports of a named cluster's ranks."""
    return ports_of(find_library("nccl", cluster, ranks=ranks))


def task_of(row: ExchangeRow) -> Task:
    """Return a row's exchange on its ports."""
    return row.exchange, ports(row.cluster, row.ranks)


@dataclass(frozen=True, eq=False)
class PhaseRows:
    """Rows of one mechanism that measured one phase."""

    mechanism: str
    phase: str
    rows: Sequence[ExchangeRow]

    @classmethod
    def of(cls, rows: Sequence[ExchangeRow], mechanism: str, phase: str) -> "PhaseRows":
        """Select the rows of the kernels alone that ran this phase."""
        name = phase.split()[0]
        made = MECHANISMS[mechanism]
        return cls(mechanism, phase, [
            row for row in rows
            if (row.mechanism, row.caller) == (mechanism, "kernels") and row.us(name) > 0
            and made.phase(name, row.exchange) == phase
        ])  # fmt: skip

    @cached_property
    def work(self) -> PhaseWork:
        """The phase of all rows as arrays."""
        return work_of([task_of(row) for row in self.rows], self.phase.split()[0])

    @cached_property
    def us(self) -> Floats:
        """The measured times."""
        name = self.phase.split()[0]
        return np.array([row.us(name) for row in self.rows])

    @cached_property
    def weights(self) -> Floats:
        """The weight of each row: those of one number of one kind of machines count as `ROWS_EACH`."""
        counts = Counter(row.cluster for row in self.rows)
        shares = np.array([min(ROWS_EACH / counts[row.cluster], 1.0) for row in self.rows])
        weights: Floats = np.sqrt(shares) / ROW
        return weights

    def parted(self, place: str | int) -> tuple["PhaseRows", "PhaseRows"]:
        """Return the rows of a machine by name, or of a number of ranks, and all others."""
        inside = [row for row in self.rows if place in (row.machine, row.ranks)]
        others = [row for row in self.rows if place not in (row.machine, row.ranks)]
        return self._of(inside), self._of(others)

    def _of(self, rows: Sequence[ExchangeRow]) -> "PhaseRows":
        return PhaseRows(self.mechanism, self.phase, rows)

    def predicted(self, values: Values) -> Floats:
        """Return the times with these values."""
        return MECHANISMS[self.mechanism].phases[self.phase](self.work, values)


def fit_phase(rows: PhaseRows) -> dict[str, float]:
    """Return the values of a phase's kernels; the priors themselves without rows."""
    expected = EXPECTED[MECHANISMS[rows.mechanism].phases[rows.phase]]
    start = np.array([_free(one, one.value) for one in expected.values()])
    if not rows.rows:
        return {name: one.value for name, one in expected.items()}
    sigmas = np.array([one.sigma for one in expected.values()])

    def left(free: Floats) -> Floats:
        off = rows.weights * np.log(rows.predicted(_values(expected, free)) / rows.us)
        return np.concatenate([off, (free - start) / sigmas])

    solved = least_squares(left, start, loss="soft_l1", f_scale=_ROBUST)
    return _values(expected, solved.x)


def fit_call(kernels: Floats, rows: Sequence[ExchangeRow], phase: str) -> CallFit:
    """Fit what a framework's calls add to these kernels; ``spread`` is that of the fitted rows."""
    where = [ports(row.cluster, row.ranks) for row in rows]
    measured = np.array([row.us(phase) for row in rows])
    start = np.log([float(measured.min()), *(value for value, _ in CALL.values())])
    sigmas = np.array([2.0, *(sigma for _, sigma in CALL.values())])

    def made(free: Floats, spread: float = 0.0) -> CallFit:
        host_us, arm, factor, blackwell = map(float, np.exp(free))
        return CallFit(host_us, arm, factor, blackwell, spread)

    def off(free: Floats) -> Floats:
        errors: Floats = np.log(made(free).us(kernels, where) / measured)
        return errors

    weight = np.sqrt(min(ROWS_EACH / len(rows), 1.0)) / ROW

    def left(free: Floats) -> Floats:
        return np.concatenate([weight * off(free), (free - start) / sigmas])

    solved = least_squares(left, start, loss="soft_l1", f_scale=_ROBUST)
    return made(solved.x, spread_of(off(solved.x)))


def spread_of(errors: Floats, weights: Floats | None = None) -> float:
    """Return the size of logarithmic errors that four of five do not exceed."""
    sizes, weights = np.abs(errors), np.ones(len(errors)) if weights is None else weights
    order = np.argsort(sizes)
    covered = np.cumsum(weights[order]) / weights.sum()
    return float(sizes[order][np.searchsorted(covered, 0.8)])


def _free(one: KernelPrior, value: float) -> float:
    return log(value / (1 - value)) if one.is_share else log(value)


def _values(expected: dict[str, KernelPrior], free: Floats) -> dict[str, float]:
    return {
        name: 1 / (1 + exp(-one)) if prior.is_share else exp(one)
        for (name, prior), one in zip(expected.items(), map(float, free), strict=True)
    }
