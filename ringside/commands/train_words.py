"""What words of ``ringside train`` mean that are more than one number."""

import re

from real.model.find import is_timed
from sim.workload.models import architecture
from topologies.catalogue import MAX_LINKS

SWEEPS = ("bucket-cap-mb", "nodes")


def with_tokens(model: str, tokens: int | None) -> str:
    """The model with samples of so many tokens."""
    if tokens is None:
        return model
    if ":" in model or is_timed(model):
        raise ValueError(f"--seq {tokens} and --model {model}, which says its samples; leave one of them out")
    sample = architecture(model).sample
    if "tokens" not in sample:
        raise ValueError(
            f"--seq {tokens} and --model {model}, whose sample is an {sample}; leave --seq out, or write the "
            f"side in pixels as {model}:{tokens}"
        )
    return f"{model}:{tokens}"


def measured_rate(text: str | None) -> tuple[float, int] | None:
    """Samples/s and ranks of ``2616img/s@1``."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*(?:[a-z]*/s)?@([0-9]+)", text, re.IGNORECASE)
    try:
        rate, ranks = float(found.group(1)) if found else 0.0, int(found.group(2)) if found else 0
    except ValueError:
        rate, ranks = 0.0, 0
    if not (0 < rate < float("inf") and ranks):
        raise ValueError(f"{text!r} is no throughput; write RATE@RANKS, for example 2616img/s@1")
    return rate, ranks


def sweep_of(text: str | None) -> tuple[str | None, list[float]]:
    """A ``parameter=value,value`` text in parts."""
    if text is None:
        return None, []
    parameter, _, values = text.partition("=")
    try:
        found = [float(value) for value in values.split(",")]
    except ValueError:
        found = []
    if parameter not in SWEEPS or not found or any(not 0 <= value < float("inf") for value in found):
        raise ValueError(
            f"{text!r} is no sweep of {' or '.join(SWEEPS)}; write for example bucket-cap-mb=1,5,25"
        )
    if len(set(found)) < len(found):
        raise ValueError(f"{text!r} names a value twice; write each once")
    return parameter, found


def whole_nodes(nodes: float) -> int:
    """The count of machines that a value of a sweep is."""
    if nodes != int(nodes) or not 1 <= nodes <= MAX_LINKS:
        raise ValueError(f"{nodes:g} is no number of nodes; write 1 to {MAX_LINKS}, for example nodes=1,2,4")
    return int(nodes)
