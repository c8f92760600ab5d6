"""Shared by published tables: the efficiency that a step implies, the host's time, and many micro-batches."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

ROUNDS = 2
"""Micro-batches a pipeline rank that are simulated: each round beyond them takes as long as the second."""

ONE_BUCKET_MB = 1e6
"""A bucket cap (MiB) that no model fills: gradients are summed after backward, as Megatron-LM's once were."""

LEAST = 0.05
"""The least share of a peak that `solved` tries."""

NEAR = 1e-4
"""The relative error of a step time at which `solved` ends."""


def solved(predicted_s: Callable[[float], float], step_s: float) -> float:
    """Return the efficiency up to 1 whose step time is nearest to this one.

    A step is nearly linear in the efficiency's inverse; the secant method finds the root.
    """
    tried: list[tuple[float, float]] = []
    efficiency = 0.5
    for _ in range(12):
        off = predicted_s(efficiency) / step_s - 1
        if abs(off) < NEAR:
            break
        tried.append((1 / efficiency, off))
        if len(tried) == 1:
            efficiency *= 1 + off
        else:
            (before, far), (here, near) = tried[-2:]
            if far == near:
                break
            efficiency = 1 / max(here - near * (here - before) / (near - far), 1.0)
        efficiency = min(max(efficiency, LEAST), 1.0)
        if 1 / efficiency == tried[-1][0]:
            break  # at an end
    return efficiency


class ProductsLine(NamedTuple):
    """A step's seconds as products take them: ``rest_s``, and ``products_s`` at their peak."""

    rest_s: float
    products_s: float

    @classmethod
    def of(cls, predicted_s: Callable[[float], float]) -> "ProductsLine":
        """Return the line through two efficiencies; a step is nearly straight in their inverse."""
        half, whole = (predicted_s(efficiency) for efficiency in (0.5, 1.0))
        return cls(2 * whole - half, half - whole)


def steps_s(step_s: float, lines: Sequence[ProductsLine], host_s: float) -> list[float]:
    """Return the other lines' seconds at the inverse efficiency with which the first takes ``step_s``.

    In each, GPUs wait ``host_s`` for their hosts.
    """
    sets, *others = lines
    slowness = (step_s - host_s - sets.rest_s) / sets.products_s
    return [line.rest_s + slowness * line.products_s + host_s for line in others]


def chosen_host_s(measured: Sequence[float], steps: Mapping[float, Sequence[float]], left_out: int) -> float:
    """Return the option whose steps have the least mean error over all measured ones but one."""

    def error(host_s: float) -> float:
        pairs = enumerate(zip(measured, steps[host_s], strict=True))
        return fmean(abs(step_s / seen - 1) for place, (seen, step_s) in pairs if place != left_out)

    return min(steps, key=error)


def whole_s(step_s: Callable[[int], float], micro_batches: int, pipeline: int = 1) -> float:
    """Return the seconds of a step, extrapolated from steps with fewer micro-batches."""
    most = min(micro_batches, ROUNDS * pipeline)
    seconds = step_s(most)
    if micro_batches > most:
        seconds += (micro_batches - most) / pipeline * (seconds - step_s(most - pipeline))
    return seconds
