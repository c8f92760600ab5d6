"""Steps of decoders under tensor, pipeline and data parallelism, as tables predict them."""

from dataclasses import dataclass, field, replace
from functools import cached_property

from sim.calibration import AUTO, shipped
from sim.program.libraries import Libraries
from sim.training.ddp.buckets import Bucketing
from sim.training.ddp.job import Costs, DataParallel
from sim.training.ddp.usual import SPREAD
from sim.training.layout import Layout
from sim.training.memory import find_optimizer
from sim.training.mesh import Mesh
from sim.training.parallel.decoder import parts_of_decoder
from sim.training.parallel.job import ParallelJob
from sim.training.parallel.simulate import simulate_parallel
from sim.workload.decoder import DECODERS, Decoder
from sim.workload.devices import Device, Roofline

ONE_BUCKET_MB = 1e6
"""A cap that no model fills: one bucket, of which nothing is hidden."""

ROUNDS = 2
"""Micro-batches a pipeline rank that are simulated: each round beyond them takes as long as the second."""


def of_llamas_kind(name: str, shape: tuple[int, int, int, int], vocabulary: int, sequence: int) -> Decoder:
    """A decoder with Llama's layers, whose heads all have keys of their own.

    ``shape`` is its layers, width, heads and the width of its feed-forward network.
    """
    layers, width, heads, hidden = shape
    return replace(
        DECODERS["llama2-7b"], name=name, layers=layers, width=width, heads=heads, key_value_heads=heads,
        hidden=hidden, vocabulary=vocabulary, sequence=sequence, longest=sequence,
    )  # fmt: skip


@dataclass(frozen=True)
class LaidOut:
    """A decoder on ``gpus`` GPUs of machines alike; ``batch`` are the samples of all in a step.

    Products are of type ``dtype``; parameters are ``stored``, and gradients summed, in the other.
    Gradients are summed in one bucket when all passes are over (``no_sync``), as Megatron-LM did before it
    overlapped.
    """

    decoder: Decoder
    gpu: Device
    cluster: str
    gpus: int
    layout: Layout
    batch: int
    dtype: str = "float16"
    stored: str = "float16"
    settings: dict[str, str] = field(default_factory=dict)
    family: str | None = None

    @cached_property
    def libraries(self) -> Libraries:
        """Those of its machines."""
        calibration = AUTO if self.family is None else shipped(self.family)
        return Libraries("nccl", self.cluster, self.settings, self.gpus, calibration=calibration)

    @property
    def mesh(self) -> Mesh:
        """How its ranks are laid out."""
        return self.layout.mesh(self.gpus, self.gpus // self.libraries.of(tuple(range(self.gpus))).nodes)

    @property
    def micro_batches(self) -> int:
        """Those of a replica's step."""
        return self.batch // self.mesh.degree("replicate") // self.layout.micro_batch

    def step_s(self, efficiency: float) -> float:
        """Seconds of a step whose products reach this share of the peak, the slowest GPU waited for."""
        pipeline = self.layout.pipeline
        most = min(self.micro_batches, ROUNDS * pipeline)
        step_s = self._simulated_s(efficiency, most)
        if self.micro_batches > most:
            more = (self.micro_batches - most) / pipeline
            step_s += more * (step_s - self._simulated_s(efficiency, most - pipeline))
        return step_s

    def _simulated_s(self, efficiency: float, micro_batches: int) -> float:
        whole = self.gpu.roofline(self.dtype, 1.0)
        pace = Roofline(whole.flops_per_s * efficiency, whole.bytes_per_s, whole.itemsize)
        job = ParallelJob(
            parts=parts_of_decoder(self.decoder, self.layout, pace, self.stored),
            layout=replace(self.layout, no_sync=True),
            mesh=self.mesh,
            batch=micro_batches * self.layout.micro_batch,
            optimizer=find_optimizer("adam"),
            ddp=replace(DataParallel(), bucketing=Bucketing(ONE_BUCKET_MB)),
            costs=Costs(memory_bandwidth=self.gpu.streaming, spread=SPREAD),
        )
        return simulate_parallel(job, self.libraries).step_s
