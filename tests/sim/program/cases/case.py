"""A program with its verdicts, and the list of all."""

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class ByRank:
    """A program in parts, one a rank or one for all; it is pickled by its name, as lambdas cannot be."""

    name: str

    def __call__(self, dist: Any) -> None:
        """One rank's part, whose result is dropped."""
        from tests.sim.program.cases import known

        assert known.CASES is CASES
        _PARTS[self.name][dist.get_rank() % len(_PARTS[self.name])](dist)


_PARTS: dict[str, tuple[Callable[[Any], Any], ...]] = {}


def by_rank(verdicts: tuple[str | None, str | None], **programs: tuple[Callable[[Any], Any], ...]) -> None:
    """Add programs of which each rank has a part of its own."""
    for name, parts in programs.items():
        _PARTS[name], CASES[name] = parts, Case(ByRank(name), len(parts), *verdicts)


def alike(ranks: int, verdicts: tuple[str | None, str | None], **programs: Callable[[Any], Any]) -> None:
    """Add programs of which all ranks run the same."""
    for name, part in programs.items():
        _PARTS[name], CASES[name] = (part,), Case(ByRank(name), ranks, *verdicts)
