"""Pipelines measured in the paper on zero bubbles, beside its schedules in simulation.

Qi et al., Zero Bubble Pipeline Parallelism, ICLR 2024 (arXiv 2401.10241): on up to 32 A100 in four machines
over RoCE, in a fork of Megatron-LM, with neither tensor nor data parallelism. ``profiled.csv`` has the times
of a micro-batch's passes on one inner rank (table 9) and the bubbles that the authors calculated from them
(table 5); ``measured.csv`` the throughputs (tables 4 and 6). Only the schedule is judged, as a program of
profiled passes, and not the nearest question, ``train --pp 8 --schedule zb-h1``: with one replica `train`
runs pipelines by torch's rules instead of Megatron-LM's, has no ZB-2p, and counts a step until the last
rank's optimizer.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import NamedTuple

from ringside.sim.program import Program
from ringside.sim.program.groups import simulate_given
from ringside.sim.program.timeline import ProgramTimeline
from ringside.sim.training.layers import Kernels, RankLayer
from ringside.sim.training.pipeline.actions import Placement, Table
from ringside.sim.training.pipeline.program import find_runtime, pipeline
from ringside.sim.training.pipeline.schedules import PassTimes, tables, zb_2p
from ringside.validation.published.training.rows import read_rows
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

HERE = Path(__file__).parent

LAYERS = {"1.5B": 24, "6.2B": 32, "14.6B": 48, "28.3B": 64}
"""Layers; embedding and head count as one each, because the first and the last stage have one fewer."""

NAMES = {"1F1B": "1f1b", "ZB-H1": "zb-h1", "ZB-H2": "zb-h2", "ZB-1p": "zb-h1", "ZB-V": "zbv"}
"""The schedule whose tables are used. The authors' ZB-1p, found by search, has ZB-H1's bubbles (table 5)."""

WIDTHS = {"1.5B": (2304, 24), "6.2B": (4096, 32), "14.6B": (5120, 40), "28.3B": (6144, 48)}
"""Width and heads; sequences have 1,024 tokens."""

SYNCHRONOUS = ("1F1B", "1F1B-I")
"""Schedules that end for all ranks at once; in the others each rank steps its optimizer when it is done."""


@dataclass(frozen=True, slots=True)
class ProfiledPipeline:
    """One row of tables 9 and 5, times in seconds; ``bubbles`` are shares of the step, by schedule."""

    model: str
    ranks: int
    micro_batches: int
    times: PassTimes
    bubbles: dict[str, float]


class MeasuredPipeline(NamedTuple):
    """One cell of tables 4 or 6."""

    table: int
    model: str
    ranks: int
    micro_batches: int
    samples_a_micro_batch: int
    schedule: str
    samples_per_gpu_per_s: float


def profiled() -> tuple[ProfiledPipeline, ...]:
    """Return the profiled pipelines."""
    return tuple(
        ProfiledPipeline(
            row["model"],
            int(row["ranks"]),
            int(row["micro_batches"]),
            PassTimes(*(float(row[f"{name}_ms"]) / 1e3 for name in PassTimes._fields)),
            {name: float(row[name]) for name in ("1F1B", "1F1B-I", "ZB-H1", "ZB-H2", "ZB-1p", "ZB-2p")},
        )
        for row in _rows("profiled.csv")
    )


def measured() -> list[MeasuredPipeline]:
    """Return the measured throughputs."""
    return read_rows(MeasuredPipeline, "zero_bubble/measured.csv")


def step_s(
    schedule: str, model: str, ranks: int, micro_batches: int, times: PassTimes, *, whose: str = "decoupled"
) -> float:
    """Return the simulated seconds of a step; ``whose`` names the runtime that sends messages."""
    stages_a_rank = {"1F1B-I": LAYERS[model] // ranks, "ZB-V": 2}.get(schedule, 1)
    name = NAMES.get(schedule, "interleaved1f1b")
    if schedule.startswith("ZB-2p"):
        own: tuple[Table, ...] = zb_2p(ranks, micro_batches, times)
    else:
        own = tables(name, ranks, stages_a_rank, micro_batches)
    layer = _layer(times, stages_a_rank)
    place = Placement(ranks, stages_a_rank, v=schedule == "ZB-V")
    program: Program = pipeline(
        f"{schedule} {model}", own, place, lambda _: (layer,), find_runtime(whose, name)
    )
    done = simulate_given(program, {}, message_s=times.message)
    return done.makespan_s if schedule in SYNCHRONOUS else _longest(done)


def bubble(schedule: str, row: ProfiledPipeline) -> float:
    """Return the share of a step in which a rank is idle; messages delay no rank."""
    work = row.micro_batches * sum(row.times[:3])
    return 1 - work / step_s(schedule, row.model, row.ranks, row.micro_batches, row.times)


def predicted(row: MeasuredPipeline) -> float:
    """Return samples per GPU and second, up to a factor of the model and table.

    Synchronous schedules have Megatron-LM's runtime. The micro-batches and stages of table 6 were not
    profiled: their times are those of table 9, scaled by layers per rank and samples.
    """
    near = [one for one in profiled() if one.model == row.model]
    times = next((one for one in near if one.micro_batches == row.micro_batches), near[0]).times
    if row.table == 6:
        scale = row.samples_a_micro_batch * near[0].ranks / row.ranks
        forward, input_gradient, weight_gradient = (scale * one for one in times[:3])
        message = row.samples_a_micro_batch * times.message
        times = PassTimes(forward, input_gradient, weight_gradient, message)
    whose = "megatron" if row.schedule in SYNCHRONOUS else "decoupled"
    seconds = step_s(row.schedule, row.model, row.ranks, row.micro_batches, times, whose=whose)
    return row.micro_batches * row.samples_a_micro_batch / seconds / row.ranks


def judged() -> Iterator[JudgedRow]:
    """Yield the measured rows as samples per GPU and second, with one factor per model and table."""
    rows = sorted(measured(), key=lambda row: (row.table, row.model))
    for (table, model), some in groupby(rows, key=lambda row: (row.table, row.model)):
        own = [(row, predicted(row)) for row in some]
        factor = median(row.samples_per_gpu_per_s / raw for row, raw in own)
        rule = median(row.samples_per_gpu_per_s for row, _ in own)
        for row, raw in own:
            what = f"{row.ranks} ranks, {row.micro_batches} micro-batches, {row.schedule}"
            yield JudgedRow(
                f"table {table} {model}", what, row.samples_per_gpu_per_s, factor * raw, rule, row.schedule
            )


def training(row: MeasuredPipeline) -> StepTime:
    """Return the training of a row as `train` says it, under 1F1B; its pipelines follow torch's rules."""
    width, heads = WIDTHS[row.model]
    shape = f"layers={LAYERS[row.model] - 2},width={width},heads={heads},positions=1024,vocabulary=50304"
    return StepTime(
        model=f"gpt3-1.3b:1024,{shape}", cluster=f"dgx-a100:{row.ranks // 8}", precision="bf16", dtype="bf16",
        stack="megatron", pp=row.ranks,
        batch=row.micro_batches * row.samples_a_micro_batch, micro_batch=row.samples_a_micro_batch,
    )  # fmt: skip


