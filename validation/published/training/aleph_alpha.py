"""Layouts of Llama 13B and 30B on 32 to 256 A100: their steps, and which ran out of memory.

Hagemann et al., "Efficient Parallelization Layouts for Large-Scale Distributed Model Training",
arXiv:2311.05610; github.com/Aleph-Alpha/NeurIPS-WANT-submission-efficient-parallelization-layouts @
e13c2cb56123, data/: DGX A100 of 80 GB, 1F1B, ZeRO 1, bfloat16, 4.2 million tokens a step. Where rows share
all but pipeline and replicas the one with the deepest pipeline sets the pace of what is computed for the
others. Stages are as even as whole layers allow. Two rates are fitted, for each file on all others: that at
which replicas exchange gradients and parameters, which nothing hides, and that at which stages' messages
go, which hold both up. The naive rule counts micro-batches and the bubble. Memory has one reserve, fitted
on labels of the other model. What is asked is what `train` would answer for one replica, by the bounds that
`train --search` leaves layouts out by: hundreds of micro-batches are not simulated.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import NamedTuple

from ringside.sim.program.libraries import Libraries
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.search.bounds import Bounds
from ringside.sim.workload.decoder import Decoder, decoder
from ringside.sim.workload.devices import device
from ringside.validation.questions.question import Question, question
from ringside.validation.scorecard.judged import Counted, JudgedRow, JudgedTable

MODELS = {"llama-13B": (40, 5120, 40, 13824), "llama-30B": (60, 6656, 52, 17920)}
"""Layers, width, heads, width of the feed-forward network; the vocabulary follows from the published MFU."""

VOCABULARY = 128000
TOKENS = 1 << 22
GPU = device("a100")
GIB = 1 << 30

LOGITS = 14
"""Bytes of one, which ranks gather: in bfloat16; in float32 as it is, as a probability, and its gradient."""

NORMS = 12
"""Bytes of an element between products that norms keep where no kernel fuses them, float32 copies."""

EXCHANGES_S = tuple(1e-10 * number for number in range(13))
"""Seconds for each parameter of a rank, of which replicas choose by the other files."""

MESSAGES_S = tuple(3e-11 * number for number in range(14))
"""Seconds for each byte of activations that passes a stage's border, likewise."""

