"""What may be written in place of a word that is none."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

MOST_MEANT = 4
"""Names that are suggested at once."""


def one_of(known: Iterable[str], word: str, *, also: str = "") -> str:
    """The end of a message about an unknown ``word``: what is ``known``, what ``also``, what may be meant.

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
    """The known word that is most like this one, whatever its case and its hyphens; None where none is."""
    return next(iter(meant(word, known)), None)


def meant(word: str, known: Iterable[str]) -> list[str]:
    """The known names that have a word for a part, as ``dgx-h100`` has ``h100``; else the most alike."""
    plain = {_plain(name): name for name in reversed(list(known))}
    names, short = list(reversed(plain.values())), _plain(word)
    whole = [name for name in names if short in map(_plain, re.split("[-_.:]", name))]
    begins = rf"(?<!{'[0-9]' if short[:1].isdecimal() else '[a-z]'}){re.escape(short)}"
    within = [name for name in names if len(short) > 1 and re.search(begins, name)]
    alike = get_close_matches(short, plain, n=1, cutoff=0.6)
    return (whole or ([] if short in plain else within) or [plain[one] for one in alike])[:MOST_MEANT]


def _plain(word: str) -> str:
    return "".join(letter for letter in word.lower() if letter.isalnum())
