"""One row of a user's own site: a calibration of a kind of machine scaled to one that stands somewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sim.calibration import Calibration, CalibrationError
from sim.record import Record, RecordError, digest
from validation.measured.observed import choose, is_observable, observed


def anchored(
    calibration: Calibration, records: Sequence[Record], machine: str, values: Mapping[str, str]
) -> Calibration:
    """The calibration scaled by the site's own rows; what they say reaches as far as they are alike."""
    if calibration.nccl is None:
        raise CalibrationError(f"the calibration of {calibration.cluster} has nothing of NCCL to scale")
    rows = observed([record for record in records if is_observable(record)], machine, values)
    chosen = choose(rows, calibration.nccl.facts)
    if not chosen.tasks:
        raise RecordError("no row of the anchor is of a collective that NCCL's measured model has a form for")
    used = [rows[place].record for place in chosen.kept]
    return replace(
        calibration,
        nccl=calibration.nccl.anchored(chosen.tasks, [record.time_s for record in used]),
        used=tuple(sorted({*calibration.used, *map(digest, used)})),
    )
