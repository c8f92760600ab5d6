"""What people read: tables in nccl-tests' manner, JSON for programs, progress on a terminal."""

import json
import math
import sys
import textwrap
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID

from ringside.door import behind, one_line, plain
from ringside.sim.engine.effort import watched
from ringside.topologies.catalogue import split
from ringside.topologies.units import parse_size

if TYPE_CHECKING:
    from ringside.validation.questions.fields import Measured

Cell = str | int | float

PERIOD_S = 5.0
"""How long a pipe stays silent while work goes on."""


WIDTH = 80
"""Columns of a line that people read; a path or an address may be longer."""


_ALL: ContextVar[bool] = ContextVar("all", default=False)
_ANSWERS: ContextVar[list[dict[str, Any]] | None] = ContextVar("answers", default=None)


@contextmanager
def handed_over() -> Iterator[list[dict[str, Any]]]:
    """What `print_json` would print, handed over; no bar and no line says how far the work is."""
    answers: list[dict[str, Any]] = []
    token = _ANSWERS.set(answers)
    try:
        yield answers
    finally:
        _ANSWERS.reset(token)


def widen(context: typer.Context, asked: bool) -> None:
    """What ``--all`` does: while the command lasts, lines are as wide as what there is to say."""
    token = _ALL.set(asked)
    context.call_on_close(lambda: _ALL.reset(token))


def print_json(schema: str, content: Mapping[str, Any]) -> None:
    """One JSON object whose first key says what it is."""
    answers = _ANSWERS.get()
    if answers is not None:
        answers.append(dict(content))
        return
    text = json.dumps({"schema": f"ringside.{schema}/1", **content}, indent=2, allow_nan=False)
    print(text)


def print_table(
    comments: Iterable[str], heads: Sequence[tuple[str, str]], rows: Iterable[Sequence[Cell]]
) -> None:
    """Comments, heads (name and unit) and rows; all but the rows begin with ``#``, as in nccl-tests.

    Columns stand from the most to the least telling: those that a line of `WIDTH` does not hold wait for
    ``--all``, which a comment says. Drawn by hand, for rich.table cuts or folds cells instead, and knows no
    ``#`` by which awk and gnuplot tell heads from rows.
    """
    heads = [(one_line(name), one_line(unit)) for name, unit in heads]
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, [*head, *(row[i] for row in texts)])) for i, head in enumerate(heads)]
    shown = len(heads) if _ALL.get() else _that_fit(widths)
    gap = 2 if _ALL.get() or 1 + sum(widths) + 2 * len(heads) <= WIDTH else 1
    print_comments(comments)
    if shown < len(heads):
        print_comments([f"--all also prints {', '.join(name for name, _ in heads[shown:])}"])
    lines = [*(("#", *line) for line in zip(*heads, strict=True)), *((" ", *row) for row in texts)]
    for mark, *words in lines:
        kept = zip(words[:shown], widths, strict=False)
        print((mark + "".join(word.rjust(gap + width) for word, width in kept)).rstrip())


def print_comments(comments: Iterable[str]) -> None:
    """Lines that begin with ``#``, parted as by `print_wrapped`; parts go on after ``#`` and three blanks."""
    for comment in comments:
        indent = len(comment) - len(comment.lstrip())
        print_wrapped(f"# {comment}", "#   " + " " * indent)


def print_wrapped(text: str, onward: str = "    ") -> None:
    """A line; without ``--all`` one that is wider than `WIDTH` is parted, and goes on after ``onward``."""
    text = plain(text).replace("\n", " ").replace("\t", " ")
    if not _ALL.get():
        text = textwrap.fill(
            text, WIDTH, subsequent_indent=onward, break_long_words=False, break_on_hyphens=False
        )
    print(text.rstrip())


def spelled(inputs: Mapping[str, Any]) -> str:
    """Inputs as one line, those that say nothing left out."""
    return ", ".join(
        f"{key} {_spelled(value)}" for key, value in inputs.items() if value and value not in ("auto", "none")
    )


def _spelled(value: Any) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{key}={one}" for key, one in value.items())
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


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


def counts(text: str) -> list[int]:
    """The counts of machines, or of ranks, that ``--nodes`` lists."""
    words = text.split(",")
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise ValueError(f"{text!r} are no node counts; write for example 1,2,4,8")
    return list(dict.fromkeys(map(int, words)))


