"""Fields of a training on a cluster, and the library of its collectives."""

from dataclasses import dataclass, replace
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
        return replace(super().ddp, no_sync=self.no_sync)

    @cached_property
    def gpu(self) -> Device:
        """The GPU of each rank, by default the cluster's."""
        return device_of(self.cluster, self.settings) if self.device is None else device(self.device)

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

    def understood(self, library: str, precision: str | None) -> dict[str, Any]:
        """Return the inputs with defaults filled in; a library of measured machines has no network."""
        inputs = self.inputs() | {"library": library, "device": self.gpu.name, "precision": precision}
        if LIBRARIES[library].by_machines:
            del inputs["network"]
        return inputs
