"""One rank's part of a model's layer, and the work of one micro-batch in it.

A layer as it stands on one rank: its parameters and its work after tensor, context and expert parallelism,
before data parallelism shards it. A model defines its layers, a schedule their passes, and
`ringside.sim.training.stage` the gathers and reductions around them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

from ringside.sim.collective import Collective
from ringside.sim.workload.workload import Layer, Tensor, Workload


class Kernels(NamedTuple):
    """Kernels that take ``seconds`` while nothing else uses the rank's units."""

    seconds: float


class Exchange(NamedTuple):
    """A collective along dimensions of the mesh (`ringside.sim.training.mesh`), which the pass waits for.

    If it ``overlaps``, the next work runs concurrently and only later work waits; so do several in a row.
    """

    dimensions: tuple[str, ...]
    collective: Collective
    overlaps: bool = False


Pass = tuple[Kernels | Exchange, ...]
"""A micro-batch's operations in a layer, in order."""


def is_of_experts(part: Kernels | Exchange | None) -> bool:
    """Return whether a part of a pass sends tokens to their experts or back.

    The host waits for counts of tokens, so that nothing hides their exchange.
    """
    return isinstance(part, Exchange) and part.dimensions == ("expert",)


def work_s(parts: Pass) -> float:
    """Return the seconds of a pass's kernels."""
    return sum(part.seconds for part in parts if isinstance(part, Kernels))


Terms = tuple[tuple[str, int], ...]
"""Bytes by what they belong to."""


class Loss(NamedTuple):
    """The loss as the end of a layer's forward and the begin of its backward: its shares of their work.

    It is no part of the model that FSDP wraps. ``forward_nbytes`` and ``backward_nbytes`` are what the layer
    itself holds during its passes; those of the layer are the most, with the loss's.
    """

    forward: float
    backward: float
    input_gradient: float
    forward_nbytes: int
    backward_nbytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLayer:
    """One layer on one rank.

    Backward is ``recomputed``, then ``backward``. Schedules that split it have ``recomputed`` and
    ``input_gradient`` first, ``weight_gradient`` later. ``kept`` activations are held from forward
    to the end of backward, ``recomputed_nbytes`` more during backward; ``forward_nbytes`` and
    ``backward_nbytes`` are held during one pass alone, such as other ranks' activations, or gradients.
    ``unsharded_nbytes`` is what gradients have more than parameters until the optimizer shards them.
    ``wrapped`` says that FSDP wraps it as a unit of its own; the parameters of all other layers belong to the
    root. ``experts`` are parameters that are sharded over expert-parallel
    ranks. ``arrival`` lists groups of parameters whose gradients backward finishes together, in that order,
    each with the share of backward's work done since the group before; parameters in no group come with the
    last, in reverse order of definition. ``loss`` is the part of it that is the loss's, if any. No pass is
    shorter than the host needs to launch its kernels: ``forward_launch_s``, also to recompute, and
    ``backward_launch_s``.
    """

    name: str
    parameters: tuple[Tensor, ...] = ()
    forward: Pass = ()
    backward: Pass = ()
    input_gradient: Pass = ()
    weight_gradient: Pass = ()
    recomputed: Pass = ()
    kept: Terms = ()
    recomputed_nbytes: int = 0
    forward_nbytes: int = 0
    backward_nbytes: int = 0
    unsharded_nbytes: int = 0
    wrapped: bool = True
    experts: tuple[Tensor, ...] = ()
    arrival: tuple[tuple[tuple[str, ...], float], ...] = ()
    loss: Loss | None = None
    forward_launch_s: float = 0.0
    backward_launch_s: float = 0.0
    kept_nbytes: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "kept_nbytes", sum(nbytes for _, nbytes in self.kept))

    @property
    def nbytes(self) -> int:
        """Bytes of its parameters, including experts."""
        return sum(tensor.nbytes for tensor in (*self.parameters, *self.experts))

    @property
    def expert_nbytes(self) -> int:
        """Bytes of its experts' parameters."""
        return sum(tensor.nbytes for tensor in self.experts)

    @property
    def undivided(self) -> "RankLayer":
        """Return the layer with its experts as ordinary parameters, as each rank has all of them."""
        return replace(self, parameters=(*self.parameters, *self.experts), experts=())


def arriving(layers: Sequence[RankLayer]) -> tuple[RankLayer, ...]:
    """Cut the layers into modules whose gradients backward finishes one after another, in forward order.

    Forward and its activations belong to the first module, recomputation and what backward holds to the last
    one. Gradients of weights that a schedule postpones arrive all at once.
    """
    return tuple(module for layer in layers for module in _arriving(layer))


