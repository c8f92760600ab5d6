"""Published throughputs of one GPU against the model, with nothing known: no row sets anything.

Rows are those of one GPU in the series of `throughput`, and those of ``single_gpu.csv``:

- ``dle-mxnet``, ``dle-tf``, ``dle-paddle``: github.com/NVIDIA/DeepLearningExamples, README.md of
  MxNet/Classification/RN50v1.5 @ 134510b4b7ff, TensorFlow/Classification/ConvNets/resnet50v1.5 @
  1d4211fe9d94, TensorFlow/LanguageModeling/BERT @ 002bcd8c45a0 (V100 of 16 and 32 GB),
  PaddlePaddle/Classification/RN50v1.5 @ 0bc061da6423 and PaddlePaddle/LanguageModeling/BERT @ 8cdaba13eb6c;
- ``DLPerf``: github.com/Oneflow-Inc/DLPerf @ 28c5854bbdd7, reports/dlperf_benchmark_test_report_v1.md;
- ``lambda``: github.com/lambdal/deeplearning-benchmark, pytorch/pytorch-train-throughput-fp16.csv and
  -fp32.csv @ 0551cb70ffdc, batches of pytorch-train-bs-fp16.csv and -fp32.csv @ 08d77c41c42f; H100 on four
  hosts. It prints neither A10's nor H100's batches, for which those of RTX 3090 and A100 of 80 GB stand,
  which have as much memory. Its float32 is TF32 where there is one, and its ResNet-50 in 16 bits is slower
  than others' by what it takes to transpose images, so its layout is taken to be NCHW.

Fine-tuning (SQuAD) has sequences of 384 tokens and no words to predict; those that pre-train predict the
masked tokens alone, and phases of 512 tokens have 288 where sequences are cut into bins. Two shares of the
peak were chosen with these rows in view, that of float32 and that of tensor cores, none of them a GPU's;
`left_out` chooses them again for each source by the other sources.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from math import log
from statistics import fmean
from typing import NamedTuple

from ringside.sim.training.ddp.step import TrainingStep
from ringside.validation.published.training.ddp.throughput import sources
from ringside.validation.published.training.rows import read_rows
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.judged import JudgedRow, score

SHARES = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85)
"""Options for the share of the peak of products and convolutions."""

MOST_PASSES = 100
"""Passes that are simulated of a step with more, for which the optimizer matters even less."""

TRAITS = ("source", "framework", "gpu", "precision", "model")
"""What rows are grouped by."""


class Throughput(NamedTuple):
    """A row: ``batch`` samples in each of ``accumulation`` passes of a step on one GPU."""

    source: str
    framework: str
    gpu: str
    precision: str
    model: str
    batch: int
    accumulation: int
    optimizer: str
    samples_per_s: float


def rows() -> Iterator[Throughput]:
    """Yield all rows."""
    for source in sources():
        short = source.source.partition(" @ ")[0].rpartition("/")[2]
        for series in source.series:
            for row in series.rows:
                if row.gpus == 1:
                    yield Throughput(
                        short, source.framework.split()[0].rstrip(","), series.device, series.precision,
                        series.model, row.batch, row.accumulation, series.optimizer, row.samples_per_s,
                    )  # fmt: skip
    yield from read_rows(Throughput, "ddp/single_gpu.csv")


@cache
def judged(row: Throughput, share: float | None = None) -> JudgedRow:
    """Predict a row, with products and convolutions at this share of the peak or at the usual one."""
    passes = min(row.accumulation, MOST_PASSES)
    step = StepTime(
        model=row.model, cluster="star:1", ranks=1, device=row.gpu, precision=row.precision, batch=row.batch,
        optimizer=row.optimizer, accumulation=passes, no_sync=True, spread=0.0,
        compute_efficiency=share,
    ).step()  # fmt: skip
    assert isinstance(step, TrainingStep)
    traits = {name: str(getattr(row, name)) for name in TRAITS}
    traits["model"] = row.model.partition(":")[0]
    what = f"{row.model}, {row.batch} in {row.precision} on {row.gpu}"
    measured_s = row.batch * passes / row.samples_per_s
    return JudgedRow(row.source, what, measured_s, step.step_s, traits=traits)


def absolute() -> list[JudgedRow]:
    """Return every row, predicted from its words alone."""
    return [judged(row) for row in rows()]


def left_out() -> list[JudgedRow]:
    """Return every row, with the share that fits rows of other sources best, of its kind of arithmetic."""
    known = list(rows())
    return [judged(row, _fitting(row.source, row.precision == "float32")) for row in known]


@cache
def _fitting(left_out: str, plain: bool) -> float:
    """Return the share with the least mean error of logarithms, of float32 or of tensor cores."""
    known = [row for row in rows() if row.source != left_out and (row.precision == "float32") is plain]
    return min(SHARES, key=lambda share: fmean(_off(judged(row, share)) for row in known))


def _off(row: JudgedRow) -> float:
    return abs(log(row.predicted / row.measured))


def table(rows: Iterable[JudgedRow]) -> str:
    """Return rows as text in columns, the worst last, with the scores of groups."""
    rows = sorted(rows, key=_off)
    lines = ["# seconds of a step on one GPU, nothing known"]
    for row in rows:
        numbers = f"{row.measured:>10.4f}{row.predicted:>10.4f}{row.error:>8.1%}"
        lines.append(f"  {row.what:<62}{numbers}  {row.series}")
    groups = [("all", "", rows)]
    for trait in TRAITS:
        for name in dict.fromkeys(row.traits[trait] for row in rows):
            groups.append((trait, name, [row for row in rows if row.traits[trait] == name]))
    groups.append(("all", "shares chosen by other sources", left_out()))
    for group, name, some in groups:
        errors = score(group, name, some).errors
        lines.append(
            f"# {group} {name}: {errors.rows} rows, median {errors.median:.1%}, "
            f"one in ten worse than {errors.p90:.1%}, bias {errors.bias:+.1%}"
        )
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(table(absolute()), end="")
