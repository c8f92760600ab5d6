"""What people read: tables in nccl-tests' manner, JSON for programs, progress on a terminal."""

import json
import math
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress, TaskID

from sim.engine.effort import watched
from topologies.units import parse_size

Cell = str | int | float

PERIOD_S = 5.0
"""How long a pipe stays silent while work goes on."""


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


def given(context: typer.Context) -> set[str]:
    """The options that were written, and not left to their defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def check_sizes(context: typer.Context) -> None:
    """Refuse one size and several."""
    if "size" in given(context) and given(context) & {"begin", "end", "factor"}:
        raise ValueError("--size is one size, -b, -e and -f are several; leave one or the other out")


def left_out(rows: int) -> None:
    """Say how many rows of what was read had no usable time, if any."""
    if rows:
        print(f"ringside: {rows} rows without a usable time were left out", file=sys.stderr)


@contextmanager
def progress(what: str, total: int | None) -> Iterator["Ticker"]:
    """A bar on a terminal, nothing in a pipe; ``total`` says of how many parts, if that is known."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        yield Ticker(bar, bar.add_task(what, total=total), what)


@contextmanager
def simulating(what: str, total: int | None = None) -> Iterator["Ticker"]:
    """A bar on a terminal, in a pipe a line from time to time; above it long simulations are announced."""
    with progress(what, total) as ticker, watched(ticker.announce, ticker.show):
        over = threading.Event()

        def keep_telling() -> None:
            while not over.wait(PERIOD_S):
                ticker.say(ticker.text)

        if sys.stderr.isatty():
            yield ticker
            return
        teller = threading.Thread(target=keep_telling, daemon=True)
        teller.start()
        try:
            yield ticker
        finally:
            over.set()
            teller.join()


class Ticker:
    """Moves a progress bar on; ``text`` is what it says."""

    def __init__(self, bar: Progress, task: TaskID, what: str) -> None:
        self.text = what
        self._bar = bar
        self._task = task
        self._what = what
        self._announced: set[str] = set()

    def done(self, what: str) -> None:
        """One more is finished; ``what`` comes next or was last."""
        self.text = self._what = what
        self._bar.update(self._task, advance=1, description=what)

    def show(self, done: int, total: int) -> None:
        """So many transfers of one simulation are finished, of so many in all."""
        self.text = f"{self._what}: {done:,} of {total:,} transfers"
        self._bar.update(self._task, description=self.text)

    def announce(self, text: str) -> None:
        """Say what takes long, once."""
        if text not in self._announced:
            self._announced.add(text)
            self.say(text)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(f"ringside: {text}", markup=False)


def _text(cell: Cell) -> str:
    if isinstance(cell, float) and not math.isfinite(cell):
        raise ArithmeticError(f"a figure is {cell}, which is no answer")
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)
