"""Published training throughput against the model: predict many GPUs from one GPU, or from one node.

The first row of a series sets one number, the time of a pass over one GPU's batch (layers share it by the
roofline), and nothing else does. NCCL's times are those measured on similar machines where shipped, else its
tuner's estimates, of release 2.30 where these trainings ran older ones. Machines without a preset get graphs
by the plain rule of `ringside.sim.libraries.nccl.graph.search`. A single GPU copies nothing into buckets; an
optimizer steps once, whatever the number of passes. Two facts that no publication states are read off its
rows: that a framework hides nothing (`HIDE_NOTHING`), and that GPUs reach each other through the host only
(`HOST_LINKS`). All wait for the slowest GPU; the spread of GPUs (`ringside.sim.training.ddp.usual.SPREAD`) is
the one number chosen here, for each publication from the others alone. The baseline is linear scaling.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from statistics import median

from ringside.sim.calibration import shipped
from ringside.sim.libraries import nccl
from ringside.sim.libraries.nccl.graph.system import GB
from ringside.sim.libraries.nccl.library import Calibrated, Nccl
from ringside.sim.training.ddp.buckets import Bucketing
from ringside.sim.training.ddp.job import Costs, DataParallel
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.training.ddp.usual import SPREAD, contention
from ringside.sim.training.groups import ProcessGroup, TimedGroup, process_group
from ringside.sim.training.memory import find_optimizer
from ringside.sim.training.pace import ALONE, at_pace
from ringside.sim.training.step import TrainingStep
from ringside.sim.workload.architecture import workload
from ringside.sim.workload.devices import device
from ringside.sim.workload.models import architecture
from ringside.sim.workload.workload import Workload
from ringside.validation.pace import pace
from ringside.validation.published.training.sources import PublishedStep, Series, Source, sources

# hardware: 8 V100 in a cube mesh with a single 100 Gb/s card (notes of DLPerf's report)
_V100_ONE_NIC = replace(nccl.SYSTEMS["dgx1-v100"], name="v100-one-nic", nics=1)
# hardware: 8 GeForce RTX 3090 on PCIe 4 x16, two EPYC Rome; NCCL assumes 16 GB/s from socket to socket
_RTX3090 = nccl.System("rtx3090-8", 86, 8, 0, 0, 0, 24 * GB, 16 * GB, False, "amd")
MACHINES = {system.name: system for system in (*nccl.SYSTEMS.values(), _V100_ONE_NIC, _RTX3090)}

FAMILIES = {"dgx-a100": "dgx-a100", "dgx1-v100": "dgx1-v100", "v100-one-nic": "dgx1-v100"}
"""The machines whose measurements give NCCL's times on a machine."""

LOST = 0.05
"""The shortfall of measured throughput against linear scaling above which a row counts as slowed."""

EXPLAINED = 1.05
"""The factor up to which a step without overlap still explains a measured one."""

SPREADS = (0.0, 0.005, 0.01, 0.015, 0.02, 0.025, 0.03)
"""The candidate spreads of GPUs."""

HIDE_NOTHING = ("MindSpore", "tf_cnn_benchmarks")
"""Frameworks whose trainings lose the same time per step at every batch, so compute hides none of it:
BERT-base with graph kernels under MindSpore loses 66.8 to 70.1 ms on two nodes or four at batches of 32, 64
and 96, the time of its ring; VGG-16 under TensorFlow 47 to 65 ms on two GPUs at 64 to 512."""

ONE_BUCKET_MB = 1e6
"""A cap that no model fills: one bucket, which nothing can hide."""

HOST_LINKS = {_RTX3090.name: 24 * GB}
"""Bytes/s of the one link to the host's memory that every byte crosses on machines without peer access
between GPUs, such as GeForce cards over PCIe: NCCL's assumption for PCIe 4 x16, fitted to nothing."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One published row and its prediction; throughputs in samples/s, ``error`` predicted / measured - 1.

    ``linear`` is the base row's throughput times the GPUs. ``limit`` follows from the measurement: ``sets
    compute`` for the base row; ``compute`` where less than `LOST` was lost against linear scaling;
    ``communication`` where more was, but no more than collectives without overlap take; beyond that ``input``
    if samples were decoded from files, else ``unexplained``.
    """

    source: str
    series: str
    row: PublishedStep
    predicted: float
    linear: float
    limit: str

    @property
    def error(self) -> float:
        """The error of the prediction."""
        return self.predicted / self.row.samples_per_s - 1

    @property
    def linear_error(self) -> float:
        """The error of linear scaling."""
        return self.linear / self.row.samples_per_s - 1


@dataclass(frozen=True, slots=True)
class SeriesSummary:
    """Errors over some rows: the median sizes of the model's and of linear scaling's, and the bias.

    ``bias`` is the median of the model's signed errors, ``better`` the number of rows where it beats linear.
    """

    rows: int
    median_error: float
    bias: float
    median_linear_error: float
    better: int


@cache
def judge(spread: float = SPREAD) -> tuple[Comparison, ...]:
    """Judge every published row."""
    return tuple(
        judged
        for source in sources()
        for series in source.series
        for judged in _judge(source, series, spread)
    )


