"""Scale the calibration of a kind of machine to one site, by rows of a user's own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ringside.sim.calibration import Calibration, CalibrationError
from ringside.sim.collective import Collective
from ringside.sim.libraries.library import Candidate
from ringside.sim.libraries.nccl.cluster import as_measured
from ringside.sim.libraries.nccl.library import Calibrated, Nccl
from ringside.sim.libraries.nccl.measured.messages import Task
from ringside.sim.record import Record, RecordError, digest
from ringside.validation.fallback import as_run
from ringside.validation.measured.observed import choose, is_observable, observed


def anchored(
    calibration: Calibration, records: Sequence[Record], machine: str, values: Mapping[str, str]
) -> Calibration:
    """Scale the calibration by the site's own rows, in proportion to their similarity."""
    if calibration.nccl is None:
        raise CalibrationError(f"the calibration of {calibration.cluster} has nothing of NCCL to scale")
    own = [record for record in records if is_observable(record)]
    ran = as_run(own, machine, values)
    rows = observed(ran, machine, values)
    chosen = choose(rows, calibration.nccl.facts)
    if not chosen.tasks:
        raise RecordError("no row of the anchor is of a collective that NCCL's measured model has a form for")
    kept = [rows[place].record for place in chosen.kept]
    before = [_before(calibration, task, machine, values) for task in chosen.tasks]
    seconds = [record.time_s / ratio for record, (_, ratio) in zip(kept, before, strict=True)]
    written = dict(zip(map(digest, ran), map(digest, own), strict=True))
    return replace(
        calibration,
        nccl=calibration.nccl.anchored([task for task, _ in before], seconds),
        used=tuple(sorted({*calibration.used, *(written[digest(record)] for record in kept)})),
    )


def _before(
    calibration: Calibration, task: Task, machine: str, values: Mapping[str, str]
) -> tuple[Task, float]:
    """Return the task at the rates that were fitted, and how much longer it takes at the current ones."""
    assert calibration.nccl
    model = calibration.nccl.model
    before = as_measured(task.comm, machine, values, calibration.settings_on(machine))
    library = Nccl(task.comm, calibrated=Calibrated(model, machine), before=before)
    collective = Collective(task.kind, task.comm.ranks, task.nbytes, dtype="float32")
    return replace(task, comm=model.facts.on(before)), library.change(
        collective, Candidate(*task.pair)
    ) or 1.0
