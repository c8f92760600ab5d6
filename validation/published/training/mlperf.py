"""GPT-3 175B on 512 to 10,752 H100, as MLPerf Training 3.0 and 3.1 have it.

github.com/mlcommons/training_results_v3.0 and _v3.1 (Apache-2.0): the step times that the runs log
(``train_step_timing``, median of medians), and the layouts by which they add up; the environment of eos_n64
names another batch. Interleaved 1F1B with a layer a stage, tensor and sequence parallel ranks whose
exchanges user buffers hide, Apex's DistributedFusedAdam on bfloat16. Of each round the row on 512 GPUs sets
the pace of what is computed. Beside the stages' work a step is then the pipeline's ends with their
messages, the slowest of more GPUs, and the exchange of parameters and gradients. Of the latter the
submissions say that both overlap: here gradients are reduced when all passes are over, for in the
pipeline's last passes they share the cards with its messages, which a program that stands for all replicas
does not see. What is asked is a program of its own, played on a cluster as `program` plays one: a step of
`train` is simulated with its tensor parallelism, which takes minutes on so many GPUs (with gradients and
parameters overlapped it is 0.4 % longer than the step on 4,096). The rule of thumb is work and bubble alone.
"""

import csv
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from ringside.sim.collective import Collective
from ringside.sim.program import Operation, Program
from ringside.sim.program.simulation.jobs import Job, simulate
from ringside.sim.program.simulation.libraries import Libraries
from ringside.sim.training.ddp.job import expected_maximum
from ringside.sim.training.ddp.usual import SPREAD
from ringside.sim.training.distributed_optimizer import DistributedOptimizer
from ringside.sim.training.layers import Pass, RankLayer, Work
from ringside.sim.training.mesh import Communicators, Mesh
from ringside.sim.training.pipeline.messages import Messages
from ringside.sim.training.pipeline.program import find_runtime, prepare
from ringside.sim.training.pipeline.schedules import placement, tables
from ringside.sim.training.rank import RankList
from ringside.sim.training.stage import Stage
from ringside.sim.training.tensor import TensorParallel, rank_layers, tied_embedding
from ringside.sim.workload.decoder import DECODERS
from ringside.sim.workload.devices import device
from ringside.validation.published.training.judging.judged import Judged, TrainingTable

MODEL = replace(DECODERS["gpt3-175b"], vocabulary=51200)
GPU = device("h100")
DTYPE = "bfloat16"
SCHEDULE = "interleaved1f1b"

OPTIMIZER_NBYTES = 28
"""Per parameter of a rank's part: a gradient and a parameter in 2 bytes, three float32 read and written."""

SIMULATED = 16
"""Micro-batches: each beyond them takes as long as the slowest stages' work on it."""


class Submission(NamedTuple):
    """A row; ``virtual`` counts stages a rank, ``data`` the replicas."""

    round: str
    system: str
    tensor: int
    pipeline: int
    virtual: int
    micro_batches: int
    data: int
    step_s: float

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.tensor * self.pipeline * self.data

    @property
    def work(self) -> float:
        """Micro-batches that the step lasts, the bubble with them."""
        return self.micro_batches + (self.pipeline - 1) / self.virtual


