"""Scale the calibration of a kind of machine to one site, by rows of a user's own."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ringside.sim.calibration import Calibration, CalibrationError
from ringside.sim.collective import Collective
from ringside.sim.libraries.library import Candidate
from ringside.sim.libraries.nccl.cluster import as_measured
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.library import Calibrated, Nccl
from ringside.sim.libraries.nccl.measured import MeasuredModel
from ringside.sim.libraries.nccl.message_times import KINDS, Task
from ringside.sim.libraries.nccl.send_times import SEND_KINDS
from ringside.sim.libraries.nccl.stored import Stored
from ringside.sim.questions.calibrated import Anchor
from ringside.sim.record import Record, RecordError, digest
from ringside.validation.machines import with_nodes
from ringside.validation.measurements import as_run
from ringside.validation.nccl.bandwidths import on_fabric
from ringside.validation.nccl.observed import choose, is_observable, observed
from ringside.validation.readers import read, text_of
from ringside.validation.readers.bandwidth_table import is_bandwidth_table, read_bandwidth_table


def read_anchor(text: str) -> Anchor:
    """Return the measurements in a log, or a site's table of bandwidths, as an anchor."""
    path = Path(text)
    if is_bandwidth_table(content := text_of(path)):
        rows = read_bandwidth_table(content, path)
        return Anchor(
            path, lambda calibration, machine, values: on_fabric(calibration, rows, machine, values),
            is_table=True,
        )  # fmt: skip
    records = read(path).records
    return Anchor(path, lambda calibration, machine, values: anchored(calibration, records, machine, values))


def anchored(
    calibration: Calibration, records: Sequence[Record], machine: str, values: Mapping[str, str]
) -> Calibration:
    """Scale the calibration by the site's own rows, in proportion to their similarity."""
    if not (calibration.nccl or calibration.sends):
        raise CalibrationError(f"the calibration of {calibration.cluster} is not of NCCL")
    own = [record for record in records if is_observable(record, (*KINDS, *SEND_KINDS))]
    ran, fitted = as_run(own, machine, values), calibration.settings_on(machine)
    written = dict(zip(map(digest, ran), map(digest, own), strict=True))
    scaled: dict[str, Stored] = {}
    used = set(calibration.used)
    for name, stored, kinds in (
        ("nccl", calibration.nccl, KINDS),
        ("sends", calibration.sends, SEND_KINDS),
    ):
        rows = observed(ran, machine, values, kinds) if stored else []
        chosen = choose(rows, stored.facts) if stored else None
        if not (stored and chosen and chosen.tasks):
            continue
        before = [
            as_before(
                task,
                as_measured(task.comm, with_nodes(machine, task.comm.nodes, task.comm.ranks), values, fitted),
                stored.model,
            )
            for task in chosen.tasks
        ]
        kept = [rows[place].record for place in chosen.kept]
        seconds = [record.time_s / ratio for record, (_, ratio) in zip(kept, before, strict=True)]
        scaled[name] = stored.anchored([task for task, _ in before], seconds)
        used |= {written[digest(record)] for record in kept}
    if not scaled:
        raise RecordError("no row of the anchor is of a collective that NCCL's measured model has a form for")
    return replace(
        calibration,
        nccl=scaled.get("nccl", calibration.nccl),
        sends=scaled.get("sends", calibration.sends),
        used=tuple(sorted(used)),
    )


def with_rows_of(calibration: Calibration, anchor: Anchor, records: Sequence[Record]) -> Calibration:
    """Return the calibration, in which the records that the anchor's file holds too count as used."""
    if anchor.is_table:
        return calibration
    own = set(map(_measurement, read(anchor.path).records))
    used = {digest(record) for record in records if _measurement(record) in own}
    return replace(calibration, used=tuple(sorted({*calibration.used, *used})))


def _measurement(record: Record) -> tuple[object, ...]:
    """Return the identity of a measurement, independent of its file."""
    return record.collective, record.num_nodes, record.ranks, record.nbytes, record.in_place, record.time_s


def as_before(task: Task, before: Communicator, model: MeasuredModel) -> tuple[Task, float]:
    """Return a task on the measured machines, and the ratio of its time on its own machines."""
    library = Nccl(task.comm, calibrated=Calibrated(model, ""), before=before)
    collective = Collective(task.kind, task.comm.ranks, task.nbytes, dtype="float32")
    ratio = library.change(collective, Candidate(*task.pair)) or 1.0
    return replace(task, comm=model.facts.on(before)), ratio
