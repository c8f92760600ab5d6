"""Predicted collectives in one sentence."""

from collections.abc import Sequence

from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.libraries.library import Library, Prediction
from ringside.topologies.units import format_duration, format_size

SOURCES = {"measured": "calibrated", "model": "closed form"}
"""The source of times in sentences, for engines that do not simulate."""


def named(prediction: Prediction) -> str:
    """Return a title such as ``ring all_reduce of 1 MiB on 8 ranks``."""
    collective = prediction.collective
    size = format_size(collective.nbytes)
    return f"{prediction.algorithm} {collective.kind} of {size} on {collective.ranks} ranks"


def headline_of(predictions: Sequence[Prediction], library: Library) -> str:
    """Return the time and bus bandwidth of one prediction, or those of the ends of several."""
    return _of_one(predictions[0], library) if len(predictions) == 1 else _of_several(predictions, library)


def _of_one(one: Prediction, library: Library) -> str:
    how = one.algorithm if one.protocol == "auto" else f"{one.algorithm}/{one.protocol}"
    if one.channels > 1:
        how += f" on {one.channels} channels"
    source = SOURCES.get(one.engine, "simulated")
    if one.time_hi_s > one.time_lo_s:
        low, high = (format_duration(seconds, 3) for seconds in (one.time_lo_s, one.time_hi_s))
        is_schedule = one.engine != "measured" and not library.has_tuner
        source += f"; {'9 of 10 fitted rows' if is_schedule else '4 of 5 runs'} lie in {low} to {high}"
    return (
        f"{format_duration(one.time_s, 3)}, {_rate(one.busbw)} bus bandwidth: "
        f"{_title(library)} takes {how} ({source})"
    )


def _of_several(predictions: Sequence[Prediction], library: Library) -> str:
    first, last = predictions[0], predictions[-1]
    fastest = max(predictions, key=lambda one: one.busbw)
    ends = ", ".join(
        f"{format_duration(one.time_s, 3)} for {format_size(one.collective.nbytes)} on "
        f"{one.collective.ranks} ranks"
        for one in (first, last)
    )
    ways = list(dict.fromkeys(one.algorithm for one in predictions))
    return f"{ends}; up to {_rate(fastest.busbw)} bus bandwidth: {_title(library)} takes {', '.join(ways)}"


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:.3g} GB/s"


def _title(library: Library) -> str:
    """Return a library's name in sentences; a schedule from a file is a library of its own."""
    return LIBRARIES[library.name].title if library.name in LIBRARIES else f"the {library.name}"
