"""The model of a training by its text, and what its samples are."""

import re
from dataclasses import replace
from pathlib import Path

from ringside.sim.recorded.file import is_job_file
from ringside.sim.workload.architecture import Architecture
from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.decoder_file import is_decoder_file
from ringside.sim.workload.models import find_model as named_model
from ringside.sim.workload.models import is_model

SAMPLE_UNITS = ("samples", "sample", "img", "images", "image", "seq", "sequences", "sequence")
"""Units of a measured throughput that count samples of the model."""

TOKEN_UNITS = ("tok", "tokens", "token")
"""Further units if samples are sequences."""


def with_tokens(model: str | Decoder, tokens: int) -> str | Decoder:
    """Return the model with samples of this number of tokens; raise ValueError if they have none."""
    if isinstance(model, Decoder):
        return replace(model, sequence=tokens)
    if ":" in model or is_timed(model):
        raise ValueError(f"`seq` {tokens} and `model` {model} both set the samples; remove one of them")
    sample = find_model(model).sample
    if "tokens" not in sample:
        raise ValueError(
            f"`seq` {tokens}, but a sample of `model` {model} is an {sample}; leave `seq` out, or write "
            f"the side in pixels as {model}:{tokens}"
        )
    return f"{model}:{tokens}"


def measured_rate(text: str, model: str | Decoder) -> tuple[float, int]:
    """Return samples/s and ranks of ``2616img/s@1``, or of ``116000tok/s@16`` for samples of tokens."""
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
            f"`measured` {text} counts tokens, but samples of {model} have none; write samples, for "
            f"example {parts[1]}samples/s@{ranks}"
        )
    return rate / tokens, ranks


def tokens_of(model: str | Decoder) -> int | None:
    """Return the tokens of one of the model's samples; None if unknown or without tokens."""
    if is_timed(model) or (isinstance(model, str) and is_job_file(model)):
        return None
    match = re.fullmatch(r"sequence of (\d+) tokens", find_model(model).sample)
    return int(match[1]) if match else None


def is_timed(model: str | Decoder) -> bool:
    """Return whether the model is a file of timed layers."""
    if isinstance(model, Decoder):
        return False
    path = Path(model)
    if path.suffix not in (".json", ".yaml", ".yml") and not path.is_file():
        return False
    return not (is_model(model) or is_job_file(model) or is_decoder_file(model))


def find_model(text: str | Decoder) -> Architecture | Decoder:
    """Return the model of a table, of a file of a decoder, or of a file's module."""
    if isinstance(text, Decoder):
        return text
    if is_job_file(text):
        raise ValueError(f"{text} is a recorded step, not a model; ask ringside train, whatif or program")
    if not is_model(text):
        return named_model(text)
    from ringside.real.model.architecture import architecture_of

    return architecture_of(text)
