"""Megatron-LM's text for the layers of each pipeline stage.

``Et*3|(tt|)*4tL`` has a part for each stage, in their order: ``E`` is the embedding, ``t`` a layer, ``m`` a
layer that predicts one more token, ``L`` the head with the loss. ``*`` repeats a letter or what is in
parentheses; commas mean nothing. A stage may be empty (core/transformer/pipeline_parallel_layer_layout.py).
"""

import re
from functools import cache

LETTERS = "EtmL"

MOST_LETTERS = 100_000
"""Letters that a text may mean, parts' ends among them."""

_REPEATED = (r"\(([^()]+)\)\*(\d{1,6})", r"(.)\*(\d{1,6})")
"""What Megatron-LM unrolls, the first everywhere before the second."""


@cache
def stage_layers(text: str) -> tuple[str, ...]:
    """Return the letters of each stage; raise ValueError for a text that Megatron-LM refuses."""
    unrolled = text.replace(",", "")
    for pattern in _REPEATED:
        count = len(unrolled) + sum(len(one[1]) * int(one[2]) for one in re.finditer(pattern, unrolled))
        if count > MOST_LETTERS:
            raise ValueError(f"`pp_layout` {text!r} means {count} letters; write {MOST_LETTERS} at the most")
        unrolled = re.sub(pattern, lambda one: one[1] * int(one[2]), unrolled)
    other = sorted(set(unrolled) - {*LETTERS, "|"})
    if other:
        raise ValueError(
            f"`pp_layout` {text!r}: {other[0]!r} is no layer; write {', '.join(LETTERS)}, and | between "
            "stages, for example Ett|tttL"
        )
    order = unrolled.replace("|", "")
    if not re.fullmatch("Et+m*L", order):
        raise ValueError(
            f"`pp_layout` {text!r} has layers in the order {order[:40]!r}; write one E first, then t, then "
            "m, and one L last, for example Ett|tttL"
        )
    stages = tuple(unrolled.split("|"))
    if sum("m" in own for own in stages) > 1:
        raise ValueError(f"`pp_layout` {text!r} has m in several stages; write all of them in one")
    return stages