def check_count(cluster: str, nodes: str | int | None) -> str:
    """The cluster's name without a count; refused where it has another one than ``--nodes``."""
    name, count = split(cluster)
    if None not in (count, nodes) and str(count) != str(nodes):
        raise ValueError(f"{cluster} and --nodes {nodes} count differently; leave one count out")
    return name


def given(context: typer.Context) -> set[str]:
    """The options that were written, and not left to their defaults."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return {name for name, source in sources.items() if source and source.name == "COMMANDLINE"}


def check_sizes(context: typer.Context) -> None:
    """Refuse one size and several."""
    if "size" in given(context) and given(context) & {"begin", "end", "factor"}:
        raise ValueError("--size is one size, -b, -e and -f are several; leave one or the other out")


def left_out(rows: int, notes: Iterable[str] = ()) -> None:
    """Say how many rows of what was read had no usable time, if any, and what else files leave out."""
    for note in notes:
        print(f"ringside: {note}", file=sys.stderr)
    if rows:
        what = "1 row without a usable time was" if rows == 1 else f"{rows} rows without a usable time were"
        print(f"ringside: {what} left out", file=sys.stderr)


def warn_of(measured: "Measured") -> None:
    """Say on stderr what files leave out, and that the GPUs are others than the cluster's."""
    left_out(measured.skipped, measured.reading_notes)
    if measured.warning:
        print(f"ringside: {measured.warning}", file=sys.stderr)


@contextmanager
def progress(what: str, total: int | None) -> Iterator["Ticker"]:
    """A bar on a terminal, nothing in a pipe; ``total`` says of how many parts, if that is known."""
    console = Console(file=behind(sys.stderr), highlight=False, soft_wrap=True)
    with Progress(console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        yield Ticker(bar, bar.add_task(_shown(what), total=total), what)


@contextmanager
def simulating(what: str, total: int | None = None) -> Iterator["Ticker"]:
    """A bar on a terminal, in a pipe a line from time to time; above it long simulations are announced."""
    if _ANSWERS.get() is not None:
        bar = Progress(disable=True)
        yield Ticker(bar, bar.add_task(what), what)
        return
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
        self._inner: TaskID | None = None

    def done(self, what: str) -> None:
        """One more is finished; ``what`` comes next or was last."""
        self.text = self._what = what
        self._simulated()
        self._bar.update(self._task, advance=1, description=_shown(what))

    def moved(self, done: int, what: str) -> None:
        """So many are finished; ``what`` says how it stands."""
        self.text = self._what = what
        self._simulated()
        self._bar.update(self._task, completed=done, description=_shown(what))

    def show(self, done: int, total: int) -> None:
        """So many transfers of one simulation are finished, of so many in all; a bar of its own shows it."""
        self.text = f"{self._what}: {done:,} of {total:,} transfers"
        if self._inner is None:
            self._inner = self._bar.add_task("", total=total)
        self._bar.update(
            self._inner, completed=done, total=total, description=f"{done:,} of {total:,} transfers"
        )

    def _simulated(self) -> None:
        """Take the bar of one simulation away, which is over."""
        if self._inner is not None:
            self._bar.remove_task(self._inner)
            self._inner = None

    def announce(self, text: str) -> None:
        """Say what takes long, once."""
        if text not in self._announced:
            self._announced.add(text)
            self.say(text)

    def say(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(f"ringside: {one_line(text)}", markup=False)


def _shown(what: str) -> str:
    """What a bar says, which reads brackets as marks."""
    return escape(one_line(what))


def _that_fit(widths: Sequence[int]) -> int:
    """How many columns, the first at least, stand on one line."""
    ends = accumulate((1 + width for width in widths), initial=1)
    return max(1, sum(end <= WIDTH for end in ends) - 1) if widths else 0


def _text(cell: Cell) -> str:
    """Two decimals, fewer where a number has more than three digits before them, as in nccl-tests."""
    if not isinstance(cell, float):
        return one_line(str(cell))
    if not math.isfinite(cell):
        raise ArithmeticError(f"a figure is {cell}, which is no answer")
    precise = (f"{cell:.2f}", f"{cell:.1f}")
    return next((text for text in precise if len(text) <= len("123.45")), f"{cell:.0f}")
