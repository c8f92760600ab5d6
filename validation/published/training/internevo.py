"""InternLM 7B under InternEvo's hybrid ZeRO-1 on 8 to 128 A100: groups of a machine's ranks, or of all.

github.com/InternLM/InternEvo, doc/en/train_performance.md @ c628a8c87411 (Apache-2.0): tokens a second of a
GPU, sequences of 2,048, a step of 16,384 tokens a GPU. Machines have 8 A100 of 80 GB and four cards of
100 Gb/s (RoCE), as ABCI's (A) node with slower cards. Of each series the row on 8 GPUs sets the pace.

One number is fitted, for each row on all others: how much longer than NCCL's tuner believes a broadcast takes
for each rank that it passes, which the tuner's figures have for small buffers alone. A step has a broadcast
for each rank of the group, one after another, so that it matters by the square of the group. The naive
rule is a constant speed of each GPU.
"""

import csv
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from sim.program.libraries import Libraries
from sim.training.ddp.job import Costs
from sim.training.ddp.usual import SPREAD, contention
from sim.training.layout import Layout
from sim.training.memory import find_optimizer
from sim.training.mesh import DATA
from sim.training.parallel.decoder import parts_of_decoder
from sim.training.parallel.job import ParallelJob
from sim.training.parallel.simulate import simulate_parallel
from sim.training.zero.partition import dealt
from sim.workload.decoder import DECODERS
from sim.workload.devices import device
from validation.published.training.judged import Judged, TrainingTable

MODEL = replace(DECODERS["llama2-7b"], name="internlm-7b", vocabulary=103_168, sequence=2048)
"""Llama's shape with its own vocabulary (InternEvo, configs/7B_sft.py)."""

GPU = device("a100")
CLUSTER, CARDS = "abci-a100", {"nic": "12.5GB/s"}
MACHINE = 8

TOKENS = 16_384
"""Of a step and GPU."""

HOP_S = (0.0, 2.5e-6, 5e-6, 7.5e-6, 1e-5, 1.5e-5, 2e-5)
"""Seconds for each rank that a broadcast passes, of which all other rows choose."""


class Run(NamedTuple):
    """A row; optimizers are dealt out among ``group`` ranks, ``tokens_per_s`` are a GPU's."""

    tensor: int
    group: int
    micro_batch: int
    checkpointing: str
    gpus: int
    tokens_per_s: float

    @property
    def spans(self) -> bool:
        """Whether all data-parallel ranks are one group."""
        return self.group * self.tensor == self.gpus

    @property
    def layout(self) -> Layout:
        """As InternEvo lays it out."""
        return Layout(
            strategy="hybrid_zero", tensor=self.tensor, shard=self.group, micro_batch=self.micro_batch,
            checkpointing=self.checkpointing, clips=True,
        )  # fmt: skip

    @property
    def step_s(self) -> float:
        """Seconds of a step, as measured."""
        return TOKENS / self.tokens_per_s


def runs() -> Iterator[tuple[str, list[Run]]]:
    """The rows of each series, by its name, from the fewest GPUs on."""
    with Path(__file__).with_name("internevo.csv").open(encoding="utf-8", newline="") as file:
        rows = [
            Run(
                int(row["tensor"]), int(row["group"]), int(row["micro_batch"]), row["checkpointing"],
                int(row["gpus"]), float(row["tokens_per_s"]),
            )
            for row in csv.DictReader(file)
        ]  # fmt: skip
    # a group of a machine's ranks spans all of them on one machine: there the series stand one after another
    starts = [place for place, row in enumerate(rows) if row.gpus == MACHINE]
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        own = rows[start:stop]
        group = "all" if own[-1].spans else own[-1].group
        yield f"tensor {own[0].tensor}, groups of {group}, checkpointing {own[0].checkpointing}", own


def predicted_s(row: Run, factor: float, hop_s: float) -> float:
    """A step whose layers take ``factor`` times what a data sheet's shares make of them."""
    return _simulated_s(row, factor) + hop_s * passed(row)


def passed(row: Run) -> int:
    """How many ranks the broadcasts of a step pass in all."""
    layers = parts_of_decoder(MODEL, row.layout, GPU.roofline("bfloat16"), "bfloat16").layers
    parts = dealt([tensor for layer in layers for tensor in layer.parameters], row.group)
    return sum(map(bool, parts)) * (row.group - 1)


def judged() -> list[Judged]:
    """The rows on more than one machine."""
    rows = [(name, own[0], row) for name, own in runs() for row in own[1:]]
    steps = {
        hop_s: [predicted_s(row, _factor(sets, hop_s), hop_s) for _, sets, row in rows] for hop_s in HOP_S
    }
    off = {
        hop_s: [abs(found / row.step_s - 1) for found, (_, _, row) in zip(steps[hop_s], rows, strict=True)]
        for hop_s in HOP_S
    }
    found = []
    for place, (name, sets, row) in enumerate(rows):
        hop_s = min(HOP_S, key=lambda one: fmean([*off[one][:place], *off[one][place + 1 :]]))
        found.append(
            Judged(
                f"InternLM 7B, {name}, from {sets.gpus}", f"on {row.gpus}", row.step_s, steps[hop_s][place],
                sets.step_s, "groups of all" if row.spans else "groups of a machine's",
            )
        )  # fmt: skip
    return found


@cache
def _simulated_s(row: Run, factor: float) -> float:
    libraries, layout = _libraries(row.gpus), row.layout
    mesh = layout.mesh(row.gpus, MACHINE)
    taken = contention(libraries.of(mesh.together(0, *DATA)), GPU)
    job = ParallelJob(
        parts=parts_of_decoder(MODEL, layout, GPU.roofline("bfloat16"), "float32"), layout=layout, mesh=mesh,
        batch=TOKENS // MODEL.sequence * row.tensor, optimizer=find_optimizer("adam"), precision="bfloat16",
        costs=Costs(memory_bandwidth=GPU.streaming, spread=SPREAD, contention=taken), factor=factor,
    )  # fmt: skip
    return simulate_parallel(job, libraries).step_s


@cache
def _factor(row: Run, hop_s: float) -> float:
    """The factor with which the row's step takes as long as it was measured."""
    factor = 1.0
    for _ in range(3):
        factor *= row.step_s / predicted_s(row, factor, hop_s)
    return factor


@cache
def _libraries(gpus: int) -> Libraries:
    return Libraries("nccl", f"{CLUSTER}:{gpus // MACHINE}", CARDS, gpus)


TABLE = TrainingTable(
    name="internevo",
    title="InternLM 7B under InternEvo's hybrid ZeRO on 8 to 128 A100",
    source="github.com/InternLM/InternEvo, doc/en/train_performance.md @ c628a8c87411",
    sets="of each series the row on 8 GPUs; a broadcast's time a rank by all other rows",
    rule="constant tokens a second of a GPU",
    judged=judged,
)