def workload_of(
    name: str,
    layers: Sequence[RankLayer],
    buffers: tuple[Tensor, ...] = (),
    *,
    batch: int = 1,
    sample: str = "sample",
) -> Workload:
    """Return the layers as DistributedDataParallel sees them: all tensors, and gradients in arrival order."""
    tensors = [replace(one, name=f"{layer.name}.{one.name}") for layer in layers for one in layer.parameters]
    place = {tensor.name: number for number, tensor in enumerate(tensors)}
    return Workload(
        name=name,
        parameters=tuple(tensors),
        layers=tuple(
            Layer(
                module.name,
                tuple(place[f"{layer.name}.{one.name}"] for one in reversed(module.parameters)),
                max(work_s(module.forward), module.forward_launch_s),
                max(work_s((*module.recomputed, *module.backward)), module.backward_launch_s),
                module.kept_nbytes,
                module.forward_nbytes,
                module.backward_nbytes,
            )
            for layer in reversed(layers)
            for module in reversed(_arriving(layer))
        ),
        buffers=buffers,
        batch=batch,
        sample=sample,
    )


def without_loss(layers: Sequence[RankLayer]) -> tuple[RankLayer, ...]:
    """Cut the loss off the layer that has it, as a further layer."""
    return tuple(part for layer in layers for part in _without_loss(layer))


def as_modules(layers: Sequence[RankLayer]) -> tuple[RankLayer, ...]:
    """Cut the layers into the modules of their parameters, in order.

    Each module has a share of the layer's compute in proportion to its parameters; exchanges stay in place.
    Backward begins with a layer's last module, and frees activations when it leaves the layer.
    """
    return tuple(module for layer in layers for module in _modules(layer))


def _without_loss(layer: RankLayer) -> tuple[RankLayer, ...]:
    loss = layer.loss
    if loss is None:
        return (layer,)
    after, forward = _first(layer.forward[::-1], loss.forward)
    before, backward = _first(layer.backward, loss.backward)
    inputs_before, inputs = _first(layer.input_gradient, loss.input_gradient)
    return (
        replace(
            layer, forward=forward[::-1], backward=backward, input_gradient=inputs, loss=None,
            forward_nbytes=loss.forward_nbytes, backward_nbytes=loss.backward_nbytes,
        ),
        RankLayer(
            name=f"{layer.name} loss", forward=after, backward=before, input_gradient=inputs_before,
            wrapped=False, forward_nbytes=layer.forward_nbytes, backward_nbytes=layer.backward_nbytes,
        ),
    )  # fmt: skip


def _first(parts: Pass, share: float) -> tuple[Pass, Pass]:
    """Cut kernels that a pass begins with, of this share of its work, off the others."""
    first, *others = parts
    assert isinstance(first, Kernels)
    seconds = min(share * work_s(parts), first.seconds)
    left = first.seconds - seconds
    # sums of seconds are rounded
    return (Kernels(seconds),), (*((Kernels(left),) if left > 1e-9 * seconds else ()), *others)


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
            # the whole layer is recomputed before its backward begins
            recomputed=layer.recomputed if place == last else (),
            kept=() if place else layer.kept,
            recomputed_nbytes=0 if place else layer.recomputed_nbytes,
            forward_launch_s=layer.forward_launch_s * shares[place],
            backward_launch_s=layer.backward_launch_s * shares[place],
        )
        for place, own in enumerate(owned)
    ]


def _arriving(layer: RankLayer) -> list[RankLayer]:
    if not layer.arrival:
        return [layer]
    pieces = _cut(layer.backward, [share for _, share in layer.arrival])
    left = {tensor.name: tensor for tensor in layer.parameters}
    modules: list[RankLayer] = []
    for (names, share), piece in zip(layer.arrival, pieces, strict=True):
        is_first, is_last = not modules, len(modules) == len(pieces) - 1
        own = [left.pop(name) for name in names if name in left]
        modules.append(
            replace(
                layer if is_last else RankLayer(name=layer.name, wrapped=layer.wrapped),
                name=f"{layer.name} {names[0].rpartition('.')[0]}",
                parameters=(*(left.values() if is_last else ()), *reversed(own)),
                backward=piece,
                recomputed=layer.recomputed if is_first else (),
                recomputed_nbytes=layer.recomputed_nbytes if is_first else 0,
                backward_nbytes=layer.backward_nbytes if is_first else 0,
                input_gradient=layer.input_gradient if is_first else (),
                weight_gradient=layer.weight_gradient if is_first else (),
                backward_launch_s=layer.backward_launch_s * share,
                arrival=(),
            )
        )
    return modules[::-1]


def _module(tensor: Tensor) -> str:
    """Return ``query`` of ``query.weight``."""
    return tensor.name.rpartition(".")[0] or tensor.name


def _cut(parts: Pass, shares: Sequence[float]) -> list[Pass]:
    """Cut a pass into pieces with these shares of its work; work that overlaps an exchange stays with it."""
    total = work_s(parts)
    left = [share * total for share in shares]
    pieces: list[list[Kernels | Exchange]] = [[] for _ in shares]
    place, beside = 0, False
    for part in parts:
        if not isinstance(part, Kernels):
            pieces[place].append(part)
            beside = part.overlaps
            continue
        seconds = part.seconds
        while not beside and place < len(shares) - 1 and seconds > left[place]:
            pieces[place] += [Kernels(left[place])] if left[place] > 0 else []
            seconds -= max(left[place], 0.0)
            place += 1
        pieces[place] += [Kernels(seconds)] if seconds else []
        left[place] -= seconds
        beside = False
    return [tuple(piece) for piece in pieces]
