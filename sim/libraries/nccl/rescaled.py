"""NCCL's tuner on changed rates of a measured machine: its time now over its time before."""

from math import isfinite

from ringside.sim.libraries.nccl.graph.system import System, nvlink_in_datasheet
from ringside.topologies.units import format_rate

RATES = ("nvlink", "nic", "pcie", "socket")
"""The figures of a machine that can be set."""


def change(now: System, before: System, now_s: float, before_s: float) -> float | None:
    """Return a pair's time over that before, by the tuner's times; ``None`` if it lacks one.

    The ratio is bounded by the rate that fell most and the one that rose most. NCCL's search finds other
    channels for other rates, and the tuner's estimates then sometimes contain latencies and limits that
    no rate explains.
    """
    if not (isfinite(now_s) and isfinite(before_s)):
        return None
    rates: list[tuple[float, float]] = [(getattr(now, name), getattr(before, name)) for name in RATES]
    grown = [new / old for new, old in rates if new and old]
    least, most = 1 / max(1.0, *grown), 1 / min(1.0, *grown)
    return min(max(now_s / before_s, least), most)


def told(now: System, before: System) -> str:
    """Describe the changed rates."""
    rates = {name: getattr(now, name) for name in RATES if getattr(now, name) != getattr(before, name)}
    if "nvlink" in rates:
        rates["nvlink"] = nvlink_in_datasheet(rates["nvlink"], now.compute_capability)
    return ", ".join(f"{name} {format_rate(rate, 4)}" for name, rate in rates.items())
