"""GPT of 1.7 to 530 billion parameters under Megatron-LM of 2021 on A100 and of 2024 on H100.

github.com/NVIDIA/Megatron-LM, the README's pictures: images/cases_april2021.png (50a4b5fa02; Narayanan et
al., arXiv:2104.04473, table 1) and images/model_table.png (f2e5db402c, Megatron-core 0.8); and table 2 of the
same paper, with DeepSpeed's ZeRO 3. They print FLOP/s of a GPU: in 2021 with what full checkpointing
recomputes, in 2024 without, both with attention's whole square. The tables of sizes do not say their
micro-batches: the middle power of two between one sequence and all of a replica is taken, and they are judged
with nothing known alone. Of the others the first row of each software sets the efficiency of products; the
naive rule is a constant utilization.
"""

from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from ringside.sim.workload.decoder import decoder
from ringside.validation.published.training.rows import read_rows
from ringside.validation.published.training.steps import ONE_BUCKET_MB, solved, whole_s
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable


class ReadmeStep(NamedTuple):
    """A row; ``micro_batch`` is 0 where not printed, ``batch`` counts the sequences of a step."""

    part: str
    gpu: str
    model: str
    layers: int
    width: int
    heads: int
    sequence: int
    vocabulary: int
    tensor: int
    pipeline: int
    gpus: int
    micro_batch: int
    batch: int
    checkpointing: str
    tflops: float

    @property
    def decoder(self) -> str:
        """The model."""
        shape = f"layers={self.layers},width={self.width},heads={self.heads},vocabulary={self.vocabulary}"
        return f"gpt3-175b:{self.sequence},{shape},positions={self.sequence}"

    @property
    def flops(self) -> float:
        """The FLOPs of a GPU in a step, as the table counts them."""
        model = decoder(self.decoder)
        return self.batch / self.gpus * (model.training_flops() + model.recomputed_flops(self.checkpointing))

    @property
    def step_s(self) -> float:
        """Seconds of a step, as measured."""
        return self.flops / self.tflops / 1e12

    @property
    def replica_batch(self) -> int:
        """The sequences of a replica in a step."""
        return self.batch * self.tensor * self.pipeline // self.gpus

    @property
    def together(self) -> int:
        """The sequences of a micro-batch."""
        return self.micro_batch or 2 ** ((self.replica_batch.bit_length() - 1) // 2)

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches of a replica."""
        return self.replica_batch // self.together

    def training(self, efficiency: float | None, micro_batches: int) -> StepTime:
        """Return the training of some micro-batches, products at this share of the peak or by kernels."""
        layout = StepTime(
            model=self.decoder, cluster=f"dgx-{self.gpu}:{self.gpus // 8}", compute_efficiency=efficiency,
            tp=self.tensor, pp=self.pipeline, batch=micro_batches * self.together, micro_batch=self.together,
            checkpointing=self.checkpointing, precision="fp16", dtype="fp16", stack="megatron", dropout=True,
        )  # fmt: skip
        if self.part == "2024":
            return replace(
                layout, precision="bf16", dtype="bf16", stack="te", dropout=False,
                strategy="distributed_optimizer", overlap_grad_reduce=True, overlap_param_gather=True,
                sequence_parallel=self.tensor > 1, async_tp=self.tensor > 1,
            )  # fmt: skip
        if self.part == "2021 zero3":
            return replace(layout, strategy="zero3")
        return replace(layout, no_sync=True, bucket_cap_mb=ONE_BUCKET_MB)

    def predicted_s(self, efficiency: float | None) -> float:
        """Return the seconds of a step."""
        return whole_s(
            lambda count: self.training(efficiency, count).step().step_s, self.micro_batches, self.pipeline
        )


def steps() -> list[ReadmeStep]:
    """Return all rows, one part after another."""
    return read_rows(ReadmeStep, "megatron_readme/steps.csv")


def judged() -> list[JudgedRow]:
    """Return the rows of each part that says its micro-batches, but its first."""
    results = []
    rows = [row for row in steps() if row.micro_batch]
    for part, group in groupby(rows, key=lambda row: row.part):
        sets, *others = group
        efficiency = solved(sets.predicted_s, sets.step_s)
        for row in others:
            rule_s = sets.step_s * row.flops / sets.flops
            predicted_s = row.predicted_s(efficiency)
            name = f"{row.model} on {row.gpus}"
            results.append(
                JudgedRow(f"{part}, from {sets.model}", name, row.step_s, predicted_s, rule_s, part)
            )
    return results


def absolute() -> list[JudgedRow]:
    """Return all rows, with nothing known."""
    return [
        alone(
            f"megatron_readme {row.part[:4]}", f"{row.part} {row.model} on {row.gpus}", row.step_s,
            row.predicted_s(None), row.training(None, row.pipeline),
        )
        for row in steps()
    ]  # fmt: skip


TABLE = JudgedTable(
    name="megatron_readme",
    title="GPT of 1.7 to 530 billion parameters under Megatron-LM on A100 (2021) and H100 (2024)",
    source="github.com/NVIDIA/Megatron-LM, images of README.md; arXiv:2104.04473, tables 1 and 2",
    sets="the first row of each software in table 2 of the paper",
    rule="constant utilization",
    judged=judged,
    absolute=absolute,
)