def absolute() -> list[JudgedRow]:
    """Return the rows under 1F1B, with nothing known."""
    results = []
    for row in measured():
        if row.schedule == "1F1B":
            step_s = row.micro_batches * row.samples_a_micro_batch / row.samples_per_gpu_per_s / row.ranks
            what = f"{row.model} on {row.ranks}, {row.micro_batches} micro-batches"
            question = training(row)
            results.append(alone("zero_bubble", what, step_s, question.step().step_s, question))
    return results


def _layer(times: PassTimes, stages_a_rank: int) -> RankLayer:
    forward, input_gradient, weight_gradient = (one / stages_a_rank for one in times[:3])
    return RankLayer(
        name="layers",
        forward=(Kernels(forward),),
        backward=(Kernels(input_gradient + weight_gradient),),
        input_gradient=(Kernels(input_gradient),),
        weight_gradient=(Kernels(weight_gradient),),
    )


def _longest(done: ProgramTimeline) -> float:
    """Return the longest time that any rank takes from its own start to its own end."""
    own = [[span for span in spans if span.kind not in ("message", "wait")] for spans in done.spans.values()]
    return max(max(span.end for span in spans) - min(span.begin for span in spans) for spans in own)


def _rows(file: str) -> Iterator[dict[str, str]]:
    with (HERE / file).open(encoding="utf-8", newline="") as text:
        yield from csv.DictReader(text)


TABLE = JudgedTable(
    name="zero_bubble",
    title="1F1B and zero bubbles on 8 to 32 A100",
    source="arXiv:2401.10241, tables 4, 5, 6 and 9",
    sets="profiled passes, and one factor per model and table",
    rule="the median of model and table, for every schedule",
    judged=lambda: list(judged()),
    absolute=absolute,
    unit="samples/s",
)
