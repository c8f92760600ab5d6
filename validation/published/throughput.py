"""Published training throughput against the model: predict many GPUs from one GPU, or from one node.

The first row of a series sets one number, the time of a pass over one GPU's batch (layers share it as
the roofline says), and nothing else does: what NCCL takes is its tuner's belief, which no measurement
has calibrated, and of release 2.30 where these trainings ran older ones. Machines without a preset
get graphs by the plain rule of `sim.libraries.nccl.graph.search`. The baseline to beat is linear scaling.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

from sim.libraries import nccl
from sim.libraries.nccl.graph.system import GB
from sim.libraries.nccl.library import Nccl
from sim.training.ddp.buckets import Bucketing
from sim.training.ddp.job import Costs, DataParallel
from sim.training.ddp.simulate import simulate_step
from sim.training.groups import ProcessGroup, process_group
from sim.training.pace import ALONE, at_pace, pace
from sim.training.step import TrainingStep
from sim.workload.architecture import workload
from sim.workload.devices import device
from sim.workload.models import architecture
from sim.workload.workload import Workload
from validation.published.training.sources import PublishedStep, Series, sources

# hardware: 8 V100 in a cube mesh with a single 100 Gb/s card (notes of DLPerf's report)
_V100_ONE_NIC = replace(nccl.SYSTEMS["dgx1-v100"], name="v100-one-nic", nics=1)
# hardware: 8 GeForce RTX 3090 on PCIe 4 x16, two EPYC Rome; NCCL reckons 16 GB/s from socket to socket
_RTX3090 = nccl.System("rtx3090-8", 86, 8, 0, 0, 0, 24 * GB, 16 * GB, False, "amd")
MACHINES = {system.name: system for system in (*nccl.SYSTEMS.values(), _V100_ONE_NIC, _RTX3090)}

COMMUNICATION_BOUND = 0.02
"""Share of the predicted step that is exposed communication, from which on a row counts as bound by it."""

MISSED = 0.05
"""Shortfall of measured against predicted throughput from which on something else must have slowed it."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One published row and its prediction; throughputs in samples/s, ``error`` predicted / measured - 1.

    ``linear`` is the base row's throughput times the GPUs. ``limit`` is ``sets compute`` for the base
    row; ``input`` for training on decoded images that reached less than compute and communication
    explain; ``communication`` where the model says so, whatever was measured; and for the rest
    ``compute``, or ``unexplained`` where less was measured.
    """

    series: str
    row: PublishedStep
    predicted: float
    linear: float
    limit: str

    @property
    def error(self) -> float:
        """Of the prediction."""
        return self.predicted / self.row.samples_per_s - 1

    @property
    def linear_error(self) -> float:
        """Of linear scaling."""
        return self.linear / self.row.samples_per_s - 1


@dataclass(frozen=True, slots=True)
class SeriesSummary:
    """Errors over some rows, absolute values: the model's, linear scaling's, and how often the model wins."""

    rows: int
    median_error: float
    median_linear_error: float
    better: int


def judge() -> list[Comparison]:
    """Every published row."""
    return [judged for source in sources() for series in source.series for judged in _judge(series)]


def summarize(rows: Iterable[Comparison]) -> SeriesSummary:
    """The errors of rows that set nothing."""
    held = [row for row in rows if row.limit != "sets compute"]
    return SeriesSummary(
        len(held),
        median(abs(row.error) for row in held),
        median(abs(row.linear_error) for row in held),
        sum(abs(row.error) < abs(row.linear_error) for row in held),
    )


def table(rows: Iterable[Comparison]) -> str:
    """The rows as text in columns, and what they come to."""
    rows = list(rows)
    lines = [
        "# predicted from each series' first row, which sets its compute time and nothing else;",
        "# NCCL's times are its tuner's belief (2.30), not calibrated by any measurement",
        f"# {'series':<34}{'gpus':>5}{'measured':>10}{'predicted':>10}{'error':>8}{'linear':>8}  limit",
    ]
    for judged in rows:
        numbers = (
            f"{judged.row.gpus:>5}{judged.row.samples_per_s:>10.0f}{judged.predicted:>10.0f}"
            f"{judged.error:>8.1%}{judged.linear_error:>8.1%}"
        )
        lines.append(f"  {judged.series:<34}{numbers}  {judged.limit}")
    for what, some in (
        ("all rows that set nothing", rows),
        *(
            (f"limit {limit}", [row for row in rows if row.limit == limit])
            for limit in ("communication", "compute", "input", "unexplained")
        ),
    ):
        if any(row.limit != "sets compute" for row in some):
            total = summarize(some)
            lines.append(
                f"# {what}: {total.rows} rows, median error {total.median_error:.1%}, linear scaling "
                f"{total.median_linear_error:.1%}, better than linear {total.better} times"
            )
    return "\n".join(lines) + "\n"


def _judge(series: Series) -> Iterable[Comparison]:
    base = series.rows[0]
    factor = pace(
        _workload(series, base), _group(series, base), base.samples_per_s, _job(series, base), Costs()
    )
    for row in series.rows:
        step = simulate_step(at_pace(_workload(series, row), factor), _group(series, row), _job(series, row))
        linear = base.samples_per_s / base.gpus * row.gpus
        limit = _limit(series, row, step) if row is not base else "sets compute"
        yield Comparison(series.id, row, step.throughput, linear, limit)


def _limit(series: Series, row: PublishedStep, step: TrainingStep) -> str:
    short = row.samples_per_s < step.throughput * (1 - MISSED)
    if short and series.reads_images:
        return "input"
    if step.exposed_s / step.step_s >= COMMUNICATION_BOUND:
        return "communication"
    return "unexplained" if short else "compute"


def _job(series: Series, row: PublishedStep) -> DataParallel:
    return DataParallel(
        bucketing=Bucketing(series.bucket_cap_mb), accumulation=row.accumulation, broadcast_buffers=False
    )


def _workload(series: Series, row: PublishedStep) -> Workload:
    return _roofline(series.model, series.device, series.precision, row.batch)


@lru_cache(maxsize=64)
def _roofline(model: str, gpu: str, precision: str, batch: int) -> Workload:
    return workload(architecture(model), device(gpu), batch, precision)


def _group(series: Series, row: PublishedStep) -> ProcessGroup:
    if row.gpus == 1:
        return ALONE
    return process_group(_library(series.machine, row.nodes, row.gpus_per_node))


@lru_cache(maxsize=64)
def _library(machine: str, nodes: int, gpus: int) -> Nccl:
    return Nccl(nccl.communicator(MACHINES[machine], nodes, gpus))


if __name__ == "__main__":
    print(table(judge()), end="")
