"""Laws that no prediction may break. A violation is a defect of Ringside and never printed as an answer."""

import math
from collections.abc import Sequence
from itertools import pairwise

ROUNDING = 1e-9
"""Relative error allowed for sums of floats."""


class LawError(ArithmeticError):
    """A prediction that is physically impossible; the message shows the numbers."""


def check_time(what: str, time_s: float, bounds: dict[str, float]) -> None:
    """Raise LawError for an invalid time, or one below a bound; bounds are in seconds by name."""
    if not math.isfinite(time_s) or time_s < 0:
        raise LawError(f"{what}: predicted time {time_s!r} s is not a valid time")
    for name, bound in bounds.items():
        if time_s < bound * (1 - ROUNDING):
            raise LawError(f"{what}: predicted time {time_s!r} s is below the {name} bound of {bound!r} s")


def check_band(what: str, lo_s: float, time_s: float, hi_s: float) -> None:
    """Raise LawError for an invalid time or band, or a band that does not contain the time."""
    check_time(f"{what}, lower end", lo_s, {})
    check_time(what, time_s, {"lower": lo_s})
    check_time(f"{what}, upper end", hi_s, {"lower": time_s})


def check_monotone(what: str, sizes: Sequence[int], times: Sequence[float]) -> None:
    """Raise LawError for times that fall while the size grows."""
    by_size = sorted(zip(sizes, times, strict=True))
    for (small, previous), (large, time) in pairwise(by_size):
        if time < previous * (1 - ROUNDING):
            raise LawError(f"{what}: {large} B in {time!r} s, less than {small} B in {previous!r} s")


def check_step(
    what: str,
    step_s: float,
    compute_s: float,
    communication_s: float,
    overhead_s: float = 0.0,
    traffic_s: float = 0.0,
) -> None:
    """Raise LawError for a step shorter than its compute or communication, or longer than all its parts.

    Its communication is at least ``traffic_s``, which links need for its bytes.
    """
    check_time(f"communication of {what}", communication_s, {"traffic": traffic_s})
    check_time(what, step_s, {"compute": compute_s, "communication": communication_s})
    most = compute_s + communication_s + overhead_s
    if step_s > most * (1 + ROUNDING):
        raise LawError(
            f"{what}: predicted time {step_s!r} s is more than compute {compute_s!r} s + communication "
            f"{communication_s!r} s + overheads {overhead_s!r} s = {most!r} s"
        )
