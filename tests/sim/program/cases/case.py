"""A program with its verdicts, and the list of all."""

from collections.abc import Callable
from typing import Any, NamedTuple

BIG = 1 << 20


class Case(NamedTuple):
    """A program, on how many ranks, and its verdict with Gloo and with NCCL; None where it is not asked."""

    main: Callable[[Any], Any]
    ranks: int
    gloo: str | None
    nccl: str | None


CASES: dict[str, Case] = {}


def case(ranks: int, gloo: str | None, nccl: str | None = None) -> Callable[[Callable[[Any], Any]], Any]:
    """Add a program to the list."""

    def put(main: Callable[[Any], Any]) -> Callable[[Any], Any]:
        CASES[main.__name__] = Case(main, ranks, gloo, nccl)
        return main

    return put
