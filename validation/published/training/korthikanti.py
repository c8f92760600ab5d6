"""Iterations of large GPT models with full and with selective checkpointing, on NVIDIA's Selene.

Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv:2205.05198, table
5; layouts as github.com/calculon-ai/calculon writes them down (calculon/llm/validation.py @ caa4b11f8fe1).
DGX A100, attention that writes its scores, no data parallelism. Of each model the row with full
checkpointing and no sequence parallelism sets the efficiency of products, and the row with selective
checkpointing and sequence parallelism is judged. A rule of thumb counts the passes: full checkpointing
takes 4 for 3.
"""

import csv
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from ringside.sim.collective import Collective
from ringside.sim.libraries.nccl.communicator import communicator
from ringside.sim.libraries.nccl.library import Nccl
from ringside.sim.training.groups import CollectiveTime, library_time
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.tensor import Numerics, TensorParallel, pass_s, rank_layers
from ringside.sim.workload.decoder import DECODERS, Decoder
from ringside.sim.workload.devices import device
from ringside.validation.published.training.efficiency import solved
from ringside.validation.published.training.judged import Judged, TrainingTable

VOCABULARY = 51200


class Iteration(NamedTuple):
    """A row of the table; ``virtual`` counts stages a rank."""

    model: str
    layers: int
    width: int
    heads: int
    tensor: int
    pipeline: int
    virtual: int
    batch: int
    micro_batch: int
    checkpointing: str
    sequence_parallel: bool
    step_s: float

    @property
    def decoder(self) -> Decoder:
        """The model."""
        return replace(
            DECODERS["gpt3-175b"], name=self.model, layers=self.layers, width=self.width, heads=self.heads,
            key_value_heads=self.heads, hidden=4 * self.width, vocabulary=VOCABULARY,
        )  # fmt: skip


def iterations() -> Iterator[Iteration]:
    """All rows."""
    with Path(__file__).with_name("korthikanti.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            numbers = {name: int(row[name]) for name in Iteration._fields[1:9]}
            yield Iteration(
                model=row["model"], **numbers, checkpointing=row["checkpointing"],
                sequence_parallel=row["sequence_parallel"] == "1", step_s=float(row["step_s"]),
            )  # fmt: skip


def predicted_s(row: Iteration, efficiency: float) -> float:
    """An iteration with products at this share of the peak.

    Micro-batches pass the stage that has the output product one after another; the pipeline fills and
    drains in (p - 1) / v stages' time and as many messages as lie on that way.
    """
    layers = rank_layers(
        row.decoder, device("a100").roofline("float16", efficiency), micro_batch=row.micro_batch,
        parallel=TensorParallel(degree=row.tensor, sequence=row.sequence_parallel),
        numerics=Numerics(checkpointing=row.checkpointing, fused=False, dropout=True),
    )  # fmt: skip
    time = _time(1, row.tensor)
    first, layer, last = (_both_ways_s(one, time) for one in (layers[0], layers[1], layers[-1]))
    body, micro_batches = layer * row.layers / row.pipeline, row.batch // row.micro_batch
    if row.pipeline == 1:
        return micro_batches * (first + body + last)
    sent = Collective("sendrecv", 2, 2 * row.micro_batch * 2048 * row.width // row.tensor)
    ends = 2 * ((row.virtual - 1) * row.pipeline + row.pipeline - 1) * _time(2, 1)(sent)
    return micro_batches * (body + last) + (row.pipeline - 1) / row.virtual * body + ends


def judged() -> list[Judged]:
    """The rows with selective checkpointing."""
    found = []
    rows = list(iterations())
    for sets, row in zip(rows[::2], rows[1::2], strict=True):
        efficiency = solved(partial(predicted_s, sets), sets.step_s)
        rule_s = sets.step_s * 3 / 4
        found.append(Judged(row.model, "selective", row.step_s, predicted_s(row, efficiency), rule_s))
    return found


@cache
def _time(nodes: int, gpus: int) -> CollectiveTime:
    return library_time(Nccl(communicator("dgx-a100", nodes, gpus)))


def _both_ways_s(layer: RankLayer, time: CollectiveTime) -> float:
    return sum(pass_s(one, time) for one in (layer.forward, layer.recomputed, layer.backward))


TABLE = TrainingTable(
    name="korthikanti",
    title="Selective checkpointing on A100",
    source="arXiv:2205.05198, table 5",
    sets="of each model the row with full checkpointing",
    rule="3/4 of full checkpointing",
    judged=judged,
)
