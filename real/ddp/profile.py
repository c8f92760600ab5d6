"""A model's pass times without communication, as a workload for predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from ringside.real.model.architecture import architecture
from ringside.real.model.user_model import batch_of, build_light
from ringside.sim.workload.workload import Layer, Workload


def parameters_of(model: str) -> Workload:
    """Return what a user's ``model`` trains, with layers still to be timed; it takes no memory."""
    module, inputs = build_light(model)
    bare = architecture(module)
    return Workload(bare.name, bare.parameters, (), bare.buffers, batch=batch_of(inputs))


def profile(bare: Workload, passes: Sequence[Sequence[Mapping[str, Any]]]) -> Workload:
    """Return the workload with the times that every rank measured in several passes.

    A gradient's time is that of its last rank, in the median pass. Each gradient is a layer of its own; the
    whole forward pass belongs to the last one, which has no gradient.
    """
    alone = [[rank["alone"] for rank in ranks] for ranks in passes]
    forwarded, end = (
        median(max(seen[key] for seen in ranks) for ranks in alone) for key in ("forwarded", "end")
    )
    arrived = {
        int(index): median(
            max((seen["arrived"][index] for seen in ranks if index in seen["arrived"]), default=end)
            for ranks in alone
        )
        for index in {index for ranks in alone for seen in ranks for index in seen["arrived"]}
    }
    layers, before = [], forwarded
    for index in sorted(arrived, key=lambda index: arrived[index]):
        name = bare.parameters[index].name
        layers.append(Layer(name, (index,), backward_s=max(arrived[index] - before, 0.0)))
        before = max(arrived[index], before)
    layers.append(Layer("rest", forward_s=forwarded, backward_s=max(end - before, 0.0)))
    return replace(bare, layers=tuple(layers))