def judge_others() -> list[Comparison]:
    """Judge every published row, with the spread that fits the other publications' rows best."""
    names = dict.fromkeys(row.source for row in judge())

    def off(spread: float, left_out: str) -> float:
        explained = (row for row in judge(spread) if row.limit in ("communication", "compute"))
        return median(abs(row.error) for row in explained if row.source != left_out)

    best = {name: min(SPREADS, key=lambda spread: off(spread, name)) for name in names}
    return [row for name in names for row in judge(best[name]) if row.source == name]


def summarize(rows: Iterable[Comparison]) -> SeriesSummary:
    """Summarise the errors of held-out rows."""
    held = [row for row in rows if row.limit != "sets compute"]
    return SeriesSummary(
        len(held),
        median(abs(row.error) for row in held),
        median(row.error for row in held),
        median(abs(row.linear_error) for row in held),
        sum(abs(row.error) < abs(row.linear_error) for row in held),
    )


def table(rows: Iterable[Comparison]) -> str:
    """Return the rows as text in columns, with their summary."""
    rows = list(rows)
    lines = [
        "# predicted from each series' first row, which sets its compute time and nothing else;",
        "# NCCL's times are measured on similar machines, or its tuner's estimates (2.30);",
        "# the spread of GPUs is chosen by the other publications' rows",
        f"# {'series':<34}{'gpus':>5}{'measured':>10}{'predicted':>10}{'error':>8}{'linear':>8}  limit",
    ]
    for judged in rows:
        numbers = (
            f"{judged.row.gpus:>5}{judged.row.samples_per_s:>10.0f}{judged.predicted:>10.0f}"
            f"{judged.error:>8.1%}{judged.linear_error:>8.1%}"
        )
        lines.append(f"  {judged.series:<34}{numbers}  {judged.limit}")
    for what, some in (
        ("all held-out rows", rows),
        *(
            (f"limit {limit}", [row for row in rows if row.limit == limit])
            for limit in ("communication", "compute", "input", "unexplained")
        ),
    ):
        if any(row.limit != "sets compute" for row in some):
            total = summarize(some)
            lines.append(
                f"# {what}: {total.rows} rows, median error {total.median_error:.1%}, bias {total.bias:+.1%},"
                f" linear scaling {total.median_linear_error:.1%}, better than linear {total.better} times"
            )
    return "\n".join(lines) + "\n"


def _judge(source: Source, series: Series, spread: float) -> Iterable[Comparison]:
    base = series.rows[0]
    cap_mb = ONE_BUCKET_MB if source.framework.startswith(HIDE_NOTHING) else series.bucket_cap_mb
    factor = pace(
        _workload(series, base), _group(series, base), base.samples_per_s, _job(source, cap_mb, base),
        _costs(series, base, spread),
    )  # fmt: skip
    for row in series.rows:
        work = at_pace(_workload(series, row), factor)
        job, costs = _job(source, cap_mb, row), _costs(series, row, spread)
        step = simulate_step(work, _group(series, row), job, costs)
        linear = base.samples_per_s / base.gpus * row.gpus
        limit = _limit(series, row, linear, step) if row is not base else "sets compute"
        yield Comparison(source.source, series.id, row, step.throughput, linear, limit)


def _limit(series: Series, row: PublishedStep, linear: float, step: TrainingStep) -> str:
    if row.samples_per_s > linear * (1 - LOST):
        return "compute"
    if step.samples / row.samples_per_s <= step.upper_s * EXPLAINED:
        return "communication"
    return "input" if series.reads_images else "unexplained"


def _costs(series: Series, row: PublishedStep, spread: float) -> Costs:
    gpu = device(series.device)
    step_s = find_optimizer(series.optimizer).time_s(_workload(series, row), gpu.streaming)
    costs = Costs(memory_bandwidth=gpu.streaming, spread=spread, optimizer_s=step_s)
    if row.gpus == 1:
        return costs.alone
    taken = contention(_library(series.machine, row.nodes, row.gpus_per_node), gpu)
    return replace(costs, contention=taken)


def _job(source: Source, cap_mb: float | None, row: PublishedStep) -> DataParallel:
    return DataParallel(
        bucketing=Bucketing(cap_mb), accumulation=row.accumulation, no_sync=source.no_sync,
        broadcast_buffers=False,
    )  # fmt: skip


def _workload(series: Series, row: PublishedStep) -> Workload:
    return _roofline(series.model, series.device, series.precision, row.batch)


@lru_cache(maxsize=64)
def _roofline(model: str, gpu: str, precision: str, batch: int) -> Workload:
    return workload(architecture(model), device(gpu), batch, precision)


def _group(series: Series, row: PublishedStep) -> ProcessGroup:
    if row.gpus == 1:
        return ALONE
    if series.machine in HOST_LINKS:
        crossing = 2 * (row.gpus - 1) / HOST_LINKS[series.machine]
        return TimedGroup(row.gpus, lambda collective: collective.nbytes * crossing)
    return process_group(_library(series.machine, row.nodes, row.gpus_per_node))


@lru_cache(maxsize=64)
def _library(machine: str, nodes: int, gpus: int) -> Nccl:
    comm = nccl.communicator(MACHINES[machine], nodes, gpus)
    family = shipped(FAMILIES[machine]) if machine in FAMILIES else None
    if family is None or family.nccl is None:
        return Nccl(comm)
    return Nccl(comm, calibrated=Calibrated(family.nccl.model, family.nccl.described))


if __name__ == "__main__":
    print(table(judge_others()), end="")
