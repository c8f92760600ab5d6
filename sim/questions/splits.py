"""``--splits``: each rank's elements for each other in an uneven all_to_all."""

import re
from pathlib import Path

from ringside.topologies.disk import regular

Rows = tuple[tuple[int, ...], ...]


def read_splits(text: str, ranks: int) -> Rows:
    """Parse counts of elements by sender, then receiver, for ``ranks`` ranks.

    The text is a list, ``4,1,0;1,4,0;0,0,9``, or the name of a file with a line per sender; a single row
    applies to every rank.
    """
    file, where = splits_file(text), f"--splits {text}"
    lines = re.split(r"[;\n]", _content(file) if file else text)
    rows = [
        _row(line, f"{where}, {'line' if file else 'row'} {number}")
        for number, line in enumerate(lines, 1)
        if line.partition("#")[0].strip()
    ]
    if len(rows) == 1:
        rows *= ranks
    for number, row in enumerate(rows):
        if len(rows) != ranks or len(row) != ranks:
            raise ValueError(
                f"{where}: sender {number} of {len(rows)} has {len(row)} counts; write one for each of the "
                f"{ranks} ranks, and one row or {ranks}"
            )
    if not rows:
        raise ValueError(f"{where} is empty; write a row of counts per rank")
    return tuple(rows)


def splits_file(text: str) -> Path | None:
    """Return the file that the text names, unless it is a list."""
    return None if re.fullmatch(r"[\d\s,;]+", text) else Path(text)


def _content(path: Path) -> str:
    try:
        return regular(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"--splits {path}: {error}; write a list such as 4,1;1,4, or a text file") from None


def _row(line: str, where: str) -> tuple[int, ...]:
    counts = line.partition("#")[0].replace(",", " ").split()
    for word in counts:
        if not (word.isascii() and word.isdecimal() and len(word) < 100):
            raise ValueError(f"{where}: {word!r} is not a count of elements; write 0 or more")
    return tuple(int(word) for word in counts)
