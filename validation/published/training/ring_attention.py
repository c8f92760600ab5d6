"""Ring attention on 8 GPUs of one machine, beside one GPU's kernel on an eighth of the sequence.

github.com/zhuzilin/ring-flash-attention, README.md and benchmark/ @ 899628238f2f (2025-08-04), the batch
interface: attention of Llama 3 8B (32 query heads, 8 key-value heads, of 128) in bfloat16 with a causal mask,
8,192 tokens a GPU. One GPU alone sets the time of scores. A step's merge is counted by its bytes; the saving
of unmasked blocks (`UNMASKED` of `ringside.sim.training.tensor.context`) is fitted on the naive ring's
forward on A100, which is not judged. The naive rule is arithmetic: the busiest rank of a naive ring has n -
1/2 of n blocks, where the mean is n / 2, and a balanced ring has no loss. H800 are H100 with NVLinks of 200
GB/s each way. The judged exchange is that of ``train --cp 8 --cp-method ring``, in a program of one layer's
attention: `train` has whole layers only, which rows of torchtitan judge.
"""

from functools import cache
from typing import NamedTuple

from ringside.sim.program import Operation, Program
from ringside.sim.program.jobs import PlacedProgram, simulate
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.ddp.scaling import contention
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.mesh import Communicators, Mesh
from ringside.sim.training.sharing import Unshared
from ringside.sim.training.stage import RankList, Stage
from ringside.sim.training.tensor.context import Attention, ContextParallel
from ringside.sim.workload.devices import Device, device
from ringside.validation.published.training.rows import read_rows
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

GPUS, TOKENS, QUERY, KEY_VALUE = 8, 8192, 4096, 1024
FITTED = ("a100", "forward", "ring")
"""The row that sets the saving of unmasked blocks."""


class RingRate(NamedTuple):
    """A row: iterations of forward, or of ``both`` passes, of all GPUs and of one alone."""

    gpu: str
    phase: str
    method: str
    iterations_per_s: float
    alone_per_s: float

    @property
    def device(self) -> Device:
        """The GPU."""
        return device({"h800": "h100"}.get(self.gpu, self.gpu))

    @property
    def ideal_per_s(self) -> float:
        """The rate of 8 GPUs without loss, whose sequence has 64 times the scores."""
        return self.alone_per_s / GPUS

    @property
    def naive_per_s(self) -> float:
        """The rate by the naive rule."""
        return self.ideal_per_s * (GPUS / (2 * GPUS - 1) if self.method == "ring" else 1.0)


def rates() -> list[RingRate]:
    """Return all rows in the table's order."""
    return read_rows(RingRate, "ring_attention.csv")


def predicted_per_s(row: RingRate) -> float:
    """Return iterations/s of all GPUs, which together have 64 times the scores of one alone."""
    forward_s, both_s = (_alone_s(row.gpu, phase) for phase in ("forward", "both"))
    roofline = row.device.roofline("bfloat16")
    attention = Attention(
        context=ContextParallel(degree=GPUS, method=row.method), roofline=roofline, dtype="bfloat16",
        forward_s=forward_s * GPUS**2, backward_s=(both_s - forward_s) * GPUS**2,
        query=TOKENS * QUERY, key_value=TOKENS * KEY_VALUE,
    )  # fmt: skip
    layer = RankLayer(name="attention", forward=attention.forward, backward=attention.backward)

    communicators = Communicators(Mesh(context=GPUS))

    def operations(number: int) -> list[Operation]:
        rank = RankList(number, communicators)
        stage = Stage(rank, (layer,), Unshared())
        stage.forward(0)
        if row.phase == "both":
            stage.backward(0, last=True)
        return rank.operations

    job = PlacedProgram(Program("ring attention", GPUS, cache(operations)), tuple(range(GPUS)), (0,) * GPUS)
    libraries = _libraries(row.gpu)
    taken = contention(libraries.of(job.hosts), row.device)
    return 1 / simulate([job], libraries, taken)[0].makespan_s


def judged() -> list[JudgedRow]:
    """Return all rows except that which sets the saving of unmasked blocks."""
    return [
        JudgedRow(
            row.gpu, f"{row.method}, {row.phase}", row.iterations_per_s, predicted_per_s(row),
            row.naive_per_s, row.method,
        )
        for row in rates()
        if row[:3] != FITTED
    ]  # fmt: skip


def _alone_s(gpu: str, phase: str) -> float:
    """Return the seconds of one GPU alone."""
    return next(1 / row.alone_per_s for row in rates() if row[:2] == (gpu, phase))


@cache
def _libraries(gpu: str) -> Libraries:
    if gpu == "h800":
        return Libraries("nccl", "dgx-h100:1", {"nvlink": "200GB/s"}, GPUS, calibration=None)
    return Libraries("nccl", "dgx-a100:1", {}, GPUS)


TABLE = JudgedTable(
    name="ring_attention",
    title="Ring attention of 65,536 tokens on 8 GPUs, iterations",
    source="github.com/zhuzilin/ring-flash-attention, README.md @ 899628238f2f",
    sets="one GPU's kernels; the saving of unmasked blocks by the naive ring's forward on A100",
    rule="n / (2 n - 1) of the ideal for a naive ring, all of it for a balanced one",
    judged=judged,
    unit="/s",
)
