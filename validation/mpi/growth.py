"""How fast the band of MPI's model must grow per doubling beyond the measured nodes and tasks per node.

Every machine is fitted on its smaller node counts and judged on its larger ones, for every node count that
splits its rows. Published rows, algorithms forced by name.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ringside.sim.libraries.gaussian import EIGHTY
from ringside.sim.libraries.mpi.form import work_of
from ringside.sim.libraries.mpi.measured import PER_DOUBLING, Floats
from ringside.sim.record import Record
from ringside.validation.mpi.fit import MIN_ROWS, fit
from ringside.validation.mpi.observed import is_observable, observed

WITHIN = 0.8
"""The share of rows in a band."""

STEP = 0.01


@dataclass(frozen=True, slots=True)
class Growth:
    """A machine's required growth, from held-out rows.

    ``per_doubling`` is the least growth, in log time, whose band contains four of five rows; ``covered`` is
    the share of rows in the band of `PER_DOUBLING`.
    """

    machine: str
    rows: int
    per_doubling: float
    covered: float


def growth(records: Sequence[Record]) -> Iterator[Growth]:
    """Yield a line for every machine that was measured on several node counts."""
    forced = [record for record in records if is_observable(record) and record.algorithm != "auto"]
    for machine in sorted({record.cluster for record in forced}):
        rows = [record for record in forced if record.cluster == machine]
        splits = [_residuals(rows, most) for most in sorted({record.num_nodes for record in rows})[:-1]]
        off, known, beyond = (np.concatenate(column) for column in zip(*filter(None, splits), strict=True))

        def covered(each: float, off: Floats = off, known: Floats = known, beyond: Floats = beyond) -> float:
            return float(np.mean(off <= EIGHTY * np.sqrt(known**2 + (each * beyond) ** 2)))

        least = next(each for each in np.arange(0.0, 10.0, STEP) if covered(each) >= WITHIN)
        yield Growth(machine, len(off), float(least), covered(PER_DOUBLING))


def _residuals(rows: Sequence[Record], most: int) -> tuple[Floats, Floats, Floats] | None:
    """Return error in log time, deviation without growth, and doublings, of rows beyond ``most`` nodes."""
    fitted = [record for record in rows if record.num_nodes <= most]
    judged = [record for record in rows if record.num_nodes > most]
    if len(fitted) < MIN_ROWS:
        return None
    machine = rows[0].cluster
    model = fit(observed(fitted, machine, {}))
    work = work_of([row.task for row in observed(judged, machine, {})])
    mean, _ = model.log_us(work)
    known = np.hypot(model.correction.predict(work)[1], model.noise)
    return np.abs(np.log([record.time_s * 1e6 for record in judged]) - mean), known, model.beyond(work)
