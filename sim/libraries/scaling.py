"""Measured times scaled to changed figures by the ratio of the library's own model.

    time = measured * model(new) / model(old)

Both are the library's own estimate, without calibration, so the ratio is of one clock.
"""

from dataclasses import replace
from math import exp, hypot, log

from ringside.sim.libraries.library import Estimate

OPEN = 0.5
"""Uncertainty of a ratio of the model's as a share of its logarithm, as an 80 % interval.

No machine was measured with two kinds of card. Between measured machines, which differ in more than rates,
half of the ratios of ring and tree all-reduces that the tuner separates by a fifth are off by less than 0.55
of that logarithm, no more than those that it does not separate.
"""


def scaled(time_s: float, low_s: float, high_s: float, ratio: float) -> tuple[float, float, float]:
    """Return a time and its ends times ``ratio``; the ends move apart as the ratio leaves 1."""
    centre = time_s * ratio
    return centre, centre / widened(time_s / low_s, ratio), centre * widened(high_s / time_s, ratio)


def wider(band: tuple[float, float], ratio: float) -> tuple[float, float]:
    """Return the factors of a band's ends for a time that is scaled by ``ratio``."""
    low, high = band
    if ratio == 1.0:
        return band
    return 1 / widened(1 / low, ratio) if low else 0.0, widened(high, ratio)


def widened(factor: float, ratio: float) -> float:
    """Combine a factor of uncertainty with a ratio's; they are independent, so squared logarithms add."""
    return factor if ratio == 1.0 else exp(hypot(log(factor), OPEN * log(ratio)))


def raised(estimate: Estimate, least_s: float, *, cut: bool = False) -> Estimate:
    """Return an estimate whose time and ends are at least ``least_s``.

    The upper end rises by the factor of the lower one, so the band stays as wide. If the bound ``cut`` the
    band off below, it rises by the factor of the time.
    """
    low, time_s, high = max(estimate.time_lo_s, least_s), max(estimate.time_s, least_s), estimate.time_hi_s
    high = high * (time_s / estimate.time_s) if cut else max(high * (low / estimate.time_lo_s), time_s)
    return replace(estimate, time_s=time_s, time_lo_s=low, time_hi_s=high)
