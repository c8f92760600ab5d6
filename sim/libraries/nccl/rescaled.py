"""What NCCL's tuner says of other rates of a machine that was measured: its time now over its time before."""

from math import isfinite

from ringside.sim.libraries.nccl.graph.system import System, nvlink_in_datasheet
from ringside.topologies.units import format_rate

RATES = ("nvlink", "nic", "pcie", "socket")
"""The figures of a machine that can be set."""


def change(now: System, before: System, now_s: float, before_s: float) -> float | None:
    """How many times as long a pair takes as before, by the tuner's times; ``None`` where it lacks one.

    It is no more times as long as the rate that fell most has fallen, and no shorter than by what the one
    that rose most has risen. NCCL's search finds other channels for other rates, and with them the tuner now
    and then believes in latencies and limits that no rate explains.
    """
    if not (isfinite(now_s) and isfinite(before_s)):
        return None
    rates: list[tuple[float, float]] = [(getattr(now, name), getattr(before, name)) for name in RATES]
    grown = [new / old for new, old in rates if new and old]
    least, most = 1 / max(1.0, *grown), 1 / min(1.0, *grown)
    return min(max(now_s / before_s, least), most)


def told(now: System, before: System) -> str:
    """The rates that are not as before, in words."""
    found = {name: getattr(now, name) for name in RATES if getattr(now, name) != getattr(before, name)}
    if "nvlink" in found:
        found["nvlink"] = nvlink_in_datasheet(found["nvlink"], now.compute_capability)
    return ", ".join(f"{name} {format_rate(rate, 4)}" for name, rate in found.items())
