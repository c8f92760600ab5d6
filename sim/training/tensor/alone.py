"""How long passes take where tensor-parallel ranks have links to themselves, and layers without exchanges.

All ranks of a group do the same at the same time, so what they exchange can be written as time. What else
goes on in a job is then simulated without them.
"""

from dataclasses import replace

from ringside.sim.training.groups import CollectiveTime
from ringside.sim.training.layers import Pass, RankLayer, Work


def pass_s(parts: Pass, time: CollectiveTime) -> float:
    """Seconds of a pass whose exchanges take ``time`` each; work hides those before it that overlap."""
    now = beside = 0.0
    for part in parts:
        if isinstance(part, Work):
            now = max(now + part.seconds, beside)
            continue
        beside = max(now, beside) + time(part.collective)
        if not part.overlaps:
            now = beside
    return max(now, beside)


def without_exchanges(layer: RankLayer, time: CollectiveTime) -> RankLayer:
    """The layer with the time of its exchanges in that of its work."""

    def whole(parts: Pass) -> Pass:
        return (Work(pass_s(parts, time)),) if parts else ()

    return replace(
        layer,
        forward=whole(layer.forward),
        backward=whole(layer.backward),
        input_gradient=whole(layer.input_gradient),
        weight_gradient=whole(layer.weight_gradient),
        recomputed=whole(layer.recomputed),
    )
