"""The share of a GPU's peak that a published step implies."""

from collections.abc import Callable

LEAST = 0.05
"""The least share of a peak that is looked for."""

NEAR = 1e-4
"""How near a step must come."""


def solved(predicted_s: Callable[[float], float], step_s: float, most: float = 1.0) -> float:
    """Return the efficiency up to ``most`` that comes nearest to this step time.

    A step is nearly linear in the efficiency's inverse; the secant method finds the root.
    """
    found: list[tuple[float, float]] = []
    efficiency = 0.5
    for _ in range(12):
        off = predicted_s(efficiency) / step_s - 1
        if abs(off) < NEAR:
            break
        found.append((1 / efficiency, off))
        if len(found) == 1:
            efficiency *= 1 + off
        else:
            (before, far), (here, near) = found[-2:]
            if far == near:
                break
            efficiency = 1 / max(here - near * (here - before) / (near - far), 1 / most)
        efficiency = min(max(efficiency, LEAST), most)
    return efficiency
