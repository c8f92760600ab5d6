"""Rates of failures as people write them: per GPU, per node or of the whole job, and time."""

import re
from collections.abc import Sequence

from ringside.sim.goodput.job import DAY_S, Cause
from ringside.topologies.units import shown

_PERIODS_S = {"hour": 3600.0, "day": DAY_S, "week": 7 * DAY_S, "year": 365 * DAY_S}
_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?"
_RATE = re.compile(rf"({_NUMBER})/({_NUMBER})?(?:(gpu|node)-)?(hour|day|week|year)s?", re.ASCII)
_MARKS = ("hang", "node-lost")
_ADVICE = "write [CAUSE=]RATE[,hang][,node-lost], such as gpu=2.4/1000node-days,node-lost or 8/day"


def parse_causes(texts: Sequence[str], nodes: int, gpus_per_node: int) -> tuple[Cause, ...]:
    """Parse the causes of failures of a job of ``nodes`` nodes.

    A rate is a number of failures per number (default 1) of GPU-, node- or, for the whole job, plain hours,
    days, weeks or years.
    """
    causes = tuple(_cause(text, nodes, gpus_per_node) for text in texts)
    names = [cause.name for cause in causes]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{twice[0]!r} is given twice; write each cause once, with a name of its own")
    return causes


def _cause(text: str, nodes: int, gpus_per_node: int) -> Cause:
    named, *marks = text.split(",")
    name, equals, rate = named.rpartition("=")
    if (equals and not name.strip()) or set(marks) - set(_MARKS):
        raise ValueError(f"{shown(text)} is not a cause of failures; {_ADVICE}")
    match = _RATE.fullmatch(rate)
    if match is None:
        raise ValueError(f"{shown(rate)} is not a rate of failures; {_ADVICE}")
    number, over = float(match[1]), float(match[2] or 1)
    if not over:
        raise ValueError(f"{shown(rate)} is a rate over no time; {_ADVICE}")
    places = {"gpu": 1 / gpus_per_node, "node": 1.0, None: float(nodes)}[match[3]]
    per_node_s = number / over / _PERIODS_S[match[4]] / places
    return Cause(name or "failure", per_node_s, "hang" in marks, "node-lost" in marks)
