"""Weak scaling of large models on 8 to 256 H100, as NVIDIA's DGX Cloud benchmarks publish it.

github.com/NVIDIA/dgxc-benchmarking, the tables "Training step time" of releases v24.11.1 to v25.05 (README
files; rows that a later release repeats are left out). A step of a series has as many micro-batches on each
GPU whatever their count, so the row on the fewest GPUs sets what a step computes and nothing else is fitted.
On more GPUs the slowest of more is waited for, by the spread that other publications show
(`ringside.sim.training.ddp.usual.SPREAD`), and what no compute hides of the exchange with Megatron's
distributed optimizer is another: of a pipeline the gradients of a stage, which are reduced when all passes
are over; else a bucket of gradients and one of parameters. A fused update streams a part of the stage's
parameters and their moments through memory at the data sheet's rate. Adapters (LoRA) exchange next to
nothing. JAX's steps (maxtext, paxml) shard all parameters among all GPUs and are what `train` answers for
FSDP1, with full checkpointing of the large models, at the efficiency that the first row implies. Clipping
was left out of them in view of these rows: with it their median is 1.3 % instead of 1.1 %. All other rows
(nemo) are scaled from their first one instead of asked of `train`, which has neither adapters nor Nemotron's
models; of Llama 3.1 8B its answers come out 0.2 to 0.5 % too quick, and these 0.2 % at the most. The naive
rule is a constant speed of a GPU.
"""

import csv
import re
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from ringside.sim.collective import Collective
from ringside.sim.program.simulation.libraries import Libraries
from ringside.sim.training.ddp.job import expected_maximum
from ringside.sim.training.ddp.usual import SPREAD
from ringside.sim.training.mesh import Mesh
from ringside.sim.workload.devices import device
from ringside.validation.published.training.judging.efficiency import solved
from ringside.validation.published.training.judging.judged import Judged, TrainingTable
from ringside.validation.published.training.mlperf import OPTIMIZER_NBYTES
from ringside.validation.questions.question import Question, question

BUCKET_NBYTES = 200_000_000
"""100 million parameters in bfloat16: the buckets of the recipes have 50 to 220 million."""

ITEMSIZE = 2
"""Bytes of a gradient and of a parameter on their way: bfloat16."""


SHARDED = {
    "llama2-70b": "llama2-70b",
    "llama3-70b": "llama3-70b",
    "gpt3-175b": "gpt3-175b:2048,vocabulary=51200",
    # Paxml's: 24 layers of GPT-3's next width, in sequences of 2,048
    "gpt3-5b": "gpt3-6.7b:2048,layers=24,vocabulary=51200",
}
"""Models of fully sharded steps, each in sequences of its own length."""


class Step(NamedTuple):
    """A row; degrees are 0 where a framework shards all parameters among all GPUs.

    ``tuning`` is lora or sft, empty for pre-training; ``batch`` counts the sequences of a step.
    """

    release: str
    framework: str
    model: str
    tuning: str
    precision: str
    sequence: int
    gpus: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    virtual: int
    micro_batch: int
    batch: int
    step_s: float

    @property
    def series(self) -> tuple[object, ...]:
        """What the rows of a series have in common: all but the GPUs, with as many sequences for each."""
        return (*self[:6], *self[7:13], self.batch / self.gpus)

    @property
    def parameters(self) -> float:
        """Those of a GPU, by the model's name."""
        found = re.search(r"(\d+)b", self.model)
        return (
            1e9 * float(found[1]) / self.mesh.tensor / self.mesh.pipeline / max(self.expert, 1)
            if found
            else 0
        )

    @property
    def mesh(self) -> Mesh:
        """How the GPUs are laid out."""
        within = max(self.tensor, 1) * max(self.pipeline, 1)
        return Mesh(tensor=max(self.tensor, 1), replicate=self.gpus // within, pipeline=max(self.pipeline, 1))


def steps() -> Iterator[Step]:
    """All rows, a series after the other, each by GPUs."""
    with Path(__file__).with_name("dgxc.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            words = [row[name] for name in Step._fields[:5]]
            numbers = [int(row[name] or 0) for name in Step._fields[5:14]]
            yield Step._make([*words, *numbers, float(row["step_s"])])


def predicted_s(row: Step, sets: Step) -> float:
    """A step on as many GPUs as the row has, from that of ``sets``."""
    if not row.tensor:
        return sharded(row, _efficiency(sets)).step().step_s
    slower = _slowest(row.gpus) / _slowest(sets.gpus)
    return (sets.step_s - exposed_s(sets)) * slower + exposed_s(row)


def sharded(row: Step, efficiency: float) -> Question:
    """A fully sharded step with products at this share of bfloat16's peak."""
    large = row.parameters > 10e9
    return question(
        SHARDED[row.model], f"dgx-h100:{row.gpus // 8}", precision="bf16", reduce_dtype="bf16",
        strategy="fsdp1", compute_efficiency=efficiency,
        batch=row.micro_batch, micro_batch=row.micro_batch, checkpointing="full" if large else "none",
    )  # fmt: skip


def exposed_s(row: Step) -> float:
    """Seconds of the step in which a rank exchanges or updates parameters and computes nothing."""
    ranks = row.mesh.replicate // max(row.expert, 1)
    if row.tuning == "lora" or ranks == 1:
        return 0.0
    group = tuple(range(0, row.gpus // row.mesh.pipeline, row.tensor * max(row.expert, 1)))
    nbytes = ITEMSIZE * row.parameters
    sent = int(nbytes if row.pipeline > 1 else min(nbytes, BUCKET_NBYTES)) // ranks * ranks
    kinds = ("reduce_scatter",) if row.pipeline > 1 else ("reduce_scatter", "all_gather")
    library = _libraries(row.gpus).of(group)
    calls = [Collective(kind, ranks, sent) for kind in kinds]
    exchanged_s = sum(library.time(call, library.choose(call)).time_s for call in calls)
    return exchanged_s + row.parameters / ranks * OPTIMIZER_NBYTES / device("h100").memory_bandwidth


def judged() -> list[Judged]:
    """All rows but the first of each series."""
    found = []
    for _, group in groupby(steps(), key=lambda row: row.series):
        sets, *others = group
        degrees = zip(("tp", "pp", "cp", "ep"), sets[7:11], strict=True)
        layout = " ".join(f"{name}{degree}" for name, degree in degrees if degree > 1)
        words = (sets.release, sets.framework, sets.model, sets.tuning, sets.precision, layout)
        series = " ".join(word for word in words if word)
        for row in others:
            predicted = predicted_s(row, sets)
            found.append(Judged(series, f"on {row.gpus}", row.step_s, predicted, sets.step_s, sets.framework))
    return found


@cache
def _efficiency(row: Step) -> float:
    most = device("h100").narrower
    return solved(lambda share: sharded(row, share).step().step_s, row.step_s, most)


def _slowest(gpus: int) -> float:
    return 1 + SPREAD * expected_maximum(gpus)


@cache
def _libraries(gpus: int) -> Libraries:
    return Libraries("nccl", f"dgx-h100:{gpus // 8}", {}, gpus)


TABLE = TrainingTable(
    name="dgxc",
    title="Llama, Nemotron and GPT-3 on 8 to 256 H100, weak scaling",
    source="github.com/NVIDIA/dgxc-benchmarking v24.11.1 to v25.05",
    sets="of each series the row on the fewest GPUs",
    rule="constant speed of a GPU",
    judged=judged,
)
