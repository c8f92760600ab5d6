"""Output for people and programs: tables in nccl-tests' style, JSON, progress on a terminal."""

import json
import math
import sys
import textwrap
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID

from ringside.door import behind, one_line, plain
from ringside.sim.effort import watched
from ringside.verbose import NOTED

if TYPE_CHECKING:
    from ringside.validation.measurements import Measurements


class _Measured(Protocol):
    @property
    def measured(self) -> "Measurements": ...


_Answer = TypeVar("_Answer", bound=_Measured, covariant=True)


class _OfMeasurements(Protocol[_Answer]):
    def ask(self) -> _Answer: ...


Cell = str | int | float
Comment = str | Mapping[str, Any]
"""A comment: a line of text, or inputs by name."""

PERIOD_S = 5.0
"""Seconds between progress lines in a pipe."""


WIDTH = 80
"""Columns of a line; a path or an address may be longer."""


_ALL: ContextVar[bool] = ContextVar("all", default=False)


def widen(context: typer.Context, is_given: bool) -> None:
    """Apply ``--all``: while the command runs, lines have any width."""
    token = _ALL.set(is_given)
    context.call_on_close(lambda: _ALL.reset(token))


def print_json(schema: str, content: Mapping[str, Any]) -> None:
    """Print one JSON object whose first key names its schema."""
    print(json_text(schema, content))


def json_text(schema: str, content: Mapping[str, Any]) -> str:
    """Return one JSON object whose first key names its schema."""
    return json.dumps({"schema": f"ringside.{schema}/1", **content}, indent=2, allow_nan=False)


class TextTable(NamedTuple):
    """A table: heads (name and unit), rows, and a title, of one line or more, that is printed above it."""

    heads: Sequence[tuple[str, str]]
    rows: Iterable[Sequence[Cell]]
    title: str = ""


MOST_GROUNDS = 2
"""Lines that say what an answer rests on."""


def print_answer(
    headline: str,
    *parts: TextTable | str,
    rests_on: Sequence[str] = (),
    notes: Iterable[Comment] | Callable[[], Iterable[Comment]] = (),
) -> None:
    """Print an answer: its headline first, tables and lines, what it rests on; notes only with ``-v``.

    All but rows and lines begin with ``#``, as in nccl-tests. A function makes notes only if they are
    printed.
    """
    assert len(rests_on) <= MOST_GROUNDS, rests_on
    print_comments([headline])
    for number, part in enumerate(parts):
        if isinstance(part, str):
            print_wrapped(part)
            continue
        if number or part.title:
            print_comments(part.title.split("\n"))
        _print_grid(part.heads, part.rows)
    print_comments(rests_on)
    if NOTED.get():
        print_comments(notes() if callable(notes) else notes)


def _print_grid(heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[Cell]]) -> None:
    """Print heads after ``#``, and rows.

    Columns are in order of importance: those beyond `WIDTH` need ``--all``. rich.table is not used: it
    truncates or wraps cells, and has no ``#`` by which awk and gnuplot separate heads from rows.
    """
    heads = [(one_line(name), one_line(unit)) for name, unit in heads]
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, [*head, *(row[i] for row in texts)])) for i, head in enumerate(heads)]
    shown = len(heads) if _ALL.get() else _that_fit(widths)
    gap = 2 if _ALL.get() or 1 + sum(widths) + 2 * len(heads) <= WIDTH else 1
    if shown < len(heads):
        print_comments([f"--all also prints {', '.join(name for name, _ in heads[shown:])}"])
    lines = [*(("#", *line) for line in zip(*heads, strict=True)), *((" ", *row) for row in texts)]
    for mark, *cells in lines:
        kept = zip(cells[:shown], widths, strict=False)
        print((mark + "".join(word.rjust(gap + width) for word, width in kept)).rstrip())


def print_comments(comments: Iterable[Comment]) -> None:
    """Print lines after ``#``, wrapped by `print_wrapped`; they continue after ``#`` and three blanks."""
    for line in comments:
        comment = line if isinstance(line, str) else one_line_of(line)
        indent = len(comment) - len(comment.lstrip())
        print_wrapped(f"# {comment}", "#   " + " " * indent)


def print_wrapped(text: str, onward: str = "    ") -> None:
    """Print a line; without ``--all`` one wider than `WIDTH` is wrapped, and continues after ``onward``."""
    text = plain(text).replace("\n", " ").replace("\t", " ")
    if not _ALL.get():
        text = textwrap.fill(
            text, WIDTH, subsequent_indent=onward, break_long_words=False, break_on_hyphens=False
        )
    print(text.rstrip())


