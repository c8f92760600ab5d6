"""A model as a layout cuts it: one tensor-parallel rank's part of each layer, and the stages."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise

from ringside.sim.training.layers import Kernels, RankLayer
from ringside.sim.training.layout import LayoutError
from ringside.sim.workload.workload import Tensor, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class RankModel:
    """``layers`` in forward order, each as one rank has it, for one micro-batch.

    ``between_nbytes`` pass from layer to layer, one entry for each but the last. ``tokens`` is the number per
    sample, if it has tokens; ``model_flops`` are forward and backward of one sample on all ranks together,
    ``recomputed_flops`` those of checkpointing's recomputation, None if unknown. ``output_nbytes`` are a
    micro-batch's logits, of a model that returns its loss beside them. ``tied`` is the embedding if the
    output product shares it.
    """

    name: str
    sample: str
    layers: tuple[RankLayer, ...]
    between_nbytes: tuple[int, ...]
    num_parameters: int
    tokens: int | None = None
    model_flops: float | None = None
    recomputed_flops: float = 0.0
    buffers: tuple[Tensor, ...] = ()
    frozen_nbytes: int = 0
    output_nbytes: int = 0
    tied: Tensor | None = None

    def cut(self, stages: int) -> tuple[range, ...]:
        """Return the layers of each stage.

        If the repeated layers divide by the stages, each stage has the same number of them, plus
        the layers before the first and after the last, such as an embedding and the output product;
        otherwise the longest stage is as short as possible.
        """
        alone = [number for number, layer in enumerate(self.layers) if layer.wrapped]
        if len(self.layers) < stages:
            raise LayoutError(
                f"{len(self.layers)} layers of {self.name} on {stages} stages leave a stage without layers; "
                f"write `pp` and `virtual` whose product is {len(self.layers)} at the most"
            )
        if alone and len(alone) % stages == 0:
            each = len(alone) // stages
            firsts = [0, *alone[each::each], len(self.layers)]
        else:
            firsts = _shortest(tuple(seconds_of(layer) for layer in self.layers), stages)
        return tuple(range(first, stop) for first, stop in pairwise(firsts))


def workload_on_rank(workload: Workload, *, units: bool, model_flops: float | None = None) -> RankModel:
    """Convert a workload, which tensor parallelism does not cut, to a rank's model.

    With ``units`` the layers of one block, by their names, make one layer, as FSDP wraps them. The tensor
    between layers is the later one's kept activation, its input. Logits are the activations kept by layers
    after the last parameters.
    """
    forward = workload.layers[::-1]
    loss = 1 + max((number for number, layer in enumerate(forward) if layer.gradients), default=len(forward))
    runs = [[layer] for layer in forward]
    names = [layer.name for layer in forward]
    if units:
        runs = [list(run) for _, run in groupby(forward, key=lambda layer: _block(layer.name) or layer.name)]
        names = [_block(run[0].name) or run[0].name for run in runs]
    layers = tuple(
        RankLayer(
            name=name,
            # backward finishes the gradients of the last parameters first
            parameters=tuple(
                workload.parameters[index] for layer in run for index in reversed(layer.gradients)
            ),
            forward=(Kernels(sum(layer.forward_s for layer in run)),),
            backward=(Kernels(sum(layer.backward_s for layer in run)),),
            # half of it is for the input's gradient, if there are both
            input_gradient=(Kernels(sum(layer.backward_s for layer in run) / 2),),
            weight_gradient=(Kernels(sum(layer.backward_s for layer in run) / 2),),
            kept_nbytes=sum(layer.activation_nbytes for layer in run),
            wrapped=not units or _block(run[0].name) is not None,
        )
        for name, run in zip(names, runs, strict=True)
    )
    return RankModel(
        name=workload.name, sample=workload.sample, layers=layers,
        between_nbytes=tuple(run[0].activation_nbytes for run in runs[1:]),
        num_parameters=workload.num_parameters, buffers=workload.buffers,
        frozen_nbytes=workload.frozen_nbytes, model_flops=model_flops,
        output_nbytes=sum(layer.activation_nbytes for layer in forward[loss:]),
    )  # fmt: skip


def seconds_of(layer: RankLayer) -> float:
    """Return a micro-batch's compute seconds in a layer, forward and backward."""
    passes = (*layer.forward, *layer.recomputed, *layer.backward)
    return sum(part.seconds for part in passes if isinstance(part, Kernels))


def _block(name: str) -> str | None:
    """Return ``encoder.layer.3`` of ``encoder.layer.3.output.dense``; None for a name without a number.

    Torchvision's ``encoder_layer_3`` counts too.
    """
    match = re.match(r"(.*?(?:\.|layer_)\d+)(?:\.|$)", name)
    return match[1] if match else None


@lru_cache(maxsize=1024)
def _shortest(seconds: tuple[float, ...], stages: int) -> list[int]:
    """Return the begin of each stage, and the end; minimise the longest stage, and leave none empty."""
    low, high = max(seconds), sum(seconds)
    firsts = _filled(seconds, stages, high)
    for _ in range(60):
        middle = (low + high) / 2
        begins = _filled(seconds, stages, middle)
        if begins is None:
            low = middle
        else:
            firsts, high = begins, middle
    assert firsts is not None
    return firsts


def _filled(seconds: Sequence[float], stages: int, most: float) -> list[int] | None:
    """Fill stages one after another up to ``most`` seconds; return None if layers are left."""
    firsts, total = [0], 0.0
    for number, own in enumerate(seconds):
        left = len(seconds) - number
        full = total + own > most or left == stages - len(firsts)
        if number > firsts[-1] and full:
            firsts.append(number)
            total = 0.0
        total += own
    enough = len(firsts) == stages and total <= most * (1 + 1e-12)
    return [*firsts, len(seconds)] if enough else None
