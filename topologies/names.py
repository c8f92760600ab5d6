"""Names: tables whose values are made on lookup, and suggestions for misspelled names."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import TypeVar

Value = TypeVar("Value")

MAX_SUGGESTIONS = 4
"""Limit on the names that one message suggests."""


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
    whole = [one for one in names if short in map(plain, re.split("[-_.:]", one))]
    begins = rf"(?<!{'[0-9]' if short[:1].isdecimal() else '[a-z]'}){re.escape(short)}"
    within = [one for one in names if len(short) > 1 and re.search(begins, one)]
    alike = get_close_matches(short, spelled, n=1, cutoff=0.6)
    return (whole or ([] if short in spelled else within) or [spelled[one] for one in alike])[
        :MAX_SUGGESTIONS
    ]


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
