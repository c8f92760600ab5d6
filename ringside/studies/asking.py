"""A worker's task: run the command of one point, and flatten its answer to a row."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from threading import Lock
from time import perf_counter
from typing import Any, NamedTuple

import typer

from ringside import console
from ringside.errors import message
from ringside.studies.inputs import Inputs, noted
from ringside.studies.study import ANSWERS, CLOCK, OWN, StudyError, filled

Row = dict[str, Any]

Point = tuple[int, dict[str, str]]
"""A point's number, and its values."""


class Asked(NamedTuple):
    """The rows of one batch of points, in order, and the files that they depend on."""

    rows: list[Row]
    inputs: Inputs


_Refused: Any = typer.BadParameter.__base__
"""Errors of invalid options; typer bundles its own click, which it does not export."""

_one_at_a_time = Lock()
"""Workers of others may have several threads; a program's script is loaded per process."""


def row_of(ask: str, point: int, values: Mapping[str, str]) -> Row:
    """Return the row of one point: its number, its parameters, its answer or its error."""
    begun = perf_counter()
    answer, error = _asked(ask, values)
    taken = {*OWN, *values}
    named = {f"answer_{name}" if name in taken else name: value for name, value in answer.items()}
    return {"point": point, **values, **named, "error": error, CLOCK: perf_counter() - begun}


def ask_for(ask: str, points: Sequence[Point], seconds: float) -> Asked:
    """Run at least one point; stop after ``seconds``."""
    begun, rows = perf_counter(), []
    with noted() as inputs:
        for point in points:
            rows.append(row_of(ask, *point))
            if perf_counter() - begun > seconds:
                break
    return Asked(rows, inputs)


def rows_of(ask: str, points: Sequence[Point]) -> list[Row]:
    """Return the rows of several points, in order."""
    return [row_of(ask, *point) for point in points]


def _asked(ask: str, values: Mapping[str, str]) -> tuple[Row, str | None]:
    """Return an answer's columns, or an error message."""
    try:
        name, *arguments = filled(ask, values)
        with _one_at_a_time, console.handed_over() as answers:
            _command(name).main(args=[*arguments, "--json"], standalone_mode=False)
        if not answers:
            raise StudyError(f"{name} gave no answer; use a command with --json")
        return _flat(answers[-1], ANSWERS[name]), None
    except _Refused as error:
        return {}, error.format_message()
    except Exception as error:
        return {}, message(error)


@cache
def _command(name: str) -> Any:
    """Return the click command."""
    one = typer.Typer(add_completion=False)
    one.command(name)(import_module(f"ringside.commands.{name}.command").command)
    return typer.main.get_command(one)


def _flat(content: Mapping[str, Any], figure: str) -> Row:
    """Return the columns of an answer: those of the whole, and those of its single row.

    Where the answer as a whole has the requested ``figure``, its rows are parts, and left out.
    """
    whole = dict(_columns({key: value for key, value in content.items() if key != "inputs"}))
    if figure in content:
        return whole
    rows = content.get("rows", [])
    if len(rows) != 1:
        raise StudyError(
            f"{len(rows)} rows in one answer; request one size and one count, such as -b 1M -e 1M"
        )
    return whole | dict(_columns(rows[0]))


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
