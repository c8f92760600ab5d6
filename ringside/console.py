"""What people read: tables in nccl-tests' manner, JSON for programs, progress on a terminal."""

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import Progress, TaskID

from topologies.units import parse_size

Cell = str | int | float


def print_json(schema: str, content: Mapping[str, Any]) -> None:
    """One JSON object whose first key says what it is."""
    text = json.dumps({"schema": f"ringside.{schema}/1", **content}, indent=2, allow_nan=False)
    print(text)


def print_table(
    comments: Iterable[str], heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[Cell]]
) -> None:
    """Comments, heads (name and unit) and rows; all but the rows begin with ``#``, as in nccl-tests."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, [*head, *(row[i] for row in texts)])) + 2 for i, head in enumerate(heads)]
    for comment in comments:
        print(f"# {comment}")
    for line in zip(*heads, strict=True):
        print("#" + "".join(word.rjust(width) for word, width in zip(line, widths, strict=True)))
    for row in texts:
        print(" " + "".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))


def spelled(inputs: Mapping[str, Any]) -> str:
    """Inputs as one line, those that say nothing left out."""
    return ", ".join(
        f"{key} {' '.join(map(str, value)) if isinstance(value, list | tuple) else value}"
        for key, value in inputs.items()
        if value and value not in ("auto", "none")
    )


def sizes(begin: str, end: str, factor: int, size: str | None) -> list[int]:
    """The sizes that -b, -e and -f mean, or the one that --size means."""
    if size is not None:
        return [parse_size(size)]
    first, last = parse_size(begin), parse_size(end)
    if first > last:
        raise ValueError(f"-b {begin} is more than -e {end}; write the smaller size after -b")
    if first == 0:
        raise ValueError("-b 0 grows to nothing; write -b 1 or more, or --size 0")
    found = [first]
    while found[-1] * factor <= last:
        found.append(found[-1] * factor)
    return found


@contextmanager
def progress(what: str, total: int) -> Iterator["Ticker"]:
    """A bar on a terminal, nothing in a pipe."""
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        yield Ticker(bar, bar.add_task(what, total=total))


class Ticker:
    """Moves a progress bar on."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar = bar
        self._task = task

    def done(self, what: str) -> None:
        """One more is finished; ``what`` comes next or was last."""
        self._bar.update(self._task, advance=1, description=what)


def _text(cell: Cell) -> str:
    if isinstance(cell, float) and not math.isfinite(cell):
        raise ArithmeticError(f"a figure is {cell}, which is no answer")
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)
