"""GPT-3 175B on 512 to 10,752 H100 in MLPerf Training 3.0 and 3.1.

github.com/mlcommons/training_results_v3.0 and _v3.1 (Apache-2.0): the step times that the runs log
(``train_step_timing``, median of medians), with the layouts that are consistent with them: the environment of
eos_n64 names another batch. The submissions use interleaved 1F1B with one layer a stage, sequence
parallelism, tensor parallelism's exchanges beside products (``TP_COMM_OVERLAP`` in all files config_*.sh),
and a distributed optimizer that overlaps both exchanges and sums gradients in bfloat16. The row on 512 GPUs
sets each round's efficiency of products. The time of a step in which GPUs wait for their hosts, which does
not shrink with the batch of a replica, is chosen by the round's other rows. The naive rule counts
micro-batches and the pipeline's bubble.
"""

from typing import NamedTuple

from ringside.validation.published.training.rows import read_rows
from ringside.validation.published.training.steps import ProductsLine, chosen_host_s, steps_s, whole_s
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

MODEL = "gpt3-175b:2048,vocabulary=51200"

HOST_S = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
"""Options for the seconds of a step in which GPUs wait for their hosts."""


class Submission(NamedTuple):
    """A row; ``virtual`` is the number of stages of a rank, ``data`` that of replicas."""

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
        """The number of GPUs."""
        return self.tensor * self.pipeline * self.data

    @property
    def work(self) -> float:
        """The length of the step in micro-batches, the bubble included."""
        return self.micro_batches + (self.pipeline - 1) / self.virtual

    def training(self, efficiency: float | None, micro_batches: int) -> StepTime:
        """Return the training of some micro-batches, products at this share of the peak or by kernels."""
        return StepTime(
            model=MODEL, cluster=f"dgx-h100:{self.gpus // 8}", precision="fp8", dtype="bf16",
            reduce_dtype="bf16", compute_efficiency=efficiency, stack="te", strategy="distributed_optimizer",
            tp=self.tensor, sequence_parallel=True, async_tp=True, pp=self.pipeline,
            schedule="interleaved1f1b", virtual=self.virtual,
            batch=micro_batches, micro_batch=1, overlap_grad_reduce=True, overlap_param_gather=True,
        )  # fmt: skip

    def predicted_s(self, efficiency: float | None) -> float:
        """Return the seconds of a step."""
        return whole_s(
            lambda count: self.training(efficiency, count).step().step_s, self.micro_batches, self.pipeline
        )


def submissions() -> list[Submission]:
    """Return all rows, those of a round by GPUs."""
    return read_rows(Submission, "mlperf_gpt3.csv")


def judged() -> list[JudgedRow]:
    """Return the rows of each round but the first."""
    results = []
    rows = submissions()
    for number in dict.fromkeys(row.round for row in rows):
        sets, *others = [row for row in rows if row.round == number]
        lines = [ProductsLine.of(row.predicted_s) for row in (sets, *others)]
        steps = {host_s: steps_s(sets.step_s, lines, host_s) for host_s in HOST_S}
        measured = [row.step_s for row in others]
        for place, row in enumerate(others):
            host_s = chosen_host_s(measured, steps, place)
            rule_s = sets.step_s / sets.work * row.work
            results.append(JudgedRow(row.round, row.system, row.step_s, steps[host_s][place], rule_s))
    return results


def absolute() -> list[JudgedRow]:
    """Return all rows, with nothing known."""
    return [
        alone(
            "mlperf", f"{row.round} {row.system}", row.step_s, row.predicted_s(None),
            row.training(None, row.pipeline),
        )
        for row in submissions()
    ]  # fmt: skip


TABLE = JudgedTable(
    name="mlperf",
    title="GPT-3 175B in MLPerf on 512 to 10,752 H100",
    source="github.com/mlcommons/training_results_v3.0 and _v3.1",
    sets="the row on 512 GPUs of each round; time of the hosts by its others",
    rule="micro-batches and bubble",
    judged=judged,
    absolute=absolute,
)
