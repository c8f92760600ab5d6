"""What words of ``ringside train`` mean that are more than one number."""

import re

from ringside.topologies.catalogue import MAX_LINKS
from ringside.validation.questions.training import find_model, is_timed

SWEEPS = ("bucket-cap-mb", "nodes")

SAMPLE_UNITS = ("samples", "sample", "img", "images", "image", "seq", "sequences", "sequence")
"""What the rate of a measured throughput may count; each is a sample of the model."""

TOKEN_UNITS = ("tok", "tokens", "token")
"""What it may count besides, where samples are sequences."""


def with_tokens(model: str, tokens: int | None) -> str:
    """The model with samples of so many tokens."""
    if tokens is None:
        return model
    if ":" in model or is_timed(model):
        raise ValueError(f"--seq {tokens} and --model {model}, which says its samples; remove one of them")
    sample = find_model(model).sample
    if "tokens" not in sample:
        raise ValueError(
            f"--seq {tokens} and --model {model}, whose sample is an {sample}; leave --seq out, or write the "
            f"side in pixels as {model}:{tokens}"
        )
    return f"{model}:{tokens}"


def measured_rate(text: str | None, model: str) -> tuple[float, int] | None:
    """Samples/s and ranks of ``2616img/s@1``, or of ``116000tok/s@16`` where samples have tokens."""
    if text is None:
        return None
    parts = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*(?:([a-z]+)/s)?@([0-9]+)", text, re.IGNORECASE)
    try:
        rate, ranks = (float(parts[1]), int(parts[3])) if parts else (0.0, 0)
    except ValueError:
        rate, ranks = 0.0, 0
    if not (parts and 0 < rate < float("inf") and ranks):
        raise ValueError(
            f"invalid throughput {text!r}; write RATE@RANKS, for example 2616img/s@1 or 116000tok/s@16"
        )
    unit = (parts[2] or "samples").lower()
    if unit not in (*SAMPLE_UNITS, *TOKEN_UNITS):
        units = ", ".join(f"{known}/s" for known in (*SAMPLE_UNITS, *TOKEN_UNITS))
        raise ValueError(f"{text!r} counts {unit}/s, an unknown unit; write one of {units}")
    if unit in SAMPLE_UNITS:
        return rate, ranks
    tokens = tokens_of(model)
    if tokens is None:
        raise ValueError(
            f"--measured {text} counts tokens, and samples of {model} have none; write samples, for example "
            f"{parts[1]}samples/s@{ranks}"
        )
    return rate / tokens, ranks


def tokens_of(model: str) -> int | None:
    """Tokens of one of the model's samples; None where they have none, or nobody says how many."""
    if is_timed(model):
        return None
    words = re.fullmatch(r"sequence of (\d+) tokens", find_model(model).sample)
    return int(words[1]) if words else None


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
            f"invalid sweep {text!r}; write {' or '.join(SWEEPS)}, for example bucket-cap-mb=1,5,25"
        )
    if len(set(found)) < len(found):
        raise ValueError(f"{text!r} names a value twice; write each once")
    return parameter, found


def whole_nodes(nodes: float) -> int:
    """The count of machines that a value of a sweep is."""
    if nodes != int(nodes) or not 1 <= nodes <= MAX_LINKS:
        raise ValueError(f"invalid node count {nodes:g}; write 1 to {MAX_LINKS}, for example nodes=1,2,4")
    return int(nodes)
