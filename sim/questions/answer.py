"""What every answer has: a headline, rows, what it rests on; a frame, a picture and HTML for notebooks."""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import import_module
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ringside.topologies.extras import install

if TYPE_CHECKING:
    import pandas as pd

PICTURES: list[str] = []
"""The function of the room above that draws answers, as ``module:function``; `ringside.options` names it."""

MOST_ROWS = 30
"""Rows of an answer that a notebook shows; ``to_frame`` has all."""


class Picture:
    """A picture of an answer, which notebooks display."""

    def __init__(self, png: bytes) -> None:
        self.png = png

    def _repr_png_(self) -> bytes:
        return self.png


class Answer:
    """The answer to a question, in plain values: seconds, bytes, bytes/s.

    Printed, its `headline` comes first, then a table, then what it `rests_on`; its notes are kept for who
    wants them.
    """

    __slots__ = ()

    if TYPE_CHECKING:  # these are fields of some answers, and properties of others

        @property
        def inputs(self) -> Mapping[str, Any]:
            """The resolved inputs."""
            ...

        @property
        def rows(self) -> Sequence[Mapping[str, Any]]:
            """The rows, each by column."""
            ...

        @property
        def notes(self) -> Sequence[str]:
            """Notes on the rows, a sentence each."""
            ...

        @property
        def headline(self) -> str:
            """The answer in one sentence, its figure or verdict first."""
            ...

        @property
        def rests_on(self) -> Sequence[str]:
            """The grounds in one line, and all doubts in another."""
            ...

    def to_frame(self) -> "pd.DataFrame":
        """Return the rows as a `pandas.DataFrame`; values inside a value have names such as ``a.b``."""
        try:
            import pandas as pd
        except ModuleNotFoundError:
            raise ModuleNotFoundError(f"to_frame() needs pandas; {install('sweep')}", name="pandas") from None
        return pd.json_normalize([dict(row) for row in self.rows])

    def plot(self, path: str | Path | None = None) -> Picture | None:
        """Draw the answer to an .svg, .png or .pdf file; without one return a picture for a notebook."""
        module, _, name = PICTURES[-1].partition(":")
        draw: Callable[[Answer, Path], None] = getattr(import_module(module), name)
        if path is not None:
            draw(self, Path(path))
            return None
        with TemporaryDirectory() as folder:
            file = Path(folder, "answer.png")
            draw(self, file)
            return Picture(file.read_bytes())

    def _repr_html_(self) -> str:
        rows = [dict(row) for row in islice(self.rows, MOST_ROWS)]
        names = list(dict.fromkeys(name for row in rows for name, value in row.items() if _is_plain(value)))
        heads = "".join(f"<th>{escape(name)}</th>" for name in names)
        lines = ["".join(f"<td>{escape(_shown(row.get(name)))}</td>" for name in names) for row in rows]
        table = f"<table><tr>{heads}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
        more = len(self.rows) - len(rows)
        notes = [*([f"{more:,} more rows: to_frame()"] if more else []), *self.rests_on]
        small = "".join(f"<small>{escape(note)}</small><br>" for note in notes)
        return f"<p><b>{escape(self.headline)}</b></p>{table if names else ''}<p>{small}</p>"


class AnswerOnDemand(Answer):
    """An answer whose headline, grounds and doubts are worded when they are needed."""

    __slots__ = ()

    @property
    def grounds(self) -> str:
        """What the answer rests on, in one sentence; empty where nothing need be said."""
        return ""

    @property
    def doubts(self) -> Sequence[str]:
        """Reasons not to trust the answer as it is, a sentence each."""
        return ()

    @property
    def rests_on(self) -> list[str]:
        """The grounds in one line, and all doubts in another."""
        return two_lines(self.grounds, self.doubts)


def two_lines(grounds: str, doubts: Sequence[str]) -> list[str]:
    """Return what an answer rests on: its grounds in one line, and all doubts in another."""
    return [line for line in (grounds, "; ".join(doubts)) if line]


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float)


def _shown(value: Any) -> str:
    if not _is_plain(value) or value is None:
        return "-"
    return f"{value:.5g}" if isinstance(value, float) else str(value)
