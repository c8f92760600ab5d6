"""Layouts of Llama 13B and 30B on 32 to 256 A100: their steps, and which ran out of memory.

Hagemann et al., "Efficient Parallelization Layouts for Large-Scale Distributed Model Training",
arXiv:2311.05610; github.com/Aleph-Alpha/NeurIPS-WANT-submission-efficient-parallelization-layouts @
e13c2cb56123, data/: DGX A100 of 80 GB, 1F1B, ZeRO 1, bfloat16, 4.2 million tokens a step. Among rows that
differ only in pipeline and replicas, the one with the deepest pipeline sets the pace of compute for the
others. Stages are as even as whole layers allow. Two rates are fitted, for each file on all others: of the
exposed exchange of gradients and parameters between replicas, and of messages between stages, which delay
both stages. The naive rule counts micro-batches and the bubble. The prediction is the bound by which
`train --search` prunes layouts, of one replica: hundreds of micro-batches are not simulated. With nothing
known, replicas exchange as the authors' later code does (github.com/Aleph-Alpha/scaling @ 01b9d21dbafb,
src/scaling/core/optimizer): after the last backward they sum gradients in float32, and gather parameters
after the optimizer. Memory is what that code keeps
(`ringside.validation.published.training.aleph_alpha.kept`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import groupby
from statistics import median
from typing import NamedTuple

from ringside.sim.collective import Collective
from ringside.sim.program.groups import library_time
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.layout import Layout
from ringside.sim.training.memory.communicators import communicators_nbytes
from ringside.sim.training.memory.room import Room, room_of
from ringside.sim.training.mesh import DATA, Mesh
from ringside.sim.training.search.bounds import Bounds
from ringside.sim.workload.decoder import Decoder, decoder
from ringside.sim.workload.devices import device
from ringside.validation.published.training.aleph_alpha.kept import LlamaLayer, head
from ringside.validation.published.training.rows import read_rows
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard import labels
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import Counted, JudgedRow, JudgedTable
from ringside.validation.scorecard.labels import MemoryLabel

MODELS = {"llama-13B": (40, 5120, 40, 13824), "llama-30B": (60, 6656, 52, 17920)}
"""Layers, width, heads, width of the feed-forward network; the vocabulary follows from the published MFU."""

VOCABULARY = 128000
TOKENS = 1 << 22
GPU = device("a100")

EXCHANGES_S = tuple(1e-10 * number for number in range(13))
"""Seconds per parameter of a rank that the exchange between replicas may take; the other files choose."""

MESSAGES_S = tuple(3e-11 * number for number in range(14))
"""Seconds per byte of activations between stages, likewise."""

COPIED = 30
"""Bytes per parameter that the authors' optimizer copies around the sum of gradients: they are flattened
(4), divided (4), cast to float32 and back (12), put back (4), scaled (4) and squared (2)."""


class LlamaLayout(NamedTuple):
    """A row; ``sequence_parallel`` is empty where the file omits it, ``step_s`` NaN out of memory."""

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
        """The series: the name of rows that share a pace, which one of them sets."""
        again = f", sequence parallel {self.sequence_parallel}" if self.sequence_parallel else ""
        return (
            f"{self.model} {self.sequence} {self.kernel} {self.checkpointing} tp {self.tensor} "
            f"mb {self.micro_batch} on {self.gpus}{again}"
        )

    @property
    def file(self) -> tuple[str, int, int]:
        """The file of the row: model, sequence and GPUs."""
        return self.model, self.sequence, self.gpus

    @property
    def replicas(self) -> int:
        """Data-parallel ranks."""
        return self.gpus // self.tensor // self.pipeline

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches in a replica's step."""
        return TOKENS // self.sequence // self.replicas // self.micro_batch

    @property
    def message_nbytes(self) -> int:
        """Bytes of activations that leave a stage in a step."""
        each = self.micro_batch * self.sequence * self.decoder.width * 2
        return each * self.micro_batches if self.pipeline > 1 else 0

    @property
    def is_flash(self) -> bool:
        """Whether attention is one kernel."""
        return self.kernel.startswith("flash")

    @property
    def layer(self) -> LlamaLayer:
        """What one of its layers keeps on a rank."""
        _, width, heads, hidden = MODELS[self.model]
        return LlamaLayer(
            self.micro_batch * self.sequence, self.micro_batch, width, heads, hidden, self.tensor,
            self._cuts_tokens, self.kernel.endswith("+rms"), self.is_flash,
        )  # fmt: skip

    @property
    def stack(self) -> str:
        """The stack of `train` with this norm and attention."""
        if self.kernel == "torch":
            return "aleph-torch"
        return "aleph-rms" if self.kernel.endswith("+rms") else "aleph"

    @property
    def whole(self) -> StepTime:
        """The training of all replicas, with nothing known."""
        return replace(
            self.training, cluster=f"dgx-a100:{self.gpus // 8}", ranks=self.gpus, compute_efficiency=None,
            strategy="distributed_optimizer" if self.replicas > 1 else "ddp", optimizer="adam",
            gradient_as_bucket_view=False, spread=None,
            contention=None,
        )  # fmt: skip

    @property
    def training(self) -> StepTime:
        """The training of one replica, at the GPU's peak."""
        gpus = self.tensor * self.pipeline
        return StepTime(
            model=self._model, cluster=f"dgx-a100:{-(-gpus // 8)}",
            ranks=gpus, precision="bf16", dtype="bf16",
            compute_efficiency=1.0, stack=self.stack, attention="flash" if self.is_flash else "unfused",
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
        """The number of parameters of the rank that has most."""
        stages = _bounds(self.tensor * self.pipeline).stages(_job(self))
        return max(cost.nbytes for cost in stages) // 2

    @property
    def nbytes(self) -> int:
        """Bytes of a rank: parameters and gradients in bfloat16, and its share of ZeRO's 12 per parameter."""
        held = _bounds(self.tensor * self.pipeline).nbytes(_job(self))
        return held + 12 * self.parameters // self.replicas

    @property
    def room(self) -> Room:
        """The room of a GPU beside the communicators of all replicas."""
        mesh = Mesh(tensor=self.tensor, shard=self.replicas, pipeline=self.pipeline)
        nccl = communicators_nbytes(mesh, Layout(tp=self.tensor, pp=self.pipeline), _libraries(self.gpus))
        return room_of(GPU, nccl=sum(nccl.values()), stack=self.stack)


def layouts() -> list[LlamaLayout]:
    """Return all rows."""
    return read_rows(LlamaLayout, "aleph_alpha/layouts.csv")


class PacedStep(NamedTuple):
    """A step that is linear in the pace: ``fixed_s`` plus pace times ``paced_s`` seconds."""

    layout: LlamaLayout
    fixed_s: float
    paced_s: float
    parameters: int

    def apart_s(self, exchange_s: float, message_s: float) -> float:
        """Return the seconds that do not depend on the pace."""
        return self.fixed_s + exchange_s * self.parameters + message_s * self.layout.message_nbytes


def judged() -> list[JudgedRow]:
    """Return the held-out rows."""
    groups = list(_groups())
    results = []
    for file in dict.fromkeys(group[0].layout.file for group in groups):
        others = [group for group in groups if group[0].layout.file != file]
        rates = min(
            ((exchange_s, message_s) for exchange_s in EXCHANGES_S for message_s in MESSAGES_S),
            key=lambda rates: _error(others, *rates),
        )
        for group in groups:
            if group[0].layout.file == file:
                results += list(_judged(group, *rates))
    return results


def counted() -> list[Counted]:
    """Count what is said about memory of layouts that ran, and of those that ran out of it."""
    return labels.counted(
        MemoryLabel(layout.status == "ok", layout.room.verdict(nbytes), nbytes <= GPU.memory)
        for layout in layouts() for nbytes in [layout.nbytes]
    )  # fmt: skip


def absolute() -> list[JudgedRow]:
    """Return all rows that fitted into memory, with nothing known."""
    return [
        alone(
            "aleph_alpha", f"{layout.series} pp {layout.pipeline}", layout.step_s,
            _bounds(layout.gpus).step_s(_as_theirs(layout, layout.whole.job)) + _update_s(layout),
            layout.whole,
        )
        for layout in layouts() if layout.status == "ok"
    ]  # fmt: skip


def _update_s(layout: LlamaLayout) -> float:
    """Return the seconds from the last backward to the next forward."""
    job, parameters = layout.whole.job, layout.parameters
    own_s = job.optimizer.seconds(4 * parameters // layout.replicas, GPU.memory_bandwidth)
    if layout.replicas == 1:
        return own_s
    time = library_time(_libraries(layout.gpus).of(job.mesh.together(0, *DATA)))
    summed = Collective("all_reduce", layout.replicas, 4 * parameters, dtype="float32")
    gathered = Collective("all_gather", layout.replicas, 2 * parameters, dtype="bfloat16")
    return time(summed) + time(gathered) + COPIED * parameters / GPU.streaming + own_s


def _judged(group: Sequence[PacedStep], exchange_s: float, message_s: float) -> Iterator[JudgedRow]:
    *others, sets = group
    pace = (sets.layout.step_s - sets.apart_s(exchange_s, message_s)) / sets.paced_s
    for line in others:
        layout = line.layout
        predicted_s = line.apart_s(exchange_s, message_s) + pace * line.paced_s
        rule_s = sets.layout.step_s * _work(layout) / _work(sets.layout)
        yield JudgedRow(layout.series, f"pp {layout.pipeline}", layout.step_s, predicted_s, rule_s)


def _work(layout: LlamaLayout) -> float:
    """Return the length of a step in micro-batches, the bubble included, times a stage's share of layers."""
    return (layout.micro_batches + layout.pipeline - 1) / layout.pipeline


def _error(groups: Sequence[Sequence[PacedStep]], exchange_s: float, message_s: float) -> float:
    return median(abs(one.error) for group in groups for one in _judged(group, exchange_s, message_s))


def _groups() -> Iterator[tuple[PacedStep, ...]]:
    """Yield the steps of each series, the deepest pipeline last."""
    rows = sorted(
        (layout for layout in layouts() if layout.status == "ok"),
        key=lambda layout: (layout.series, layout.pipeline),
    )
    for _, group in groupby(rows, key=lambda layout: layout.series):
        lines = tuple(map(_line, group))
        if len(lines) > 1:
            yield lines


def _line(layout: LlamaLayout) -> PacedStep:
    bounds = _bounds(layout.tensor * layout.pipeline)
    once, twice = (bounds.step_s(replace(_job(layout), factor=factor)) for factor in (1.0, 2.0))
    return PacedStep(layout, 2 * once - twice, twice - once, layout.parameters)


@cache
def _bounds(gpus: int) -> Bounds:
    return Bounds(_libraries(gpus))


@cache
def _libraries(gpus: int) -> Libraries:
    return Libraries("nccl", f"dgx-a100:{-(-gpus // 8)}", {}, gpus)


@cache
def _job(layout: LlamaLayout) -> ParallelJob:
    """Return the job of one replica."""
    return _as_theirs(layout, layout.training.job)


def _as_theirs(layout: LlamaLayout, job: ParallelJob) -> ParallelJob:
    """Return a job with the activations that the authors' code keeps, stages by time instead of by count."""
    layers = tuple(_as_kept(layout, layer) for layer in job.model.layers)
    return replace(job, model=replace(job.model, layers=layers, letters=""))


def _as_kept(layout: LlamaLayout, layer: RankLayer) -> RankLayer:
    """Return a layer with what the authors' own keeps, and recomputes or takes for a moment in backward."""
    own, kept, again = layout.layer, 0, 0
    if layer.name == "head":
        kept = head(own.tokens, VOCABULARY, own.width, layout.tensor)
    elif layer.name == "embedding":  # a stage holds the output that it has sent
        kept = own.between if layout.pipeline > 1 else 0
    else:
        whole = sum(own.kept.values())
        kept = whole if layout.checkpointing == "none" else own.between
        again = whole - kept + own.passing
    return replace(
        layer, wrapped=False, kept=(("the authors' own", kept),), recomputed_nbytes=again,
        forward_nbytes=0, backward_nbytes=0,
    )  # fmt: skip


TABLE = JudgedTable(
    name="aleph_alpha",
    title="Llama 13B and 30B on A100, one layout from another",
    source="arXiv:2311.05610",
    sets="the deepest pipeline among rows that differ in pipeline and replicas; two rates by other files",
    rule="micro-batches and bubble",
    judged=judged,
    absolute=absolute,
    counted=counted,
)
