"""Published training throughput against the model: predict many GPUs from one GPU, or from one node.

The first row of a series sets one number, the time of a pass over one GPU's batch, which layers share by the
roofline. NCCL's times are those measured on the machine's family where these are shipped, else its tuner's
estimates of release 2.30; the trainings ran older releases. `train` predicts each row at the throughput of
its series' first row. A single GPU copies nothing into buckets; an optimizer steps once per step, whatever
the number of passes. Two facts that no publication states are read off its rows: that a framework hides
nothing (`HIDE_NOTHING`), and that GPUs reach each other only through the host (`HOST_GB_PER_S`). All ranks
wait for the slowest GPU; the spread of GPUs (`SPREAD` of `ringside.sim.training.ddp.scaling`) is the one
number chosen here, for each publication by the others. The naive rule is linear scaling.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from statistics import median

from pydantic import BaseModel, ConfigDict

from ringside.sim.calibration import AUTO, Calibration, shipped
from ringside.sim.training.ddp.scaling import SPREAD
from ringside.sim.training.ddp.step import TrainingStep
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.judged import NAIVE, JudgedRow, score


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PublishedStep(_Strict):
    """The throughput of ``nodes`` x ``gpus_per_node`` GPUs at ``batch`` samples per GPU and pass."""

    nodes: int
    gpus_per_node: int
    batch: int
    accumulation: int
    samples_per_s: float

    @property
    def gpus(self) -> int:
        """The number of GPUs."""
        return self.nodes * self.gpus_per_node


class PublishedSeries(_Strict):
    """One training at several sizes: a column of a published table (``table``, ``line`` of its page).

    ``model``, ``machine``, ``device``, ``precision``, ``optimizer`` and ``bucket_cap_mb`` are options of
    `train`; ``reads_images`` says that every sample was decoded from a file.
    """

    id: str
    table: str
    line: int | None
    column: str
    model: str
    machine: str
    device: str
    precision: str
    bucket_cap_mb: float | None
    reads_images: bool
    optimizer: str = "adam"
    rows: tuple[PublishedStep, ...]


class Publication(_Strict):
    """One publication; ``no_sync`` says that accumulated gradients were reduced once per step."""

    source: str
    framework: str
    hardware: str = ""
    no_sync: bool = False
    notes: str
    series: tuple[PublishedSeries, ...]


def sources() -> Iterator[Publication]:
    """Yield all publications, in the order of their files' names."""
    for file in sorted(Path(__file__).parent.glob("*.json")):
        yield Publication.model_validate_json(file.read_text(encoding="utf-8"))


LOST = 0.05
"""The shortfall of measured throughput against linear scaling above which a row counts as slowed."""

EXPLAINED = 1.05
"""The factor up to which a step without overlap still explains a measured one."""

SPREADS = (0.0, 0.01, 0.015, 0.02, 0.03)
"""Options for the spread of GPUs."""

HIDE_NOTHING = ("MindSpore", "tf_cnn_benchmarks")
"""Frameworks that lose the same time per step at every batch, so all communication is exposed: BERT-base with
graph kernels under MindSpore loses 66.8 to 70.1 ms on two nodes or four at batches of 32, 64 and 96, the time
of its ring; VGG-16 under TensorFlow 47 to 65 ms on two GPUs at 64 to 512.
"""

ONE_BUCKET_MB = 1e6
"""A cap that no model fills: one bucket, which is never hidden."""

HOST_GB_PER_S = 24
"""The rate of the link to the host's memory, which every byte crosses on machines whose GPUs cannot reach
each other's memory, such as GeForce cards over PCIe: NCCL's figure for PCIe 4 x16, not fitted."""


SETS_COMPUTE = "sets compute"
"""The part of base rows; the others follow from the measurement.

``compute`` where less than `LOST` was lost against linear scaling; ``communication`` where more was, but no
more than collectives without overlap take; beyond that ``input`` if samples were decoded from files, else
``unexplained``.
"""


@cache
def judge(spread: float = SPREAD) -> tuple[JudgedRow, ...]:
    """Judge every published row."""
    return tuple(
        judged
        for source in sources()
        for series in source.series
        for judged in _judge(source, series, spread)
    )


