"""Fields of a training on a cluster, and the library of its collectives."""

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from ringside.sim.calibration import Calibration
from ringside.sim.libraries.find import LIBRARIES, Options, default_library, find_library
from ringside.sim.libraries.library import Library
from ringside.sim.program.libraries import Libraries
from ringside.sim.questions.calibrated import Anchor, anchor_option, calibration_option, scaled
from ringside.sim.questions.fields import OnCluster, network_option
from ringside.sim.questions.question import option
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.layout import COPIES, LayoutError
from ringside.sim.training.parallel import ParallelTraining
from ringside.sim.training.tensor.decoder import ModelOnGpu
from ringside.sim.workload.devices import Device, device, device_of
from ringside.topologies.units import parse_size
from ringside.validation.questions.buckets import ByBuckets
from ringside.validation.questions.layout import ByLayout
from ringside.validation.questions.training import Training

FORMULA = "model FLOPs: three times forward's matrix products, attention as the whole square of scores"
"""As Narayanan et al., arXiv:2104.04473, equation 3, without what checkpointing recomputes."""


@dataclass(frozen=True, kw_only=True)
class TrainingOnCluster(ByBuckets, ByLayout, OnCluster, Training):
    """A training on a cluster, and a library for its collectives.

    ``library`` ``auto`` is the cluster's default. ``global_batch`` are the samples per step of strong scaling
    and of a search of layouts. A GPU keeps ``reserve`` bytes free, by default those of
    `ringside.sim.training.memory`.
    """

    library: str = option(
        "Library whose times to use; auto is nccl for machines that it models.",
        metavar="auto|ideal|gloo|nccl",
        default="auto",
    )
    network: str = network_option()
    calibration: str | Calibration | None = calibration_option()
    anchor: Anchor | None = anchor_option()
    global_batch: int | None = option(
        "Samples of a step, for strong scaling.",
        default=None,
        default_text="the fewest that all counts allow",
    )
    reserve: int | None = option(
        "Memory of a GPU that must stay free to fit.",
        metavar="SIZE", default=None, default_text="the GPU's own", parse=parse_size,
    )  # fmt: skip

    @property
    def ddp(self) -> DataParallel:
        """The arguments of DistributedDataParallel."""
        return DataParallel.parse(
            self.comm_hook, self.bucketing, gradient_as_bucket_view=self.gradient_as_bucket_view,
            broadcast_buffers=not self.no_broadcast_buffers, accumulation=self.accumulation,
            no_sync=self.no_sync,
        )  # fmt: skip

    @cached_property
    def gpu(self) -> Device:
        """The GPU of each rank, by default the cluster's."""
        return device_of(self.cluster, self.settings) if self.device is None else device(self.device)

    @cached_property
    def model_on_gpu(self) -> ModelOnGpu:
        """The model as each rank computes it, for a rank's batch or for a replica's."""
        return self.model_on(self.gpu)

    @property
    def computing(self) -> str:
        """The source of compute times."""
        precision = self.model_on_gpu.precision
        if precision is None:
            text = f"layers as timed in {self.model}, optimizer and copies on {self.gpu.name}"
        else:
            types = self.dtype or "of the model's own types"
            share = "" if self.throughput else f" at {self.efficiency_on(self.gpu):.0%} of its peak"
            text = f"{precision} on {self.gpu.name}{share}, gradients {types}"
        if self.throughput:
            samples_per_s, ranks = self.throughput
            of_ranks = f"{ranks} rank" if ranks == 1 else f"{ranks} ranks"
            text += f", at the pace of {samples_per_s:g} samples/s measured on {of_ranks}"
        return text

    def parallel(self) -> ParallelTraining:
        """Return the training under any layout, at the GPUs' own pace."""
        if self.accumulation > 1:
            raise LayoutError(
                "`accumulation` needs plain ddp; write `batch` for all samples and `micro_batch` for one pass"
            )
        copies = self.strategy in COPIES and self.strategy != "data_parallel"
        for name in () if copies else self.changed(*(one.name for one in fields(ByBuckets))):
            raise LayoutError(
                f"`{name}` applies to plain DistributedDataParallel, and `strategy` is {self.strategy}; "
                "leave it out"
            )
        return ParallelTraining(self.on(self.gpu, self.model_on_gpu), self.libraries)

    @property
    def where(self) -> str:
        """The cluster with its changes, as text."""
        return " ".join([self.cluster, *(f"{name}={value}" for name, value in self.settings.items())])

    @cached_property
    def libraries(self) -> Libraries:
        """The libraries of all groups of the ranks."""
        name = default_library(self.cluster) if self.library == "auto" else self.library
        ranks = self.bound().ranks if self.ranks is None else self.ranks
        return Libraries(
            name, self.cluster, dict(self.settings), ranks, self.network, self.read_calibration,
            self.placement,
        )  # fmt: skip

    @cached_property
    def read_calibration(self) -> Calibration | str | None:
        """The calibration, scaled by the anchor's rows where there is one."""
        return scaled(self.calibration, self.anchor, self.cluster, self.settings)

    def bound(self, cluster: str | None = None) -> Library:
        """Return the library of all ranks together, on this cluster or on another of the same machines."""
        return self._bound(cluster or self.cluster, self.ranks, self.placement)

    def _bound(self, cluster: str, ranks: int | None, placement: str) -> Library:
        name, options = self.library, Options(network=self.network, placement=placement)
        return find_library(
            None if name == "auto" else name, cluster, self.settings, ranks=ranks, options=options,
            calibration=self.read_calibration,
        )  # fmt: skip

    def understood(self, library: str) -> dict[str, Any]:
        """Return the inputs with defaults filled in; a library of measured machines has no network."""
        precision = self.model_on_gpu.precision
        inputs = self.inputs() | {"library": library, "device": self.gpu.name, "precision": precision}
        if LIBRARIES[library].by_machines:
            del inputs["network"]
        return inputs
