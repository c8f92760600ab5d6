"""What may be written in place of a word that is none."""

from collections.abc import Iterable
from difflib import get_close_matches


def one_of(known: Iterable[str], word: str, *, also: str = "") -> str:
    """The end of a message about an unknown ``word``: what is ``known``, what ``also``, what may be meant.

    For example ``one of ring, tree; did you mean ring?``.
    """
    names = list(known)
    listed = f"one of {', '.join(names)}{also}" if len(names) > 1 else f"{', '.join(names)}{also}"
    meant = nearest(word, names)
    return f"{listed}; did you mean {meant}?" if meant else listed


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like this one, whatever its case and its hyphens; None where none is."""
    plain = {_plain(name): name for name in reversed(list(known))}
    found = get_close_matches(_plain(word), plain, n=1, cutoff=0.6)
    return plain[found[0]] if found else None


def _plain(word: str) -> str:
    return "".join(letter for letter in word.lower() if letter.isalnum())