def judge_others() -> list[JudgedRow]:
    """Judge every published row, with the spread that fits the other publications' rows best."""
    names = dict.fromkeys(row.traits["source"] for row in judge())

    def off(spread: float, left_out: str) -> float:
        explained = (row for row in judge(spread) if row.part in ("communication", "compute"))
        return median(abs(row.error) for row in explained if row.traits["source"] != left_out)

    best = {name: min(SPREADS, key=lambda spread: off(spread, name)) for name in names}
    return [row for name in names for row in judge(best[name]) if row.traits["source"] == name]


def table(rows: Iterable[JudgedRow]) -> str:
    """Return the rows as text in columns, with their scores."""
    rows = list(rows)
    lines = [
        "# predicted from each series' first row, which sets only its compute time;",
        "# NCCL's times are measured on similar machines, or its tuner's estimates (2.30);",
        "# the spread of GPUs is chosen by the other publications' rows",
        f"# {'series':<34}{'gpus':>5}{'measured':>10}{'predicted':>10}{'error':>8}{'linear':>8}  limit",
    ]
    for row in rows:
        numbers = (
            f"{row.traits['gpus']:>5}{row.measured:>10.0f}{row.predicted:>10.0f}"
            f"{row.error:>8.1%}{row.rule_error:>8.1%}"
        )
        lines.append(f"  {row.series:<34}{numbers}  {row.part}")
    held_out = [row for row in rows if row.part != SETS_COMPUTE]
    limits = ("communication", "compute", "input", "unexplained")
    parts = {f"limit {limit}": [row for row in held_out if row.part == limit] for limit in limits}
    for name, some in {"all held-out rows": held_out, **parts}.items():
        if some:
            total = score("", name, some)
            better = sum(abs(row.error) < abs(row.rule_error) for row in some)
            lines.append(
                f"# {name}: {len(some)} rows, median error {total.errors.median:.1%}, "
                f"bias {total.errors.bias:+.1%}, linear scaling {total.rules[NAIVE].median:.1%}, "
                f"better than linear {better} times"
            )
    return "\n".join(lines) + "\n"


def _judge(source: Publication, series: PublishedSeries, spread: float) -> Iterable[JudgedRow]:
    base = series.rows[0]
    for row in series.rows:
        step = training(source, series, row, spread).step()
        assert isinstance(step, TrainingStep)
        linear = base.samples_per_s / base.gpus * row.gpus
        yield JudgedRow(
            series=series.id,
            what=f"on {row.gpus}",
            measured=row.samples_per_s,
            predicted=step.throughput,
            rule=linear,
            part=_limit(series, row, linear, step) if row is not base else SETS_COMPUTE,
            traits={
                "source": source.source,
                "gpus": str(row.gpus),
                "nodes": str(row.nodes),
                "hides": "" if source.framework.startswith(HIDE_NOTHING) else "yes",
                "images": "yes" if series.reads_images else "",
            },
        )


def training(source: Publication, series: PublishedSeries, row: PublishedStep, spread: float) -> StepTime:
    """Return the training at the pace of its series' first row."""
    base = series.rows[0]
    cap_mb = ONE_BUCKET_MB if source.framework.startswith(HIDE_NOTHING) else series.bucket_cap_mb
    cluster, settings = f"{series.machine}:{row.nodes}", dict[str, str]()
    calibration: Calibration | str | None = AUTO
    if series.machine == "rtx3090-8":
        # all share one link
        cluster, settings = f"star:{row.gpus}", {"bandwidth": f"{HOST_GB_PER_S / row.gpus}GB/s"}
    elif series.machine == "v100-one-nic":
        # a quarter of the one card for each of the four that a DGX-1 has
        cluster, settings = f"dgx1-v100:{row.nodes}", {"nic": "3.125GB/s"}
        calibration = shipped("dgx1-v100")
    return StepTime(
        model=series.model, cluster=cluster, settings=settings, ranks=row.gpus, calibration=calibration,
        device=series.device, precision=series.precision, batch=row.batch, optimizer=series.optimizer,
        bucket_cap_mb=cap_mb, accumulation=row.accumulation, no_sync=source.no_sync,
        no_broadcast_buffers=True, spread=spread, measured=(base.samples_per_s, base.gpus),
    )  # fmt: skip


def _limit(series: PublishedSeries, row: PublishedStep, linear: float, step: TrainingStep) -> str:
    if row.samples_per_s > linear * (1 - LOST):
        return "compute"
    if step.samples / row.samples_per_s <= step.upper_s * EXPLAINED:
        return "communication"
    return "input" if series.reads_images else "unexplained"


if __name__ == "__main__":
    print(table(judge_others()), end="")