def submissions() -> Iterator[Submission]:
    """All rows, those of a round by GPUs."""
    with Path(__file__).with_name("mlperf_gpt3.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            numbers = {name: int(row[name]) for name in Submission._fields[2:7]}
            yield Submission(row["round"], row["system"], **numbers, step_s=float(row["step_s"]))


def judged() -> list[Judged]:
    """The rows of each round but the first."""
    found = []
    rows = list(submissions())
    for number in dict.fromkeys(row.round for row in rows):
        sets, *others = [row for row in rows if row.round == number]
        pace = _solved(sets)
        for row in others:
            rule_s = sets.step_s / sets.work * row.work
            found.append(Judged(row.round, row.system, row.step_s, predicted_s(row, pace), rule_s))
    return found


def predicted_s(row: Submission, pace: float) -> float:
    """A step in which all that is computed takes ``pace`` times what the data sheet's shares make of it."""
    slowest = pace * (1 + SPREAD * expected_maximum(row.gpus))
    layers = tuple(_paced(layer, slowest) for layer in _layers(row.tensor))
    micro_batches = min(row.micro_batches, SIMULATED)
    more_s = (row.micro_batches - micro_batches) * _stages_s(layers, row.pipeline)
    return _simulated_s(row, layers, micro_batches) + more_s


def program(row: Submission, layers: tuple[RankLayer, ...], micro_batches: int) -> Program:
    """The step, in which all ranks of a place along the pipeline do the same."""
    mesh = Mesh(tensor=row.tensor, replicate=row.data, pipeline=row.pipeline)
    communicators, where = Communicators(mesh), placement(SCHEDULE, row.pipeline, row.virtual)
    runtime = find_runtime("megatron-overlap", SCHEDULE)
    lists = prepare(tables(SCHEDULE, row.pipeline, row.virtual, micro_batches), where, runtime)
    between = MODEL.sequence * MODEL.width * 2 // row.tensor
    tied = Collective("all_reduce", 2, tied_embedding(MODEL, TensorParallel(degree=row.tensor), DTYPE).nbytes)

    @cache
    def operations(number: int) -> list[Operation]:
        rank, place = RankList(number, communicators), mesh.place(number)["pipeline"]
        shared = partial(DistributedOptimizer, rank, gradients=DTYPE, reduces_early=False)
        stages = {}
        for stage in where.of(place):
            own = _stage(layers, stage, where.stages)
            stages[stage] = Stage(rank, own, shared(own), f"stage {stage}")
        runtime(Messages(rank, where, between), stages, lists[place])
        ranks = mesh.together(number, "pipeline")
        if place in (0, row.pipeline - 1):
            ends = communicators.of((ranks[0], ranks[-1]), "embedding")
            rank.wait(rank.call(ends, tied, "gradients of the embedding"))
        for one in stages.values():
            one.sharing.after_step()
        parameters = sum(layer.nbytes for one in stages.values() for layer in one.layers) / 2
        updated = parameters / row.data * OPTIMIZER_NBYTES
        rank.compute(updated / GPU.streaming, "optimizer", "optimizer")
        return rank.operations

    return Program(f"{row.round} {row.system}", mesh.ranks, operations)


def _simulated_s(row: Submission, layers: tuple[RankLayer, ...], micro_batches: int) -> float:
    alike = row.gpus // row.pipeline
    roles = tuple(rank // alike * alike for rank in range(row.gpus))
    job = Job(program(row, layers, micro_batches), tuple(range(row.gpus)), roles)
    libraries = Libraries("nccl", f"dgx-h100:{row.gpus // 8}", {}, row.gpus)
    return simulate([job], libraries)[0].makespan_s


@cache
def _layers(tensor: int) -> tuple[RankLayer, ...]:
    """What a rank has, its tensor-parallel exchanges hidden: their share of the time is the pace's."""
    parallel = TensorParallel(degree=tensor, sequence=True)
    return tuple(_paced(layer, 1.0) for layer in rank_layers(MODEL, GPU.roofline(DTYPE), parallel=parallel))


def _paced(layer: RankLayer, pace: float) -> RankLayer:
    def whole(parts: Pass) -> Pass:
        return (Work(pace * sum(part.seconds for part in parts if isinstance(part, Work))),)

    return replace(layer, forward=whole(layer.forward), backward=whole(layer.backward))


def _stage(layers: tuple[RankLayer, ...], stage: int, stages: int) -> tuple[RankLayer, ...]:
    """A stage's layers: as many in each, the embedding in the first and the head in the last."""
    each = MODEL.layers // stages
    first, last = 1 + stage * each, 1 + (stage + 1) * each
    return layers[0 if stage == 0 else first : len(layers) if stage == stages - 1 else last]


def _stages_s(layers: tuple[RankLayer, ...], pipeline: int) -> float:
    """What a micro-batch takes in the stages of the slowest rank, which has the head."""

    def both(layer: RankLayer) -> float:
        return sum(part.seconds for part in (*layer.forward, *layer.backward) if isinstance(part, Work))

    return MODEL.layers / pipeline * both(layers[1]) + both(layers[-1])


def _solved(row: Submission) -> float:
    """Return the compute rate that reproduces the row's published time."""
    pace = 1.0
    for _ in range(2):
        work_s = row.work * _stages_s(_layers(row.tensor), row.pipeline)
        slowest = 1 + SPREAD * expected_maximum(row.gpus)
        pace += (row.step_s - predicted_s(row, pace)) / (work_s * slowest)
    return pace


TABLE = TrainingTable(
    name="mlperf",
    title="GPT-3 175B in MLPerf on 512 to 10,752 H100",
    source="github.com/mlcommons/training_results_v3.0 and _v3.1",
    sets="of each round the row on 512 GPUs",
    rule="micro-batches and bubble",
    judged=judged,
)
