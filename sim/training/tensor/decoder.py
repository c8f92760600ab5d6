"""One rank's part of a decoder: cut by tensor parallelism within layers, by the pipeline between them."""

from dataclasses import dataclass, replace

from ringside.sim.collective import Collective
from ringside.sim.compute.prices import StackOnGpu
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.job import RankModel
from ringside.sim.training.layers import workload_of
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.memory.software import Software
from ringside.sim.training.tensor.context import ContextParallel
from ringside.sim.training.tensor.costs import WRITTEN, Numerics
from ringside.sim.training.tensor.cut import Pull, TensorParallel
from ringside.sim.training.tensor.dispatch import ExpertParallel
from ringside.sim.training.tensor.layers import rank_layers, tied_embedding
from ringside.sim.training.tensor.passes import DTYPES, exchange
from ringside.sim.workload.architecture import ArchitectureOnGpu
from ringside.sim.workload.decoder import DECODERS, MODULES, Decoder
from ringside.sim.workload.devices import Device, stored
from ringside.sim.workload.workload import TimedModel, Workload

BATCH = 32
"""Default samples per pass of a decoder."""

USUAL = Numerics()
"""Attention in one kernel, without dropout."""


@dataclass(frozen=True, slots=True)
class DecoderOnGpu:
    """A decoder, and how a GPU computes it; ``batch`` sequences pass at once by default.

    ``dtype`` is the stored type of parameters and gradients, ``cublas`` and ``grouped`` are
    `Software`'s.
    """

    decoder: Decoder
    gpu: Device
    batch: int
    precision: str
    dtype: str
    computing: StackOnGpu
    numerics: Numerics
    cublas: int | None = None
    grouped: bool = True

    def workload(self, batch: int | None = None) -> Workload:
        """Return a training step of ``batch`` sequences."""
        made = decoder_workload(self.decoder, self.computing, batch or self.batch, self.dtype, self.numerics)
        return replace(made, workspace_nbytes=self._software(Layout()).workspaces)

    def on_rank(self, layout: Layout, libraries: Libraries, tensor_ranks: tuple[int, ...]) -> RankModel:
        """Return the decoder as one of some tensor-parallel ranks has it."""
        pull = _pull(libraries, tensor_ranks, self.gpu) if layout.async_tp else None
        made = decoder_on_rank(
            self.decoder, layout, self.computing, self.dtype, numerics=self.numerics, pull=pull
        )
        return replace(made, software=self._software(layout))

    def _software(self, layout: Layout) -> Software:
        experts, rows = self.decoder.experts, layout.micro_batch * self.decoder.heads // layout.tp
        return Software(
            kept=self.computing.stack.kept, capability=self.gpu.capability,
            itemsize=self.computing.itemsize, cublas=self.cublas, grouped=self.grouped,
            local_experts=experts.count // layout.ep if experts else 0,
            scores=rows * self.decoder.sequence**2 // layout.cp if self.numerics.attention in WRITTEN else 0,
        )  # fmt: skip

    @property
    def peak_s(self) -> float:
        """Seconds of a sequence's products, forward and backward, at the GPU's peak, a lower bound."""
        return self.decoder.training_flops(causal=True) / self.gpu.peak(self.precision)


ModelOnGpu = DecoderOnGpu | ArchitectureOnGpu | TimedModel
"""A model that is trained on a GPU."""


def decoder_on_gpu(
    decoder: Decoder,
    gpu: Device,
    computing: StackOnGpu,
    *,
    batch: int | None,
    dtype: str | None,
    attention: str | None,
    dropout: bool,
    loss: str,
    attention_mask: bool = False,
    permute_fusion: bool = True,
    cublas: int | None = None,
    grouped: bool = True,
) -> DecoderOnGpu:
    """Return a decoder on a GPU; ``attention`` is one of `ATTENTION`, None that of the stack."""
    usual = computing.stack.attention(gpu.capability)
    numerics = Numerics(
        attention=attention or usual, dropout=dropout, loss=loss, attention_mask=attention_mask,
        permute_fusion=permute_fusion,
    )  # fmt: skip
    return DecoderOnGpu(
        decoder, gpu, batch or BATCH, computing.roofline.precision, stored(dtype) or "float32", computing,
        numerics, cublas, grouped,
    )  # fmt: skip


