"""Which cases of a test are slow, and which a proof."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def slow_or_proof(cases: Iterable[Any], slow: Collection[Any] = ()) -> list[Any]:
    """Return a test's cases: those in `slow`, else the first one, are slow; the others are proofs."""
    first, *others = cases
    slow = slow or [first]
    return [
        pytest.param(
            *(case if isinstance(case, tuple) else [case]),
            marks=pytest.mark.slow if case in slow else pytest.mark.proof,
        )
        for case in (first, *others)
    ]
