"""Suggestions for misspelled names."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

MOST_MEANT = 4
"""Limit on the names that one message suggests."""


def one_of(known: Iterable[str], word: str, *, also: str = "") -> str:
    """Return the end of a message about an unknown ``word``: the ``known`` names, ``also``, suggestions.

    For example ``one of ring, tree; did you mean ring?``.
    """
    names = list(known)
    listed = f"one of {', '.join(names)}{also}" if len(names) > 1 else f"{', '.join(names)}{also}"
    likely = meant(word, names)
    if not likely:
        return listed
    *others, last = likely
    return f"{listed}; did you mean {', '.join(others)}{' or ' if others else ''}{last}?"


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known name nearest to this word, regardless of case and hyphens; None without a match."""
    return next(iter(meant(word, known)), None)


def meant(word: str, known: Iterable[str]) -> list[str]:
    """Return the known names with this word as a part, as ``dgx-h100`` has ``h100``, else the nearest."""
    plain = {_plain(name): name for name in reversed(list(known))}
    names, short = list(reversed(plain.values())), _plain(word)
    whole = [name for name in names if short in map(_plain, re.split("[-_.:]", name))]
    begins = rf"(?<!{'[0-9]' if short[:1].isdecimal() else '[a-z]'}){re.escape(short)}"
    within = [name for name in names if len(short) > 1 and re.search(begins, name)]
    alike = get_close_matches(short, plain, n=1, cutoff=0.6)
    return (whole or ([] if short in plain else within) or [plain[one] for one in alike])[:MOST_MEANT]


def _plain(word: str) -> str:
    return "".join(letter for letter in word.lower() if letter.isalnum())
