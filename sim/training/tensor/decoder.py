"""One rank's part of a decoder: cut by tensor parallelism within layers, by the pipeline between them."""

from dataclasses import replace

from ringside.sim.collective import Collective
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.modules import workload_of
from ringside.sim.training.rank_model import RankModel
from ringside.sim.training.tensor.context import ContextParallel
from ringside.sim.training.tensor.cut import Pull, TensorParallel
from ringside.sim.training.tensor.experts import ExpertParallel
from ringside.sim.training.tensor.layers import Numerics, rank_layers, tied_embedding
from ringside.sim.workload.decoder import DECODERS, Decoder
from ringside.sim.workload.devices import Device, Roofline
from ringside.sim.workload.workload import Workload

USUAL = Numerics()
"""Attention that never writes its scores, and computes all of them at the products' pace."""


def decoder_on_rank(
    decoder: Decoder,
    layout: Layout,
    roofline: Roofline,
    dtype: str,
    *,
    numerics: Numerics = USUAL,
    pull: Pull | None = None,
) -> RankModel:
    """Return the decoder as a rank has it, on GPUs of this pace; parameters and gradients are of ``dtype``.

    ``numerics`` say how attention is computed, ``pull`` how tensor-parallel ranks read each other's memory
    where the layout has them do so. Layers pass activations on, sharded along the sequence
    under sequence parallelism.
    """
    _check_experts(decoder, layout)
    experts = ExpertParallel(degree=layout.ep, imbalance=layout.ep_imbalance, capacity=layout.capacity_factor)
    parallel = TensorParallel(
        degree=layout.tp, sequence=layout.sequence_parallel, style=layout.style, pull=pull
    )
    layers = rank_layers(
        decoder, roofline, micro_batch=layout.micro_batch, parallel=parallel,
        context=ContextParallel(degree=layout.cp, method=layout.cp_method),
        numerics=replace(numerics, dtype=dtype, checkpointing=layout.checkpointing),
        experts=experts,
    )  # fmt: skip
    tokens = layout.micro_batch * decoder.sequence // layout.cp
    between = tokens * decoder.width * roofline.itemsize
    if layout.sequence_parallel:
        between //= layout.tp
    return RankModel(
        name=decoder.name,
        sample=decoder.sample,
        layers=layers,
        between_nbytes=(between,) * (len(layers) - 1),
        num_parameters=decoder.num_parameters,
        tokens=decoder.sequence,
        model_flops=decoder.training_flops(),
        recomputed_flops=decoder.recomputed_flops(layout.checkpointing),
        output_nbytes=tokens * decoder.vocabulary * roofline.itemsize,
        tied=tied_embedding(decoder, parallel, dtype) if decoder.tied else None,
    )


def decoder_workload(
    decoder: Decoder, roofline: Roofline, batch: int, dtype: str, numerics: Numerics = USUAL
) -> Workload:
    """Return one training step of ``batch`` sequences on a GPU that has the whole decoder."""
    if batch < 1:
        raise ValueError(f"a batch of {batch}; write 1 or more samples")
    model = decoder_on_rank(decoder, Layout(micro_batch=batch), roofline, dtype, numerics=numerics)
    layers = [layer.undivided for layer in model.layers]
    return workload_of(model.name, layers, batch=batch, sample=model.sample)


def _check_experts(decoder: Decoder, layout: Layout) -> None:
    """Raise LayoutError for experts' options without experts, and if all ranks would send all tokens."""
    if decoder.experts is None:
        given = {"`ep`": layout.ep > 1, "`capacity_factor`": layout.capacity_factor is not None,
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


_NBYTES = 2**28
"""Bytes of a gather whose latency is negligible."""


def pull_of(libraries: Libraries, ranks: tuple[int, ...], gpu: Device) -> Pull:
    """Return copies at the pace at which large all-gathers of the library deliver neighbours' bytes."""
    library, gather = libraries.of(ranks), Collective("all_gather", len(ranks), _NBYTES)
    seconds = library.time(gather, library.choose(gather)).time_s
    rate = _NBYTES * (len(ranks) - 1) / len(ranks) / seconds
    return Pull(rate, multiprocessors=gpu.multiprocessors)
