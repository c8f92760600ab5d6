"""A worker's task: ask the question of each point, and flatten its answer to a row."""

import math
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from time import perf_counter
from typing import Any, NamedTuple

from ringside.errors import message
from ringside.studies.inputs import Inputs, noted
from ringside.studies.study import CLOCK, OWN, Query, StudyError, Value, text_of

Row = dict[str, Any]

Point = tuple[int, dict[str, Value]]
"""A point's number, and its values."""


class Answered(NamedTuple):
    """The rows of one batch of points, in order, and the files that they depend on."""

    rows: list[Row]
    inputs: Inputs


_one_at_a_time = Lock()
"""A lock: other clusters' workers may have several threads, but a program's script is loaded per process."""


def row_of(query: Query, point: int, values: Mapping[str, Value]) -> Row:
    """Return the row of one point: its number, its parameters, its answer or its error."""
    begun = perf_counter()
    answer, error = _answer(query, values)
    taken = {*OWN, *values}
    named = {f"answer_{name}" if name in taken else name: value for name, value in answer.items()}
    texts = {name: text_of(value) for name, value in values.items()}
    return {"point": point, **texts, **named, "error": error, CLOCK: perf_counter() - begun}


def answer_points(query: Query, points: Sequence[Point], seconds: float) -> Answered:
    """Answer at least one point; stop after ``seconds``."""
    begun, rows = perf_counter(), []
    with noted() as inputs:
        for point in points:
            rows.append(row_of(query, *point))
            if perf_counter() - begun > seconds:
                break
    return Answered(rows, inputs)


def rows_of(query: Query, points: Sequence[Point]) -> list[Row]:
    """Return the rows of several points, in order."""
    return [row_of(query, *point) for point in points]


def _answer(query: Query, values: Mapping[str, Value]) -> tuple[Row, str | None]:
    """Return an answer's columns, or an error message."""
    try:
        with _one_at_a_time:
            answer = query.question(values).ask()
        return _flat(getattr(answer, "totals", {}), answer.rows, query.figure), None
    except Exception as error:
        return {}, message(error)


def _flat(totals: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], figure: str) -> Row:
    """Return the columns of an answer: those of the whole, and those of its single row.

    If the whole answer has the ``figure``, its rows are parts and left out.
    """
    columns = dict(_columns(totals))
    if figure not in totals:
        if len(rows) != 1:
            raise StudyError(f"{len(rows)} rows in one answer; write one size and one count")
        columns |= _columns(rows[0])
    if figure not in columns:
        raise StudyError(f"the answer has no {figure}")
    return columns


def _columns(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and single values; compound values as ``mesh_tensor``; lists are left out."""
    for key, value in content.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _columns(value, f"{name}_")
        elif isinstance(value, bool | str):
            yield name, value
        elif isinstance(value, int | float):
            if not math.isfinite(value):
                raise ArithmeticError(f"{name} is {value}, which is not a valid answer")
            yield name, float(value)
