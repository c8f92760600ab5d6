"""One row of a user's own site: a calibration of a kind of machine scaled to one that stands somewhere."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from sim.calibration import Calibration, CalibrationError
from sim.record import Record, RecordError, digest
from validation.fallback import as_run
from validation.measured.observed import choose, is_observable, observed


def anchored(
    calibration: Calibration, records: Sequence[Record], machine: str, values: Mapping[str, str]
) -> Calibration:
    """The calibration scaled by the site's own rows; what they say reaches as far as they are alike."""
    if calibration.nccl is None:
        raise CalibrationError(f"the calibration of {calibration.cluster} has nothing of NCCL to scale")
    own = [record for record in records if is_observable(record)]
    ran = as_run(own, machine, values)
    rows = observed(ran, machine, values)
    chosen = choose(rows, calibration.nccl.facts)
    if not chosen.tasks:
        raise RecordError("no row of the anchor is of a collective that NCCL's measured model has a form for")
    kept = [rows[place].record for place in chosen.kept]
    written = dict(zip(map(digest, ran), map(digest, own), strict=True))
    return replace(
        calibration,
        nccl=calibration.nccl.anchored(chosen.tasks, [record.time_s for record in kept]),
        used=tuple(sorted({*calibration.used, *(written[digest(record)] for record in kept)})),
    )
