"""Errors of predictions, summarized in one way everywhere."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """Relative errors of some rows, predicted over measured minus one; NaN without any.

    ``median``, ``p90`` and ``worst`` are of their sizes, ``bias`` is their median with signs. ``inside`` is
    the share of measured times inside the predicted interval.
    """

    rows: int
    median: float
    p90: float
    worst: float
    bias: float
    inside: float


def summarize(errors: Sequence[float], inside: Sequence[bool] = ()) -> ErrorSummary:
    """Summarize signed errors, and for each whether the measurement lies inside its interval."""
    nan = float("nan")
    if not errors:
        return ErrorSummary(0, nan, nan, nan, nan, nan)
    sizes = np.abs(errors)
    return ErrorSummary(
        len(errors),
        float(np.median(sizes)),
        float(np.percentile(sizes, 90)),
        float(sizes.max()),
        float(np.median(errors)),
        float(np.mean(inside)) if inside else nan,
    )