def one_line_of(inputs: Mapping[str, Any]) -> str:
    """Format inputs as one line, without empty ones."""
    return ", ".join(
        f"{key} {_spelled(value)}" for key, value in inputs.items() if value and value not in ("auto", "none")
    )


def _spelled(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={one}" for key, one in value.items())
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def given(context: typer.Context) -> set[str]:
    """Return the options given on the command line, without defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def left_out(rows: int, notes: Iterable[str] = ()) -> None:
    """Report the number of rows without a usable time, if any, and notes on other omissions."""
    for note in notes:
        print(f"ringside: {note}", file=sys.stderr)
    if rows:
        what = "1 row without a usable time was" if rows == 1 else f"{rows} rows without a usable time were"
        print(f"ringside: {what} left out", file=sys.stderr)


@contextmanager
def progress(what: str, total: int | None) -> Iterator["Ticker"]:
    """Show a progress bar on a terminal, nothing in a pipe; ``total`` is the number of parts, if known."""
    console = Console(file=behind(sys.stderr), highlight=False, soft_wrap=True)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        yield Ticker(bar, bar.add_task(_shown(what), total=total), what)


@contextmanager
def simulating(what: str, total: int | None = None) -> Iterator["Ticker"]:
    """Show a bar on a terminal, a line from time to time in a pipe; announce long simulations above it."""
    with progress(what, total) as ticker, watched(ticker.announce, ticker.show):
        over = threading.Event()

        def keep_printing() -> None:
            while not over.wait(PERIOD_S):
                ticker.say(ticker.text)

        if sys.stderr.isatty():
            yield ticker
            return
        printer = threading.Thread(target=keep_printing, daemon=True)
        printer.start()
        try:
            yield ticker
        finally:
            over.set()
            printer.join()


def ask(question: "_OfMeasurements[_Answer]", what: str) -> "_Answer":
    """Ask a question about measurements; then print on stderr what the files leave out, and a warning."""
    with simulating(what):
        answer = question.ask()
    left_out(answer.measured.skipped, answer.measured.omissions)
    if answer.measured.warning:
        print(f"ringside: {answer.measured.warning}", file=sys.stderr)
    return answer


class Ticker:
    """Advances a progress bar; ``text`` is its text."""

    def __init__(self, bar: Progress, task: TaskID, what: str) -> None:
        self.text = what
        self._bar = bar
        self._task = task
        self._what = what
        self._announced: set[str] = set()
        self._inner: TaskID | None = None

    def done(self, what: str) -> None:
        """Count one more as finished; ``what`` is the next or the last one."""
        self.text = self._what = what
        self._simulated()
        self._bar.update(self._task, advance=1, description=_shown(what))

    def moved(self, done: int, what: str) -> None:
        """Set the number finished; ``what`` describes the state."""
        self.text = self._what = what
        self._simulated()
        self._bar.update(self._task, completed=done, description=_shown(what))

    def show(self, done: int, total: int) -> None:
        """Show the transfers of one simulation, finished and in all, in a bar of its own."""
        self.text = f"{self._what}: {done:,} of {total:,} transfers"
        if self._inner is None:
            self._inner = self._bar.add_task("", total=total)
        self._bar.update(
            self._inner, completed=done, total=total, description=f"{done:,} of {total:,} transfers"
        )

    def _simulated(self) -> None:
        """Remove the bar of a finished simulation."""
        if self._inner is not None:
            self._bar.remove_task(self._inner)
            self._inner = None

    def announce(self, text: str) -> None:
        """Announce a long task, once."""
        if text not in self._announced:
            self._announced.add(text)
            self.say(text)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(f"ringside: {one_line(text)}", markup=False)


def _shown(what: str) -> str:
    """Escape a bar's text, in which brackets are markup."""
    return escape(one_line(what))


def _that_fit(widths: Sequence[int]) -> int:
    """Return the number of columns, at least one, that fit on one line."""
    ends = accumulate((1 + width for width in widths), initial=1)
    return max(1, sum(end <= WIDTH for end in ends) - 1) if widths else 0


def _text(cell: Cell) -> str:
    """Format with two decimals, fewer for more than three digits before them, as in nccl-tests."""
    if not isinstance(cell, float):
        return one_line(str(cell))
    if not math.isfinite(cell):
        raise ArithmeticError(f"a figure is {cell}, which is not finite")
    precise = (f"{cell:.2f}", f"{cell:.1f}")
    return next((text for text in precise if len(text) <= len("123.45")), f"{cell:.0f}")
