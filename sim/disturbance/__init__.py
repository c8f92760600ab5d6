"""Disturbances of a job: slow ranks and links, jitter, OS noise, late ranks.

A `Disturbance` is drawn at random, and each draw changes the engines' inputs: the seconds of a program's
compute, the figures of a topology's links, the moment at which a rank begins. A `study` of many draws gives
the duration in quantiles, and who waits for whom.
"""

from ringside.sim.disturbance.disturbance import (
    Disturbance,
    Draw,
    Empirical,
    Jitter,
    Lognormal,
    OsNoise,
    SlowLink,
)
from ringside.sim.disturbance.study import MAX_DRAWS, Drawn, Outcome, study

__all__ = [
    "MAX_DRAWS",
    "Disturbance",
    "Draw",
    "Drawn",
    "Empirical",
    "Jitter",
    "Lognormal",
    "OsNoise",
    "Outcome",
    "SlowLink",
    "study",
]
