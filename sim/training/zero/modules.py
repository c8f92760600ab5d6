"""Layers cut into their modules, which DeepSpeed's stage 3 gathers one by one."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from sim.training.layers import Exchange, Pass, RankLayer, Work
from sim.workload.workload import Tensor


def as_modules(layers: Sequence[RankLayer]) -> tuple[RankLayer, ...]:
    """The layers, each as the modules that its parameters are of, in order.

    What a layer computes is a module's in proportion to its parameters; exchanges stay between the same work.
    Backward comes to a layer's last module first. What forward keeps goes when backward has left the layer.
    """
    return tuple(module for layer in layers for module in _modules(layer))


def _modules(layer: RankLayer) -> list[RankLayer]:
    owned = [tuple(own) for _, own in groupby(layer.parameters, key=_module)]
    if len(owned) < 2:
        return [layer]
    shares = [sum(tensor.count for tensor in own) / sum(one.count for one in layer.parameters)
              for own in owned]  # fmt: skip
    forward, turned = _cut(layer.forward, shares), shares[::-1]
    backward, inputs, weights = (
        _cut(parts, turned)[::-1] for parts in (layer.backward, layer.input_gradient, layer.weight_gradient)
    )
    last = len(owned) - 1
    return [
        replace(
            layer,
            name=f"{layer.name} {_module(own[0])}",
            parameters=own,
            forward=forward[place],
            backward=backward[place],
            input_gradient=inputs[place],
            weight_gradient=weights[place],
            # all of it is made anew before any of it goes backward
            recomputed=layer.recomputed if place == last else (),
            kept_nbytes=0 if place else layer.kept_nbytes,
            recomputed_nbytes=0 if place else layer.recomputed_nbytes,
        )
        for place, own in enumerate(owned)
    ]


def _module(tensor: Tensor) -> str:
    """``query`` of ``query.weight``."""
    return tensor.name.rpartition(".")[0] or tensor.name


def _cut(parts: Pass, shares: Sequence[float]) -> list[Pass]:
    """A pass in pieces that have these shares of its work; all that overlaps an exchange stays beside it."""
    total = sum(part.seconds for part in parts if isinstance(part, Work))
    left = [share * total for share in shares]
    pieces: list[list[Work | Exchange]] = [[] for _ in shares]
    place, beside = 0, False
    for part in parts:
        if not isinstance(part, Work):
            pieces[place].append(part)
            beside = part.overlaps
            continue
        seconds = part.seconds
        while not beside and place < len(shares) - 1 and seconds > left[place]:
            pieces[place] += [Work(left[place])] if left[place] > 0 else []
            seconds -= max(left[place], 0.0)
            place += 1
        pieces[place] += [Work(seconds)] if seconds else []
        left[place] -= seconds
        beside = False
    return [tuple(piece) for piece in pieces]
