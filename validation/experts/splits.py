"""Rows that are fitted and rows that are judged: another GPU, more machines, a larger NVLink domain."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ringside.sim.libraries.experts.exchange import NOTHING, TimeBand, phase_band
from ringside.sim.libraries.experts.measured import CALLERS, ExpertModel
from ringside.sim.libraries.experts.tokens import PHASES
from ringside.validation.experts.fit import task_of
from ringside.validation.experts.model import LEAST_SPREAD, fit_model
from ringside.validation.published.experts import ExchangeRow, exchange_rows
from ringside.validation.published.experts.own import own_rows

IN_A_DOMAIN = ("nvlink", "nvlink_two_sided")
LARGE = 8
"""Ranks of the largest NVLink domain with rows."""


@dataclass(frozen=True)
class ExchangeSplit:
    """Rows to fit and rows to judge; ``sets`` says which are fitted."""

    name: str
    sets: str
    fitted: Sequence[ExchangeRow]
    judged: Sequence[ExchangeRow]
    growth: float = 0.0

    @cached_property
    def model(self) -> ExpertModel:
        """The model of the fitted rows alone."""
        return fit_model(self.fitted, self.growth)

    def band(self, row: ExchangeRow, phase: str) -> TimeBand:
        """Return the predicted time of a row's phase."""
        if phase == "prepare" and not row.prepare_us > 0:
            return NOTHING
        exchange, ports = task_of(row)
        return phase_band(self.model, row.mechanism, phase, exchange, ports, row.caller)

    def measured_phases(self, row: ExchangeRow) -> list[str]:
        """Return the phases of a row that were measured and that the model has."""
        if row.mechanism not in self.model.phases:
            return []
        if row.caller != CALLERS[0] and not self.model.call(row.caller, row.mechanism, PHASES[0]):
            return []
        return [
            phase
            for phase in ("prepare", *PHASES)
            if row.us(phase) > 0 and self.model.phase_of(row.mechanism, phase, row.exchange)
        ]


def splits(growth: float = 0.0) -> Iterator[ExchangeSplit]:
    """Yield every split of the published rows."""
    rows = exchange_rows()
    for machine in sorted({row.machine for row in rows}):
        yield ExchangeSplit(
            machine, "all other machines",
            [row for row in rows if row.machine != machine],
            [row for row in rows if row.machine == machine and row.machines == 1],
            growth,
        )  # fmt: skip
    yield ExchangeSplit(
        "two machines", "one machine; cards as expected",
        [row for row in rows if row.machines == 1], [row for row in rows if row.machines > 1], growth,
    )  # fmt: skip
    yield further(rows, own_rows(), growth)
    yield larger(rows, growth)


def further(rows: Sequence[ExchangeRow], own: Sequence[ExchangeRow], growth: float = 0.0) -> ExchangeSplit:
    """Return the split that judges DeepEP's own figures, of up to 32 machines, by all rows."""
    return ExchangeSplit("DeepEP's own", "one and two machines of other sites", rows, own, growth)


def larger(rows: Sequence[ExchangeRow], growth: float = 0.0) -> ExchangeSplit:
    """Return the split that judges the largest NVLink domain by smaller ones."""
    inside = [row for row in rows if row.mechanism in IN_A_DOMAIN]
    return ExchangeSplit(
        f"{LARGE} ranks in a domain", "2 and 4 ranks",
        [row for row in inside if row.ranks < LARGE], [row for row in inside if row.ranks >= LARGE], growth,
    )  # fmt: skip


def growth() -> float:
    """Return the error that a doubling of machines or ranks beyond the rows adds.

    The smallest that covers four of five rows beyond, and not less than runs of one kind differ.
    """
    rows, needed = exchange_rows(), []
    for split in (further(rows, own_rows()), larger(rows)):
        for row in split.judged:
            for phase in split.measured_phases(row):
                name = split.model.phase_of(row.mechanism, phase, row.exchange)
                fit, (_, ports) = split.model.phases[row.mechanism][name or phase], task_of(row)
                if doublings := fit.beyond(ports.nodes, ports.ranks):
                    off = np.log(split.band(row, phase).time_s * 1e6 / row.us(phase))
                    needed.append(np.sqrt(max(off**2 - fit.spread**2, 0.0)) / doublings)
    return max(float(np.percentile(needed, 80)), LEAST_SPREAD)
