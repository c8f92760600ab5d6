"""A calibrated NCCL's predictions of records, each with its release, pins and launch."""

from collections.abc import Mapping
from dataclasses import replace

from ringside.sim.collective import Collective
from ringside.sim.libraries.library import Candidate, Estimate
from ringside.sim.libraries.nccl.cluster import as_measured
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.library import Calibrated, Nccl
from ringside.sim.libraries.nccl.measured.messages import Task
from ringside.sim.libraries.nccl.measured.model import Measured
from ringside.sim.record import Record, collective_of
from ringside.topologies.catalogue import split
from ringside.validation.machines import with_nodes
from ringside.validation.measured.observed import observed


class Libraries:
    """NCCL as of each record, on a machine with these values, whose model was ``fitted`` with others."""

    def __init__(
        self, cluster: str, values: Mapping[str, str], model: Measured | None, fitted: Mapping[str, str]
    ) -> None:
        self._machine, self._values, self._fitted = split(cluster)[0], values, fitted
        self._calibrated = Calibrated(model, self._machine) if model else None

    def predict(self, record: Record) -> tuple[Candidate, Estimate, bool]:
        """Return NCCL's choice, its time, and whether that rests on measurements."""
        library = self._of(record)
        collective = collective_of(record)
        candidate = library.choose(collective)
        estimate = library.time(collective, candidate)
        return candidate, estimate, library.is_measured(collective, candidate)

    def _of(self, record: Record) -> Nccl:
        (row,) = observed([record], self._machine, self._values)
        before = as_measured(row.comm, with_nodes(self._machine, row.comm.nodes), self._values, self._fitted)
        return Nccl(row.comm, calibrated=self._calibrated, launch=row.launch, before=before)


def as_before(task: Task, before: Communicator, model: Measured) -> tuple[Task, float]:
    """Return a task on the machines that were measured, and how many times as long it takes on its own."""
    library = Nccl(task.comm, calibrated=Calibrated(model, ""), before=before)
    collective = Collective(task.kind, task.comm.ranks, task.nbytes, dtype="float32")
    ratio = library.change(collective, Candidate(*task.pair)) or 1.0
    return replace(task, comm=model.facts.on(before)), ratio
