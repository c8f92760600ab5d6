"""A training on a cluster as a question, which the command, the function and published tables ask alike."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypedDict, Unpack, get_type_hints

from ringside.sim.calibration import AUTO, Calibration
from ringside.sim.libraries.find import LIBRARIES, Options, default_library, find_library
from ringside.sim.libraries.library import Library
from ringside.sim.program.simulation.libraries import Libraries
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.training.groups import process_group
from ringside.sim.training.parallel.job import ParallelJob
from ringside.sim.training.parallel.simulate import simulate_parallel
from ringside.sim.training.parallel.step import ParallelStep
from ringside.sim.training.step import TrainingStep
from ringside.sim.workload.devices import Device, device, device_of
from ringside.topologies.catalogue import split
from ringside.topologies.placement import EVEN, PACKED
from ringside.validation.questions.laid_out import LaidOut, LayoutWords, laid_out
from ringside.validation.questions.trained import Trained, trained
from ringside.validation.questions.training import Training, batch_of
from ringside.validation.questions.types import check_types


class Laid(TypedDict, total=False):
    """How a training is laid out over ranks, in the words of ``ringside train``."""

    strategy: str
    tp: int
    tp_style: str | None
    cp: int
    cp_method: str | None
    async_tp: bool
    pp: int
    shard: int | None
    schedule: str | None
    virtual: int | None
    micro_batch: int | None
    checkpointing: str
    sequence_parallel: bool
    clip: bool | None
    overlap_grad_reduce: bool
    overlap_param_gather: bool
    no_sync: bool
    param_dtype: str | None
    reduce_dtype: str | None
    ep: int
    ep_imbalance: float
    capacity_factor: float | None


class Trains(TypedDict, total=False):
    """What is trained, and on what."""

    settings: Mapping[str, str] | None
    library: str
    ranks: int | None
    batch: int | None
    device: str | None
    precision: str | None
    dtype: str | None
    compute_efficiency: float | None
    attention: str
    attention_efficiency: float | None
    measured: tuple[float, int] | None
    optimizer: str
    ddp: DataParallel | None
    slowdown: Mapping[int, float] | None
    spread: float | None
    contention: float | None
    network: str
    placement: str
    calibration: Calibration | str | None


class TrainsLaid(Trains, Laid, total=False):
    """Both."""


PLACES = ("settings", "library", "ranks", "network", "placement", "calibration")
"""Options that say where, and by which library: the others are of what is trained."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A training on ``ranks`` of a cluster by name, or in a file: on all of them where None.

    ``library``, ``network``, ``placement`` and ``calibration`` are
    `ringside.sim.libraries.find.find_library`'s.
    """

    training: Training
    cluster: str
    layout: LayoutWords = field(default_factory=LayoutWords)
    settings: Mapping[str, str] = field(default_factory=dict)
    library: str = "auto"
    ranks: int | None = None
    network: str = "fifo"
    placement: str = EVEN
    calibration: Calibration | str | None = AUTO

    @cached_property
    def gpu(self) -> Device:
        """What each rank computes on: as asked for, or the cluster's."""
        name = self.training.device
        return device(device_of(self.cluster, self.settings) if name is None else name)

    @cached_property
    def words(self) -> LayoutWords:
        """The words of the layout that change anything."""
        return self.layout.resolved(lambda: batch_of(self.training, self.gpu))

    @cached_property
    def libraries(self) -> Libraries:
        """The libraries of all groups of the ranks."""
        name = default_library(self.cluster) if self.library == "auto" else self.library
        ranks = self.bound().ranks if self.ranks is None else self.ranks
        return Libraries(
            name, self.cluster, dict(self.settings), ranks, self.network, self.calibration, self.placement
        )

    def bound(self, cluster: str | None = None) -> Library:
        """The library of all ranks together, on this cluster or on another of such machines."""
        return self._bound(cluster or self.cluster, self.ranks, self.placement)

    def _bound(self, cluster: str, ranks: int | None, placement: str) -> Library:
        name, options = self.library, Options(network=self.network, placement=placement)
        return find_library(
            None if name == "auto" else name, cluster, self.settings, ranks=ranks, options=options,
            calibration=self.calibration,
        )  # fmt: skip

    @cached_property
    def laid_out(self) -> LaidOut:
        """The training under its layout, at its pace."""
        layout = self.words.layout()
        return laid_out(self.training, self.gpu, self.libraries, layout)

    @cached_property
    def job(self) -> ParallelJob:
        """The same as a job, of which `ringside.sim.training.parallel.simulate` makes a step."""
        return self.laid_out.job(self.words.layout())

    def trained(self, library: Library) -> Trained:
        """The training under DistributedDataParallel alone, at its pace, by a library that is `bound`."""
        cluster = split(self.cluster)[0] if LIBRARIES[library.name].by_machines else self.cluster
        return trained(self.training, self.gpu, lambda ranks: self._bound(cluster, ranks, PACKED))

    def step(self) -> TrainingStep | ParallelStep:
        """The answer."""
        if self.words.is_parallel:
            return simulate_parallel(self.job, self.libraries)
        library = self.bound()
        what, ddp = self.trained(library), self.training.ddp
        return simulate_step(what.sized(None), process_group(library), ddp, what.costs_on(library))


def question(model: str, cluster: str, **options: Unpack[TrainsLaid]) -> Question:
    """The question in the words of ``ringside train``; those that are None are not said."""
    check_types(get_type_hints(TrainsLaid), options)
    said: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if "calibration" in options:
        said["calibration"] = options["calibration"]
    layout = LayoutWords(**{name: said.pop(name) for name in Laid.__annotations__ if name in said})
    if layout.no_sync:
        said["ddp"] = replace(said.get("ddp") or DataParallel(), no_sync=True)
    places = {name: said.pop(name) for name in PLACES if name in said}
    return Question(training=Training(model=model, **said), layout=layout, cluster=cluster, **places)
