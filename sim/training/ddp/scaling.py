"""A training under DistributedDataParallel on GPUs: its usual costs, its steps, and how they scale."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import lcm, log
from typing import Any

from ringside.sim.libraries.library import Library
from ringside.sim.program.groups import ALONE, process_group
from ringside.sim.training.ddp.buckets import DEFAULT_CAP_MB, compression, layout
from ringside.sim.training.ddp.job import Costs, DataParallel
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.training.ddp.step import TrainingStep, busy
from ringside.sim.training.memory.communicators import communicator_nbytes
from ringside.sim.training.memory.optimizers import Optimizer, find_optimizer
from ringside.sim.training.memory.room import MemoryFit, fit_of
from ringside.sim.training.tensor.decoder import DecoderOnGpu, ModelOnGpu
from ringside.sim.workload.devices import Device
from ringside.sim.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes that one GPU holds at the end of forward and during backward, by purpose.

    ``buckets`` are DistributedDataParallel's flat copies of the gradients, none if gradients are views of
    them; ``compression`` is PowerSGD's state between steps (errors, P and Q) and its memory for the bucket
    being reduced; ``workspaces`` are buffers of products. The allocator's own losses and the CUDA context
    are not included.
    """

    parameters: int
    gradients: int
    optimizer: int
    buckets: int
    buffers: int
    activations: int
    compression: int = 0
    workspaces: int = 0

    @property
    def total(self) -> int:
        """The sum of all bytes."""
        return sum(getattr(self, field.name) for field in fields(self))


def memory(workload: Workload, ddp: DataParallel, optimizer: Optimizer) -> Memory:
    """Return the bytes that one GPU holds for the workload."""
    totals = workload.totals
    return Memory(
        parameters=totals.nbytes + workload.frozen_nbytes,
        gradients=totals.nbytes,
        optimizer=optimizer.states * totals.nbytes,
        buckets=0 if ddp.gradient_as_bucket_view else totals.nbytes,
        buffers=sum(buffer.nbytes for buffer in workload.buffers),
        activations=totals.activation_nbytes,
        compression=compression_nbytes(workload, ddp),
        workspaces=workload.workspace_nbytes,
    )


def compression_nbytes(workload: Workload, ddp: DataParallel) -> int:
    """Return the bytes of PowerSGD's state and of its largest bucket; 0 without PowerSGD."""
    if not ddp.compresses:
        return 0
    buckets = layout(workload, ddp.bucketing, ddp.settled)
    compressions = [compression(bucket, workload.parameters, ddp.powersgd) for bucket in buckets]
    return sum(one.kept_nbytes for one in compressions) + max(one.working_nbytes for one in compressions)


AS_GOOD = 0.01
"""Bucket sizes whose steps differ by no more than this share of the fastest count as equally good."""


SPREAD = 0.015
"""Spread of speed among GPUs of one kind (`ringside.validation.published.training.ddp.throughput`)."""

OPERATOR_S = 1e-5
"""The host's time to launch one of PyTorch's operators on a GPU, a round figure."""