def decoder_on_rank(
    decoder: Decoder,
    layout: Layout,
    computing: StackOnGpu,
    dtype: str,
    *,
    numerics: Numerics = USUAL,
    pull: Pull | None = None,
) -> RankModel:
    """Return the decoder as a rank has it; parameters and gradients are of ``dtype``.

    ``numerics`` say how attention is computed, ``pull`` how tensor-parallel ranks read each other's memory
    where the layout has them do so. Layers pass activations on, sharded along the sequence
    under sequence parallelism.
    """
    _check_experts(decoder, layout)
    _check_recomputed(decoder, layout)
    experts = ExpertParallel(
        degree=layout.ep, tensor=layout.etp, dispatcher=layout.dispatcher, imbalance=layout.ep_imbalance,
        capacity=layout.capacity_factor,
    )  # fmt: skip
    parallel = TensorParallel(
        degree=layout.tp, sequence=layout.sequence_parallel, style=layout.style, pull=pull
    )
    layers = rank_layers(
        decoder, computing, micro_batch=layout.micro_batch, parallel=parallel,
        context=ContextParallel(degree=layout.cp, method=layout.cp_method),
        numerics=replace(numerics, dtype=dtype, checkpointing=layout.checkpointing,
                         recompute=layout.modules),
        experts=experts,
    )  # fmt: skip
    totals = decoder.totals(layout.checkpointing, layout.modules)
    tokens = layout.micro_batch * decoder.sequence // layout.cp
    whole = tokens * decoder.width * computing.itemsize
    scatters = computing.stack.scatters and layout.tp > 1 and not layout.sequence_parallel
    between = whole // layout.tp if scatters or layout.sequence_parallel else whole
    return RankModel(
        name=decoder.name,
        sample=decoder.sample,
        layers=layers,
        between_nbytes=(between,) * (len(layers) - 1),
        received=(exchange(layout.tp, "all_gather", whole, DTYPES[computing.itemsize]),) if scatters else (),
        num_parameters=totals.parameters,
        tokens=decoder.sequence,
        model_flops=totals.model_flops,
        recomputed_flops=totals.recomputed_flops,
        output_nbytes=tokens * decoder.vocabulary * computing.itemsize,
        tied=tied_embedding(decoder, parallel, dtype) if decoder.tied or decoder.predicted else None,
        letters=f"E{'t' * decoder.layers}{'m' * decoder.predicted}L",
        splits=computing.stack.splits,
    )


def decoder_workload(
    decoder: Decoder, computing: StackOnGpu, batch: int, dtype: str, numerics: Numerics = USUAL
) -> Workload:
    """Return one training step of ``batch`` sequences on a GPU that has the whole decoder."""
    if batch < 1:
        raise ValueError(f"a batch of {batch}; write 1 or more samples")
    model = decoder_on_rank(decoder, Layout(micro_batch=batch), computing, dtype, numerics=numerics)
    layers = [layer.undivided for layer in model.layers]
    return workload_of(model.name, layers, batch=batch, sample=model.sample)


def _check_experts(decoder: Decoder, layout: Layout) -> None:
    """Raise LayoutError for experts' options without experts, and if all ranks would send all tokens."""
    if decoder.experts is None:
        given = {"`ep`": layout.ep > 1, "`etp`": layout.etp is not None,
                "`dispatcher`": layout.dispatcher != "alltoall",
                "`capacity_factor`": layout.capacity_factor is not None,
                "`ep_imbalance`": layout.ep_imbalance != 1}  # fmt: skip
        for option in (name for name, is_said in given.items() if is_said):
            mixtures = ", ".join(name for name, one in DECODERS.items() if one.experts)
            raise LayoutError(
                f"{option} needs a mixture of experts, and {decoder.name} is none; leave it out, or write "
                f"`model` {mixtures}"
            )
    elif layout.tp > 1 and not layout.sequence_parallel:
        raise LayoutError(
            f"`tp` {layout.tp} has each rank send its own part of the tokens to the experts of "
            f"{decoder.name}; add `sequence_parallel`"
        )


def _check_recomputed(decoder: Decoder, layout: Layout) -> None:
    """Raise LayoutError for modules that the decoder has nowhere."""
    experts = decoder.experts
    missing = {
        "mla_up_proj": decoder.latent is None, "moe": experts is None, "moe_act": experts is None,
        "shared_experts": experts is None or not experts.shared_hidden,
        "mlp": all(map(decoder.has_experts, range(decoder.layers))),
    }  # fmt: skip
    for module in layout.modules:
        if missing.get(module):
            fitting = [one for one in MODULES if not missing.get(one)]
            raise LayoutError(
                f"`recompute`: {decoder.name} has no {module}; write one of {', '.join(fitting)}"
            )


_NBYTES = 2**28
"""Bytes of a gather whose latency is negligible."""


def _pull(libraries: Libraries, ranks: tuple[int, ...], gpu: Device) -> Pull:
    """Return copies at the pace at which large all-gathers of the library deliver neighbours' bytes."""
    library, gather = libraries.of(ranks), Collective("all_gather", len(ranks), _NBYTES)
    seconds = library.time(gather, library.choose(gather)).time_s
    rate = _NBYTES * (len(ranks) - 1) / len(ranks) / seconds
    return Pull(rate, multiprocessors=gpu.multiprocessors)
