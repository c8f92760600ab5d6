"""Fields of a training on a cluster: model, DistributedDataParallel, and the library of its collectives."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from ringside.sim.calibration import Calibration
from ringside.sim.compute.doubt import band
from ringside.sim.goodput.cost import Cost
from ringside.sim.libraries.find import LIBRARIES, Options, default_library, find_library
from ringside.sim.libraries.library import Library
from ringside.sim.parameters import check_within
from ringside.sim.program.libraries import Libraries
from ringside.sim.questions.calibrated import Anchor, anchor_option, calibration_option, scaled
from ringside.sim.questions.fields import OnCluster, network_option
from ringside.sim.questions.question import Question, choices, option
from ringside.sim.training.ddp.job import COMM_HOOKS, DataParallel
from ringside.sim.training.ddp.scaling import DataParallelTraining
from ringside.sim.training.ddp.step import workload_of
from ringside.sim.training.layout import LayoutError
from ringside.sim.training.memory.optimizers import OPTIMIZERS
from ringside.sim.training.parallel import ParallelTraining
from ringside.sim.training.strategies import BUCKETS, FSDP
from ringside.sim.training.tensor.decoder import DecoderOnGpu, ModelOnGpu, decoder_on_gpu
from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.devices import DEVICES, NARROW, Device, device, device_of
from ringside.sim.workload.workload import TimedModel, rebatched
from ringside.topologies.units import parse_size
from ringside.validation.questions.kernels import OF_DECODERS, STACK_OF, OfKernels
from ringside.validation.questions.layout import ByLayout
from ringside.validation.questions.models import find_model, is_timed, measured_rate, with_tokens
from ringside.validation.questions.priced import PricedTraining


def caps_of(text: str | None) -> tuple[float, ...]:
    """Parse MiB of ``1,5,25``."""
    if text is None:
        return ()
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ValueError(
            f"{text!r} are not bucket caps; write MiB separated by commas, for example 1,5,25"
        ) from None


@dataclass(frozen=True, kw_only=True)
class OfBuckets(Question):
    """How DistributedDataParallel assigns gradients to buckets."""

    bucket_cap_mb: float | None = option(
        "Bucket size of DistributedDataParallel.",
        metavar="MIB", default=None, default_text="25 after a first one of 1",
    )  # fmt: skip
    bucket_cap_mb_list: tuple[float, ...] | None = option(
        "Size of each bucket in turn.", metavar="MIB,MIB,...", default=None, parse=caps_of
    )
    find_unused_parameters: bool = option("As DistributedDataParallel's.", default=False)
    static_graph: bool = option("As DistributedDataParallel's.", default=False)
    gradient_as_bucket_view: bool = option("As DistributedDataParallel's.", default=False)

    @property
    def bucketing(self) -> dict[str, Any]:
        """The arguments of a `ringside.sim.training.ddp.buckets.Bucketing`."""
        return {
            "bucket_cap_mb": self.bucket_cap_mb, "bucket_cap_mb_list": tuple(self.bucket_cap_mb_list or ()),
            "find_unused_parameters": self.find_unused_parameters, "static_graph": self.static_graph,
        }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ByBuckets(OfBuckets):
    """The arguments of DistributedDataParallel."""

    no_broadcast_buffers: bool = option("As DistributedDataParallel's.", default=False)
    comm_hook: str | None = option(
        f"{', '.join(COMM_HOOKS)}; powersgd:rank=4,start=10.",
        metavar="HOOK", default=None, default_text="none",
    )  # fmt: skip
    accumulation: int = option("PerPass per step, each reduced; with --no-sync only the last.", default=1)


MODEL = "resnet50, gpt2-xl:512,layers=9, FILE.py:NAME, file of a decoder, of timed layers, or as recorded."
"""What `model` names."""


@dataclass(frozen=True, kw_only=True)
class Training(OfKernels):
    """The trained model, and its numerics.

    ``seq`` becomes part of ``model``. ``batch`` is of one rank and one pass, None for the model's own.
    ``precision``, ``dtype`` and ``compute_efficiency`` are `ringside.sim.workload.architecture.workload`'s.
    ``measured`` is a throughput (samples/s of all ranks) and its number of ranks, which set the pace of
    compute. ``spread`` and ``contention`` are `ringside.sim.training.ddp.job.Costs`': by default `SPREAD` of
    `ringside.sim.training.ddp.scaling`, or none for timed layers, and `contention` of that module.
    """

    model: str | Decoder = option(MODEL, metavar="NAME[:SIZE]|FILE")
    seq: int | None = option(
        "Tokens of a sample, the same as NAME:SIZE.", default=None, default_text="the model's own"
    )
    batch: int | None = option("Samples per rank and pass.", default=None, default_text="32 or the file's")
    device: str | None = option(
        f"One of {', '.join(DEVICES)}.", metavar="GPU", default=None, default_text="the cluster's"
    )
    dtype: str | None = option(
        "Type of parameters and gradients.", default=None, default_text="the model's own"
    )
    measured: tuple[float, int] | str | None = option(
        "Measured throughput: 2616img/s@1, 116000tok/s@16", metavar="RATE@RANKS", default=None
    )
    optimizer: str = option(
        "Optimizer whose state is kept and updated.", metavar=choices(OPTIMIZERS), default="adam"
    )
    spread: float | None = option(
        "Spread of the ranks' speed; all wait for the slowest.", default=None, default_text="0.015 on GPUs"
    )
    host_ms: float | None = option(
        "Time of a step in which GPUs wait for the host; of a recorded step, what its host takes.",
        metavar="MS", default=None, default_text="0",
    )  # fmt: skip
    contention: float | None = option(
        "Share of compute that a running collective takes.", default=None, default_text="channels / SMs"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, time_ms in (("`host_ms`", self.host_ms), ("`launch_ms`", self.launch_ms)):
            if time_ms is not None:
                check_within(name, time_ms)
        if self.seq is not None:
            object.__setattr__(self, "model", with_tokens(self.model, self.seq))
            object.__setattr__(self, "seq", None)
        if isinstance(self.measured, str):
            object.__setattr__(self, "measured", measured_rate(self.measured, self.model))

    @property
    def throughput(self) -> tuple[float, int] | None:
        """The measured samples/s, and the number of ranks."""
        assert not isinstance(self.measured, str)
        return self.measured

    @property
    def ddp(self) -> DataParallel:
        """The arguments of DistributedDataParallel, here its defaults."""
        return DataParallel()

    @property
    def slowdown(self) -> Mapping[int, float]:
        """The factor by which a rank takes longer, here none."""
        return {}

    def model_on(self, gpu: Device) -> ModelOnGpu:
        """Return the model as the GPU computes it."""
        if self.batch is not None and self.batch < 1:
            raise ValueError(f"a batch of {self.batch}; write 1 or more samples")
        if is_timed(self.model):
            return self._timed(Path(str(self.model)))
        model = find_model(self.model)
        if isinstance(model, Decoder):
            for name in self.changed("sequential_experts", "no_permute_fusion") * (model.experts is None):
                raise ValueError(
                    f"`{name}` needs a mixture of experts, and {model.name} is none; leave it out"
                )
            return decoder_on_gpu(
                model, gpu, self.computing_on(gpu), batch=self.batch, dtype=self.dtype,
                attention=self.attention, dropout=self.dropout, loss=self.loss,
                attention_mask=self.attention_mask, permute_fusion=not self.no_permute_fusion,
                cublas=self.cublas_workspace, grouped=not self.sequential_experts,
            )  # fmt: skip
        if given := self.changed(*OF_DECODERS) + ["precision"] * (self.precision in NARROW):
            raise ValueError(f"`{given[0]}` applies to decoders, and {self.model} is none; leave it out")
        if self.attention is not None:
            model = model.attending(self.attention)
        return model.on(gpu, self.batch, self.precision, self.dtype, self.compute_efficiency)

    def _timed(self, path: Path) -> TimedModel:
        if given := self.changed("dtype", *(one.name for one in fields(OfKernels))):
            raise ValueError(f"{path} already has times and types; leave `{given[0]}` out")
        whole = workload_of(path)
        if not whole.totals.forward_s + whole.totals.backward_s:
            raise ValueError(
                f"{path}: no layer takes any time; write a forward or a backward, for example 5ms"
            )
        return TimedModel(rebatched(whole, self.batch or whole.batch))

    def on(self, gpu: Device, model: ModelOnGpu) -> DataParallelTraining:
        """Return the training on such GPUs, which compute the model at their own pace."""
        return DataParallelTraining(
            gpu=gpu, model=model, ddp=self.ddp, optimizer=self.optimizer,
            spread=self.spread, contention=self.contention, slowdown=self.slowdown,
            host_s=(self.host_ms or 0.0) / 1e3,
        )  # fmt: skip


FORMULA = "model FLOPs: three times forward's matrix products, attention as the whole square of scores"
"""As Narayanan et al., arXiv:2104.04473, equation 3, without what checkpointing recomputes."""


@dataclass(frozen=True, kw_only=True)
class TrainingOnCluster(PricedTraining, ByBuckets, ByLayout, OnCluster, Training):
    """A training on a cluster, and a library for its collectives.

    ``library`` ``auto`` is the cluster's default. ``global_batch`` are the samples per step of strong scaling
    and of a search of layouts. A GPU keeps ``reserve`` bytes free, by default those of
    `ringside.sim.training.memory.room`.
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
        gpu = device_of(self.cluster, self.settings) if self.device is None else device(self.device)
        return gpu if self.power_cap is None else gpu.capped(self.power_cap)

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
            text = f"{precision} on {self.gpu.name}{self._paced}, gradients {types}"
        if self.throughput:
            samples_per_s, ranks = self.throughput
            of_ranks = f"{ranks} rank" if ranks == 1 else f"{ranks} ranks"
            text += f", at the pace of {samples_per_s:g} samples/s measured on {of_ranks}"
        return text

    @property
    def band(self) -> float | None:
        """The factor by which four of five steps are at most faster or slower; None for timed layers."""
        if isinstance(model := self.model_on_gpu, TimedModel):
            return None
        known, named = self.throughput is not None, bool(self.stack or self.compute_efficiency)
        stack = model.computing.stack.name if isinstance(model, DecoderOnGpu) else ""
        return band(measured=known, named=named, is_decoder=bool(stack), stack=stack, gpu=self.gpu.name)

    @property
    def _paced(self) -> str:
        """What sets the pace of products, as text; nothing where a measured throughput does."""
        if not isinstance(self.model_on_gpu, DecoderOnGpu):
            share = self.compute_efficiency
            return (
                "" if self.throughput else " by kernels" if share is None else f" at {share:.0%} of its peak"
            )
        usual = "" if self.stack else ", the usual one"
        kernels = f" by kernels of stack {self.model_on_gpu.computing.stack.name}{usual}"
        if self.compute_efficiency is not None and not self.throughput:
            kernels += f", products at {self.compute_efficiency:.0%} of its peak"
        return kernels

    @property
    def usual_stack(self) -> str:
        """The stack by strategy; Megatron's where it cuts layers or models."""
        if self.strategy in STACK_OF:
            return STACK_OF[self.strategy]
        megatron = self.tp_style != "dtensor" and self.strategy not in FSDP
        return "te" if megatron and max(self.tp, self.pp, self.cp, self.ep) > 1 else "eager"

    def parallel(self) -> ParallelTraining:
        """Return the training under any layout, at the GPUs' own pace."""
        if self.accumulation > 1:
            raise LayoutError(
                "`accumulation` needs plain ddp; write `batch` for all samples and `micro_batch` for one pass"
            )
        given = self.changed(*(one.name for one in fields(ByBuckets)))
        for name in () if self.strategy in BUCKETS else given:
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
        return Libraries(
            name, self.cluster, dict(self.settings), self.bound().ranks, self.network, self.read_calibration,
            self.placement,
        )  # fmt: skip

    @cached_property
    def read_calibration(self) -> Calibration | str | None:
        """The calibration, scaled by the anchor's rows where there is one."""
        return scaled(self.calibration, self.anchor, self.cluster, self.settings)

    def bound(self, cluster: str | None = None) -> Library:
        """Return the library of all ranks together, on this cluster or on another of the same machines."""
        return self._bound(cluster or self.cluster, self.ranks, self.placement)

    def cost_of(self, step_s: float, samples: int | None, ranks: int) -> Cost | None:
        """Return what the training costs in such steps; None if no amount to train on is given."""
        return self.cost(self.model, step_s, samples, ranks)

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


def within_s(question: TrainingOnCluster, step_s: float) -> dict[str, float]:
    """Return the interval of four of five steps; layers with times of their own have none."""
    if question.band is None:
        return {}
    return {"step_lo_s": step_s / question.band, "step_hi_s": step_s * question.band}
