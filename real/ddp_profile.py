"""What a model's passes took when ranks shared nothing, as a workload: what a prediction starts from."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from real.module import architecture
from real.user_model import build
from sim.workload import Layer, Workload


def parameters_of(model: str) -> Workload:
    """What `real.user_model`'s ``model`` trains, with layers still to be timed; it takes no memory."""
    with torch.device("meta"):
        module, inputs = build(model)
    bare = architecture(module)
    sizes = [leaf.shape[0] for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor) and leaf.dim()]
    return Workload(bare.name, bare.parameters, (), bare.buffers, batch=next(iter(sizes), 1))


def profile(bare: Workload, passes: Sequence[Sequence[Mapping[str, Any]]]) -> Workload:
    """The workload with the times that every rank saw in several passes.

    A gradient is as late as on its last rank, in the median pass. Each gradient is a layer of its
    own; the whole forward pass belongs to the last one, which has none.
    """
    alone = [[rank["alone"] for rank in ranks] for ranks in passes]
    forwarded, end = (
        median(max(seen[key] for seen in ranks) for ranks in alone) for key in ("forwarded", "end")
    )
    arrived = {
        int(index): median(max(seen["arrived"][index] for seen in ranks) for ranks in alone)
        for index in alone[0][0]["arrived"]
    }
    layers, before = [], forwarded
    for index in sorted(arrived, key=lambda index: arrived[index]):
        name = bare.parameters[index].name
        layers.append(Layer(name, (index,), backward_s=max(arrived[index] - before, 0.0)))
        before = max(arrived[index], before)
    layers.append(Layer("rest", forward_s=forwarded, backward_s=max(end - before, 0.0)))
    return replace(bare, layers=tuple(layers))
