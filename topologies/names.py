"""Names: tables whose values are made on lookup, and suggestions for misspelled names."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import SequenceMatcher
from itertools import takewhile
from operator import eq
from typing import TypeVar

Value = TypeVar("Value")

MAX_SUGGESTIONS = 4
"""Limit on the names that one message suggests."""

LIKE = 0.6
"""The share of letters in common from which a name is suggested (`difflib.SequenceMatcher.ratio`)."""


def one_of(known: Iterable[str], name: str, *, also: str = "") -> str:
    """Return the end of a message about an unknown ``name``: suggestions, the ``known`` names, ``also``.

    For example ``ring (known: ring, tree)``, or without a suggestion ``one of ring, tree``.
    """
    names = list(known)
    likely = suggestions(name, names)
    if not likely:
        return f"one of {', '.join(names)}{also}" if len(names) > 1 else f"{', '.join(names)}{also}"
    *others, last = likely
    return f"{', '.join(others)}{' or ' if others else ''}{last} (known: {', '.join(names)}{also})"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name nearest to this name, regardless of case and hyphens; None without a match."""
    return next(iter(suggestions(name, known)), None)


def suggestions(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that contain this name, as ``dgx-h100`` contains ``h100``, else the nearest."""
    spelled = {plain(one): one for one in reversed(list(known))}
    names, short = list(reversed(spelled.values())), plain(name)
    whole = [one for one in names if short in _parts(one)]
    begins = rf"(?<!{'[0-9]' if short[:1].isdecimal() else '[a-z]'}){re.escape(short)}"
    within = [one for one in names if len(short) > 1 and re.search(begins, one)]
    return (whole or ([] if short in spelled else within) or _alike(short, names))[:MAX_SUGGESTIONS]


def _alike(short: str, names: Iterable[str]) -> list[str]:
    """Return the name most like this one, in whole or in a part; among equals the one that begins alike."""

    def likeness(name: str) -> tuple[float, int]:
        parts = (plain(name), *map(plain, name.split("-")))  # of machines, as dgx-h100
        return max((SequenceMatcher(None, part, short).ratio(), _shared_start(short, part)) for part in parts)

    best = max(sorted(names, key=len), key=likeness, default=None)
    return [] if best is None or likeness(best)[0] < LIKE else [best]


def _shared_start(one: str, other: str) -> int:
    """Return the number of letters with which both begin."""
    return sum(takewhile(bool, map(eq, one, other)))


def _parts(name: str) -> list[str]:
    """Return the parts of a name, as ``dgx`` and ``h100`` of ``dgx-h100``."""
    return [plain(part) for part in re.split("[-_.:]", name)]


def plain(name: str) -> str:
    """Return a name without case, hyphens and blanks, by which spellings are compared."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


class Lazy(Mapping[str, Value]):
    """Values by name; names and values are computed on lookup."""

    def __init__(self, names: Callable[[], Collection[str]], value: Callable[[str], Value]) -> None:
        self._names, self._value = names, value

    def __getitem__(self, name: str) -> Value:
        if name not in self:
            raise KeyError(name)
        return self._value(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())