RESERVES = tuple(GIB * number // 2 for number in range(60))
"""Bytes that nobody may use."""


class Run(NamedTuple):
    """A row; ``sequence_parallel`` is empty where the file does not say it, ``step_s`` NaN without memory."""

    model: str
    sequence: int
    gpus: int
    tensor: int
    pipeline: int
    micro_batch: int
    checkpointing: str
    kernel: str
    sequence_parallel: str
    status: str
    step_s: float

    @property
    def decoder(self) -> Decoder:
        """The model."""
        return decoder(self._model)

    @property
    def _model(self) -> str:
        layers, width, heads, hidden = MODELS[self.model]
        shape = f"layers={layers},width={width},heads={heads},hidden={hidden},vocabulary={VOCABULARY}"
        return f"llama2-7b:{self.sequence},longest={self.sequence},{shape}"

    @property
    def series(self) -> str:
        """What rows share whose pace one of them sets."""
        again = f", sequence parallel {self.sequence_parallel}" if self.sequence_parallel else ""
        return (
            f"{self.model} {self.sequence} {self.kernel} {self.checkpointing} tp {self.tensor} "
            f"mb {self.micro_batch} on {self.gpus}{again}"
        )

    @property
    def file(self) -> tuple[str, int, int]:
        """Rows of one file."""
        return self.model, self.sequence, self.gpus

    @property
    def replicas(self) -> int:
        """Data-parallel ranks."""
        return self.gpus // self.tensor // self.pipeline

    @property
    def micro_batches(self) -> int:
        """Those of a replica's step."""
        return TOKENS // self.sequence // self.replicas // self.micro_batch

    @property
    def message_nbytes(self) -> int:
        """Bytes of activations that leave a stage in a step."""
        each = self.micro_batch * self.sequence * self.decoder.width * 2
        return each * self.micro_batches if self.pipeline > 1 else 0

    @property
    def asked(self) -> Question:
        """One replica's part of it, at the GPU's peak."""
        gpus = self.tensor * self.pipeline
        return question(
            self._model, f"dgx-a100:{-(-gpus // 8)}", ranks=gpus, precision="bf16", dtype="bf16",
            compute_efficiency=1.0, attention="fused" if self.kernel.startswith("flash") else "written",
            optimizer="sgd", gradient_as_bucket_view=True, spread=0.0, contention=0.0,
            tp=self.tensor, sequence_parallel=self._cuts_tokens, pp=self.pipeline,
            checkpointing=self.checkpointing, batch=self.micro_batches * self.micro_batch,
            micro_batch=self.micro_batch,
        )  # fmt: skip

    @property
    def _cuts_tokens(self) -> bool:
        return self.sequence_parallel == "1" and self.tensor > 1

    @property
    def parameters(self) -> int:
        """Of the rank that has most."""
        stages = _bounds(self.tensor * self.pipeline).stages(_job(self))
        return max(cost.nbytes for cost in stages) // 2

    @property
    def nbytes(self) -> int:
        """What a rank holds: gradients beside parameters in bfloat16, and ZeRO's part of 12 bytes of each."""
        held = _bounds(self.tensor * self.pipeline).nbytes(_job(self))
        return held + 12 * self.parameters // self.replicas


def runs() -> list[Run]:
    """All rows."""
    with Path(__file__).with_name("aleph_alpha.csv").open(encoding="utf-8", newline="") as file:
        return [
            Run(
                model=row["model"], **{name: int(row[name]) for name in Run._fields[1:6]},
                checkpointing=row["checkpointing"], kernel=row["kernel"],
                sequence_parallel=row["sequence_parallel"], status=row["status"],
                step_s=float(row["step_s"] or "nan"),
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip


class Line(NamedTuple):
    """A step as a straight line over the pace: ``fixed_s`` and ``paced_s`` seconds, and what is fitted."""

    run: Run
    fixed_s: float
    paced_s: float
    parameters: int

    def apart_s(self, exchange_s: float, message_s: float) -> float:
        """Return the seconds that do not depend on the pace."""
        return self.fixed_s + exchange_s * self.parameters + message_s * self.run.message_nbytes


def judged() -> list[JudgedRow]:
    """Return the held-out rows."""
    groups = list(_groups())
    found = []
    for file in dict.fromkeys(group[0].run.file for group in groups):
        others = [group for group in groups if group[0].run.file != file]
        rates = min(
            ((exchange_s, message_s) for exchange_s in EXCHANGES_S for message_s in MESSAGES_S),
            key=lambda rates: _error(others, *rates),
        )
        for group in groups:
            if group[0].run.file == file:
                found += list(_judged(group, *rates))
    return found


def counted() -> list[Counted]:
    """Whether a layout runs out of memory, with a reserve from the labels of the other model."""
    rows = [(run, run.nbytes) for run in runs()]
    right = 0
    for model in MODELS:
        others = [one for one in rows if one[0].model != model]
        reserve = max(RESERVES, key=lambda reserve: _right(others, reserve))
        right += _right([one for one in rows if one[0].model == model], reserve)
    ran_out = sum(run.status == "oom" for run, _ in rows)
    return [Counted("runs out of memory or does not", right, len(rows), max(ran_out, len(rows) - ran_out))]


def _right(rows: Sequence[tuple[Run, int]], reserve: int) -> int:
    return sum((nbytes > GPU.memory - reserve) == (run.status == "oom") for run, nbytes in rows)


def _judged(group: Sequence[Line], exchange_s: float, message_s: float) -> Iterator[JudgedRow]:
    *others, sets = group
    pace = (sets.run.step_s - sets.apart_s(exchange_s, message_s)) / sets.paced_s
    for line in others:
        run = line.run
        predicted_s = line.apart_s(exchange_s, message_s) + pace * line.paced_s
        rule_s = sets.run.step_s * _work(run) / _work(sets.run)
        yield JudgedRow(run.series, f"pp {run.pipeline}", run.step_s, predicted_s, rule_s)


def _work(run: Run) -> float:
    """Micro-batches that a step lasts, the bubble with them, times what a stage has."""
    return (run.micro_batches + run.pipeline - 1) / run.pipeline


def _error(groups: Sequence[Sequence[Line]], exchange_s: float, message_s: float) -> float:
    return median(abs(one.error) for group in groups for one in _judged(group, exchange_s, message_s))


def _groups() -> Iterator[tuple[Line, ...]]:
    """Rows that share a pace, the deepest pipeline last."""
    rows = sorted((run for run in runs() if run.status == "ok"), key=lambda run: (run.series, run.pipeline))
    for _, group in groupby(rows, key=lambda run: run.series):
        lines = tuple(map(_line, group))
        if len(lines) > 1:
            yield lines


def _line(run: Run) -> Line:
    bounds = _bounds(run.tensor * run.pipeline)
    once, twice = (bounds.step_s(replace(_job(run), factor=factor)) for factor in (1.0, 2.0))
    return Line(run, 2 * once - twice, twice - once, run.parameters)


@cache
def _bounds(gpus: int) -> Bounds:
    return Bounds(Libraries("nccl", f"dgx-a100:{-(-gpus // 8)}", {}, gpus))


@cache
def _job(run: Run) -> ParallelJob:
    """Return the job with the activations that the authors' code keeps."""
    job, decoder = run.asked.job, run.decoder
    tokens = run.micro_batch * decoder.sequence
    norms = 0
    if not run.kernel.endswith("+rms"):
        norms = NORMS * tokens * decoder.width // (run.tensor if run.sequence_parallel == "1" else 1)
    layers = tuple(_as_kept(layer, tokens, norms, run.checkpointing) for layer in job.parts.layers)
    return replace(job, parts=replace(job.parts, layers=layers))


def _as_kept(layer: RankLayer, tokens: int, norms: int, checkpointing: str) -> RankLayer:
    """Return a layer with the authors' activations, assigned to stages by its time instead of by count."""
    kept, again = layer.kept_nbytes, layer.recomputed_nbytes
    if layer.name == "head":
        kept = LOGITS * tokens * VOCABULARY
    elif layer.name != "embedding" and checkpointing == "none":
        kept += norms
    elif layer.name != "embedding":
        again += norms
    return replace(layer, wrapped=False, kept_nbytes=kept, recomputed_nbytes=again)


TABLE = JudgedTable(
    name="aleph_alpha",
    title="Llama 13B and 30B on A100, one layout from another",
    source="arXiv:2311.05610",
    sets="of rows that differ in pipeline and replicas the deepest pipeline; two rates by other files",
    rule="micro-batches and bubble",
    judged=judged,
    counted=counted,
)
