"""DataParallel beside DistributedDataParallel and FSDP on two and four GPUs of one machine.

Two TITAN RTX and GPT-2, 4 sequences a GPU: github.com/huggingface/transformers,
docs/source/ko/perf_train_gpu_many.md @ 0b3473ad40, which prints the seconds of 200 steps, with an NVLink
bridge and (``NCCL_P2P_DISABLE=1``) without. Four V100 of a p3.8xlarge and mpnet-base, 32 texts a GPU:
github.com/UKPLab/sentence-transformers, docs/sentence_transformer/training/distributed.rst @ 2df84c728f,
which prints texts per second.

Neither page states the data types, the lengths of texts, or what connects the TITAN RTX without the bridge,
so only the order of strategies is judged; texts are taken to have 16 tokens, since those of 32 would take one
V100 longer than it did, even at its peak. For TITAN RTX, DDP over NVLink sets the pace of compute; for V100,
one GPU alone. FSDP on V100 comes out faster than DDP, since the time that the host takes for its units is not
known; it was slower.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations
from typing import NamedTuple

from ringside.validation.published.training.steps import solved
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.judged import Counted, JudgedRow, JudgedTable

HOST_MEMORY = "4.3GB/s"
"""Two cards share the 16 lanes of a desktop's CPU: 8 of PCIe 3 each. Their all-reduces reach the share of two
RTX 4090 of PCIe 4: 17.3 of 31.5 GB/s (calibration rtx4090-pcie).
"""


class StrategyRun(NamedTuple):
    """A row: a strategy (``alone`` on one GPU), what connects the GPUs, and its seconds a step."""

    series: str
    strategy: str
    gpus: int
    cluster: str
    settings: tuple[tuple[str, str], ...]
    step_s: float

    @property
    def what(self) -> str:
        """The row in words."""
        return f"{self.strategy} on {self.gpus}, {dict(self.settings).get('bandwidth', self.cluster)}"


def runs() -> list[StrategyRun]:
    """Return all rows; the first of each series sets the pace."""
    titan, v100, steps, texts = "2 TITAN RTX, GPT-2", "V100, mpnet-base", 200, 32
    bridge, host = (("bandwidth", "50GB/s"),), (("bandwidth", HOST_MEMORY),)
    return [
        StrategyRun(titan, "ddp", 2, "star:2", bridge, 101.9003 / steps),
        StrategyRun(titan, "data_parallel", 2, "star:2", bridge, 110.5948 / steps),
        StrategyRun(titan, "ddp", 2, "star:2", host, 131.4367 / steps),
        StrategyRun(v100, "alone", 1, "dgx1-v100", (), texts / 2724),
        StrategyRun(v100, "data_parallel", 4, "dgx1-v100", (), 4 * texts / 3675),
        StrategyRun(v100, "ddp", 4, "dgx1-v100", (), 4 * texts / 6980),
        StrategyRun(v100, "fsdp1", 4, "dgx1-v100", (), 4 * texts / 5782),
    ]


def training(run: StrategyRun, efficiency: float) -> StepTime:
    """Return the training with products at this share of the peak."""
    is_titan = run.cluster.startswith("star")
    return StepTime(
        model="gpt2" if is_titan else "bert-encoder:16", cluster=run.cluster,
        settings=dict(run.settings), ranks=run.gpus,
        device="titan-rtx" if is_titan else "v100", precision="fp16", batch=4 if is_titan else 32,
        compute_efficiency=efficiency, strategy="ddp" if run.strategy == "alone" else run.strategy,
        micro_batch=4 if is_titan else 32,
        param_dtype="fp32" if run.strategy == "fsdp1" else None,
    )  # fmt: skip


@cache
def efficiency(series: str) -> float:
    """Return the share of the peak that the first row of a series implies."""
    first = next(one for one in runs() if one.series == series)
    return solved(lambda share: training(first, share).step().step_s, first.step_s)


@cache
def predicted_s(run: StrategyRun) -> float:
    """Return the seconds of a step at the pace of its series."""
    return training(run, efficiency(run.series)).step().step_s


def judged() -> list[JudgedRow]:
    """Return the held-out rows."""
    firsts = {run.series: run for run in reversed(runs())}
    return [
        JudgedRow(run.series, run.what, run.step_s, predicted_s(run), firsts[run.series].step_s)
        for run in runs()
        if run != firsts[run.series]
    ]


def counted() -> list[Counted]:
    """Count the pairs of strategies on equally many GPUs whose faster one is predicted."""
    pairs = list(_pairs())
    right = sum(
        (one.step_s < other.step_s) == (predicted_s(one) < predicted_s(other)) for one, other in pairs
    )
    return [Counted("the faster of two strategies", right, len(pairs))]


def _pairs() -> Iterator[tuple[StrategyRun, StrategyRun]]:
    for one, other in combinations(runs(), 2):
        if (one.series, one.gpus) == (other.series, other.gpus):
            yield one, other


TABLE = JudgedTable(
    name="data_parallel",
    title="DataParallel, DDP and FSDP on 2 and 4 GPUs of one machine",
    source="huggingface/transformers, docs @ 0b3473ad40; UKPLab/sentence-transformers, docs @ 2df84c728f",
    sets="DDP over NVLink on 2 TITAN RTX, one V100",
    rule="a step takes as long as the first",
    judged=judged,
    counted=counted,
)