MOST = 0.5
"""Maximum share of a GPU that a collective takes, with any number of channels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataParallelTraining:
    """A training under DistributedDataParallel on GPUs ``gpu``.

    The model's layers take ``pace`` times as long. ``spread`` and ``slowdown`` are those of `Costs`,
    ``contention`` is the share of a GPU that collectives take, by default the usual one. GPUs wait for their
    hosts for ``host_s`` of each step.
    """

    gpu: Device
    model: ModelOnGpu
    ddp: DataParallel
    optimizer: str
    spread: float | None = None
    contention: float | None = None
    slowdown: Mapping[int, float] = field(default_factory=dict)
    pace: float = 1.0
    host_s: float = 0.0

    @property
    def stack(self) -> str | None:
        """The stack that computes the model; None for other models than decoders."""
        return self.model.computing.stack.name if isinstance(self.model, DecoderOnGpu) else None

    def workload(self, batch: int | None = None) -> Workload:
        """Return the workload of a rank, at its pace."""
        workload = self.model.workload(batch)
        return workload if self.pace == 1.0 else at_pace(workload, self.pace)

    def usual_costs(self, library: Library | None) -> Costs:
        """Return the costs beside layers and optimizer; None is the library of a rank alone."""
        usual_spread = 0.0 if self.model.precision is None else SPREAD
        usual = 0.0 if library is None else contention(library, self.gpu)
        return Costs(
            memory_bandwidth=self.gpu.streaming, operator_s=OPERATOR_S,
            spread=usual_spread if self.spread is None else self.spread,
            contention=usual if self.contention is None else self.contention, host_s=self.host_s,
        )  # fmt: skip

    def costs_on(self, library: Library) -> Costs:
        """Return the costs on the ranks of a library."""
        costs, optimizer = self.usual_costs(library), find_optimizer(self.optimizer, "ddp")
        nbytes = self.workload().totals.nbytes
        costs = replace(costs, optimizer_s=optimizer.seconds(nbytes, costs.memory_bandwidth))
        if library.ranks == 1:
            costs = replace(costs.alone, contention=0.0)
        return replace(costs, slowdown=self.slowdown)

    def step(self, library: Library) -> TrainingStep:
        """Simulate a step on all ranks of a library."""
        return simulate_step(self.workload(), process_group(library), self.ddp, self.costs_on(library))

    def scaled(
        self,
        libraries: Sequence[Library],
        caps: Sequence[float | None],
        global_batch: int | None,
        reserve: int | None,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> "ScaledTraining":
        """Simulate a step for each library and each bucket cap; ``on_step`` is called after each.

        Efficiencies of strong scaling are for ``global_batch`` samples, by default the fewest that all
        libraries allow. ``reserve`` bytes of a GPU stay free, by default those of `room_of`.
        """
        uncompressed_s = None
        if self.ddp.compresses:
            plain = replace(self, ddp=replace(self.ddp, comm_hook="allreduce"))
            uncompressed_s = plain.step(libraries[0]).step_s
        return ScaledTraining(
            self, scaled_steps(self, libraries, caps, global_batch, on_step), self.memory(),
            self.fit(libraries, reserve), uncompressed_s,
        )  # fmt: skip

    def memory(self) -> Memory:
        """Return the memory of a rank, by purpose."""
        return memory(self.workload(), self.ddp, find_optimizer(self.optimizer, "ddp"))

    def fit(self, libraries: Sequence[Library], reserve: int | None) -> MemoryFit:
        """Return how a rank fits into a GPU beside the largest communicator of these libraries."""
        nccl = {"data": max(map(communicator_nbytes, libraries))}
        return fit_of(self.memory().total, self.gpu, reserve, nccl, self.stack)


@dataclass(frozen=True, slots=True)
class ScaledStep:
    """One step; efficiencies are throughput per rank over that of one rank alone.

    Weak scaling keeps the batch per rank, strong scaling the samples per step. ``figures`` are the step in
    plain values; ``broadcasts_s`` is the time of the broadcasts of buffers.
    """

    library: Library
    cap_mb: float | None
    step: TrainingStep
    weak: float
    strong: float
    broadcasts_s: float
    figures: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ScaledTraining:
    """Simulated steps of a training, the memory of a GPU, and how it fits.

    ``uncompressed_s`` is the first step before PowerSGD begins; None without compression.
    """

    training: DataParallelTraining
    steps: list[ScaledStep]
    memory: Memory
    fit: MemoryFit
    uncompressed_s: float | None


def scaled_steps(
    training: DataParallelTraining,
    libraries: Sequence[Library],
    caps: Sequence[float | None],
    global_batch: int | None,
    on_step: Callable[[str], None],
) -> list[ScaledStep]:
    """Return a step for each library and each bucket cap; see `DataParallelTraining.scaled`."""
    workload, ddp = training.workload(), training.ddp
    passes = ddp.accumulation
    fewest = workload.batch * passes * lcm(*(one.ranks for one in libraries))
    samples = fewest if global_batch is None else global_batch
    shares = [share_of(samples, one.ranks, passes) for one in libraries]
    alone = training.costs_on(libraries[0]).alone
    base = simulate_step(workload, ALONE, ddp, alone).throughput
    large = simulate_step(training.workload(share_of(samples, 1, passes)), ALONE, ddp, alone).throughput
    rows = []
    for library, share in zip(libraries, shares, strict=True):
        group, costs = process_group(library), training.costs_on(library)
        for cap in caps:
            own = replace(ddp, bucketing=replace(ddp.bucketing, bucket_cap_mb=cap))
            step = strong = simulate_step(workload, group, own, costs)
            if share != workload.batch:
                strong = simulate_step(training.workload(share), group, own, costs)
            efficiencies = step.throughput / base / group.ranks, strong.throughput / large / group.ranks
            rows.append(_scaled(library, cap, step, *efficiencies))
            on_step(f"simulated {group.ranks} ranks")
    return rows


def _scaled(
    library: Library, cap: float | None, step: TrainingStep, weak: float, strong: float
) -> ScaledStep:
    figures = {
        "ranks": step.ranks,
        "samples": step.samples,
        "step_s": step.step_s,
        "throughput": step.throughput,
        "lower_s": step.lower_s,
        "upper_s": step.upper_s,
        "num_nodes": library.nodes,
        "bucket_cap_mb": cap,
        "weak_efficiency": weak,
        "strong_efficiency": strong,
        "compute_s": step.compute_s,
        "contention_s": step.contention_s,
        "copy_s": step.copy_s,
        "communication_s": step.communication_s,
        "exposed_s": step.exposed_s,
        "overlap_efficiency": step.overlap_efficiency,
        "buckets": [asdict(bucket) for bucket in step.buckets],
    }
    broadcasts_s = busy([run for run in step.others if run.name.startswith("buffers")])
    return ScaledStep(library, cap, step, weak, strong, broadcasts_s, figures)


def share_of(batch: int, ranks: int, accumulation: int) -> int:
    """Return samples per rank and pass if all ranks share ``batch`` samples in a step."""
    share, rest = divmod(batch, ranks * accumulation)
    if rest or share < 1:
        raise ValueError(
            f"a batch of {batch} on {ranks} ranks with {accumulation} accumulation steps does not divide; "
            f"write {ranks * accumulation} or a multiple of it"
        )
    return share


def at_pace(workload: Workload, factor: float) -> Workload:
    """Return the workload with every layer's time multiplied by ``factor``."""
    layers = tuple(
        replace(layer, forward_s=layer.forward_s * factor, backward_s=layer.backward_s * factor)
        for layer in workload.layers
    )
    return replace(workload, layers=layers)


def contention(library: Library, gpu: Device) -> float:
    """Return the share of a GPU that a library's thread blocks use, one per channel."""
    return min(library.channels / gpu.multiprocessors, MOST)


def recommended_cap(sweep: Mapping[float, TrainingStep]) -> float:
    """Return the ``bucket_cap_mb`` (MiB) to use: of those as good as the fastest, the nearest to PyTorch's.

    Distance is the ratio to the default of 25 MiB.
    """
    if not sweep:
        raise ValueError("no bucket sizes; write for example 1, 5, 25, 100")
    quickest = min(step.step_s for step in sweep.values())
    good = [cap for cap, step in sweep.items() if step.step_s <= quickest * (1 + AS_GOOD)]
    return min(good, key=lambda cap: (abs(log(max(cap, 1e-6) / DEFAULT_CAP_MB)), cap))
