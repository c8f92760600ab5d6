"""Times of passes of tensor-parallel ranks without contention, and layers without exchanges.

All ranks of a group act alike at the same times, so their exchanges can be replaced by times. The rest of a
job is then simulated without them.
"""

from dataclasses import replace

from ringside.sim.program.groups import CostModel
from ringside.sim.training.layers import Kernels, Pass, RankLayer


def pass_s(parts: Pass, time: CostModel) -> float:
    """Return the seconds of a pass whose exchanges take ``time``; work hides earlier ones that overlap."""
    now = beside = 0.0
    for part in parts:
        if isinstance(part, Kernels):
            now = max(now + part.seconds, beside)
            continue
        beside = max(now, beside) + time(part.collective)
        if not part.overlaps:
            now = beside
    return max(now, beside)


def without_exchanges(layer: RankLayer, time: CostModel) -> RankLayer:
    """Return the layer with its exchanges' time added to its work."""

    def whole(parts: Pass) -> Pass:
        return (Kernels(pass_s(parts, time)),) if parts else ()

    return replace(
        layer,
        forward=whole(layer.forward),
        backward=whole(layer.backward),
        input_gradient=whole(layer.input_gradient),
        weight_gradient=whole(layer.weight_gradient),
        recomputed=whole(layer.recomputed),
    )
