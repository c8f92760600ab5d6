"""A study: a command line with placeholders, and their values.

A YAML file::

    ask: simulate all_reduce --cluster dgx-h100:{nodes} --library nccl --size {size} --set nic={nic}
    grid:                                  # every combination of these
      nodes: [1, 2, 4, 8]
      size: [1M, 64M]
    sample:                                # random draws at each combination
      points: 50
      seed: 7
      draws:
        nic: {from: 10GB/s, to: 100GB/s, scale: log}
    answer: time_s                         # the column for the picture

Points are numbered from 0: the grid's last parameter changes fastest except for the draws. Values are split
as by a shell: ``--tp 2 --pp 4`` is four arguments, an empty text none.
"""

import itertools
import math
import re
import shlex
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ringside.topologies import strict_yaml
from ringside.topologies.disk import regular
from ringside.topologies.units import shown

ANSWERS = {
    "simulate": "time_s",
    "pick": "time_s",
    "train": "step_s",
    "program": "makespan_s",
}
"""Commands that a study may run, and the column of their answers for pictures."""

MOST_POINTS = 1_000_000
"""The maximum number of points of one study."""

CLOCK = "elapsed_s"
"""Seconds that a point took: the only column that differs between runs."""

OWN = ("point", "error", CLOCK)
"""Columns of every row, besides the study's parameters and the answer's figures."""

_NO_QUESTIONS = frozenset(
    {
        "--json",
        "--plot",
        "--html",
        "--trace",
        "--export",
        "--tuner-csv",
        "--force",
        "-o",
        "--output",
        "--help",
        "--real",
        "--emulate",
    }
)
"""Options that a study may not have: points would overwrite each other's files, or answer nothing."""

_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\D*)")


class StudyError(ValueError):
    """An invalid study; the message says what to write."""


def _text(value: object) -> object:
    """Return a value as command-line text; YAML does not read ``on``, ``no`` and ``~`` as text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"YAML reads {shown(value)} there; quote the text")
    return str(value)


Value = Annotated[str, BeforeValidator(_text)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Draw(_Strict):
    """A range of values with one unit; ``whole`` ones are rounded."""

    first: Value = Field(alias="from")
    last: Value = Field(alias="to")
    scale: Literal["linear", "log"] = "linear"
    whole: bool = False

    @model_validator(mode="after")
    def _ends(self) -> Self:
        (low, unit), (high, other) = _number(self.first), _number(self.last)
        if unit != other:
            raise ValueError(f"from {self.first} to {self.last}; write both in one unit")
        if not low < high or (self.scale == "log" and low <= 0):
            above = "two numbers above 0" if self.scale == "log" else "two numbers"
            raise ValueError(f"from {self.first} to {self.last}; write {above}, the smaller one first")
        if not math.isfinite(high / low if self.scale == "log" else high - low):
            raise ValueError(f"from {self.first} to {self.last} is too far; write ends that are nearer")
        return self

    def at(self, share: float) -> str:
        """Return the value at this share of the range."""
        (low, unit), (high, _) = _number(self.first), _number(self.last)
        value = low * (high / low) ** share if self.scale == "log" else low + (high - low) * share
        return f"{round(value)}{unit}" if self.whole else f"{value:.6g}{unit}"


class Sample(_Strict):
    """Draws that are spread over the whole space (a Latin hypercube), the same ones for a seed."""

    points: Annotated[int, Field(ge=1, le=MOST_POINTS, strict=True)]
    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    draws: Annotated[dict[str, Draw], Field(min_length=1)]

    def values(self) -> list[dict[str, str]]:
        """Return the drawn values, in order."""
        random = np.random.default_rng(self.seed)
        columns = []
        for draw in self.draws.values():
            shares = (random.permutation(self.points) + random.random(self.points)) / self.points
            columns.append([draw.at(float(share)) for share in shares])
        return [dict(zip(self.draws, row, strict=True)) for row in zip(*columns, strict=True)]


class Study(_Strict):
    """A command, and its points."""

    ask: str
    grid: dict[str, Annotated[list[Value], Field(min_length=1)]] = {}
    sample: Sample | None = None
    answer: str | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        first, *arguments = _split(self.ask) or [""]
        if first not in ANSWERS:
            raise ValueError(f"ask: {first or 'nothing'} cannot be asked; begin with {', '.join(ANSWERS)}")
        _check_words("ask", arguments)
        for name, values in self.grid.items():
            twice = [value for value, count in Counter(values).items() if count > 1]
            if twice:
                raise ValueError(f"{name}: {twice[0]} occurs twice; remove one of them")
            for value in values:
                _check_words(name, _split(value))
        holes = set(_holes(self.ask))
        both = sorted(set(self.grid) & set(self.sample.draws if self.sample else ()))
        if both:
            raise ValueError(f"{both[0]} is under grid and under draws; remove one of them")
        missing, idle = sorted(holes - set(self.parameters)), sorted(set(self.parameters) - holes)
        if missing:
            raise ValueError(f"ask: no values for {{{missing[0]}}}; write it under grid, or under draws")
        if idle:
            raise ValueError(f"{idle[0]} does not occur in ask; write {{{idle[0]}}} there, or leave it out")
        taken = [name for name in self.parameters if name in OWN]
        if taken:
            raise ValueError(f"{taken[0]} is a column of every row; call the parameter something else")
        if self.count > MOST_POINTS:
            raise ValueError(f"{self.count:,} points; write at most {MOST_POINTS:,}")
        return self

    @property
    def target(self) -> str:
        """The column of the answers for pictures."""
        return self.answer or ANSWERS[self.ask.split()[0]]

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters."""
        return [*self.grid, *(self.sample.draws if self.sample else ())]

    @property
    def count(self) -> int:
        """The number of points."""
        return math.prod(map(len, self.grid.values())) * (self.sample.points if self.sample else 1)

    def points(self) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the number and the values of each point."""
        drawn = self.sample.values() if self.sample else [{}]
        number = itertools.count()
        for combination in itertools.product(*self.grid.values()):
            for draw in drawn:
                yield next(number), dict(zip(self.grid, combination, strict=True)) | draw


def filled(ask: str, values: Mapping[str, str]) -> list[str]:
    """Return the arguments of one point, split as by a shell; raise `StudyError` for invalid ones."""
    arguments = _split(ask.format_map(values))
    _check_words("ask", arguments)
    return arguments


def read(path: Path) -> Study:
    """Read a study from a file; raise `StudyError` with every complaint at once."""
    try:
        text = regular(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise StudyError(
            f"{path}: cannot be read: {reason}; ringside sweep --example prints a study"
        ) from None
    return loads(text, str(path))


def loads(text: str, name: str) -> Study:
    """Parse a study from text."""
    try:
        content = strict_yaml.loads(text)
    except yaml.YAMLError as error:
        raise StudyError(f"{name}: not YAML: {' '.join(str(error).split())}") from None
    return made(content, name)


def made(content: object, name: str) -> Study:
    """Build the study of a mapping, as in a file."""
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise StudyError(f"{name}: not a study; ringside sweep --example prints one")
    try:
        return Study(**content)
    except ValidationError as error:
        known = [field for model in (Study, Sample) for field in model.model_fields]
        raise StudyError(
            strict_yaml.complaints(error, name, [*known, "from", "to", "scale", "whole"])
        ) from None


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        raise StudyError(f"{text}: an unclosed quotation mark; close it") from None


def _check_words(where: str, words: Sequence[str]) -> None:
    for word in words:
        option = word.partition("=")[0]
        if option in _NO_QUESTIONS or re.match("-o.", word):
            raise StudyError(f"{where}: {word} cannot be used in a study; leave it out")


def _holes(ask: str) -> list[str]:
    try:
        parts = [part for part in string.Formatter().parse(ask) if part[1] is not None]
    except ValueError:
        raise ValueError(f"ask: {ask}: an unclosed brace; write {{name}}") from None
    for _, name, spec, conversion in parts:
        if not str(name).isidentifier() or spec or conversion:
            raise ValueError(f"ask: {ask}: write a name of letters alone between braces, {{nodes}}")
    return [str(name) for _, name, _, _ in parts]


def number(text: str) -> tuple[float, str] | None:
    """Parse a number and its unit; None where the text begins with no number."""
    match = _NUMBER.fullmatch(text.strip())
    return (float(match[1]), match[2]) if match and math.isfinite(float(match[1])) else None


def ordered_by_size(values: Iterable[str]) -> list[str]:
    """Return the distinct values of a parameter: by size for numbers of one unit, else in their order."""
    distinct = list(dict.fromkeys(values))
    numbers = [number(value) for value in distinct]
    if all(numbers) and len({one[1] for one in numbers if one}) == 1:
        return sorted(distinct, key=lambda value: (number(value) or (0.0, ""))[0])
    return distinct


def _number(text: str) -> tuple[float, str]:
    parsed = number(text)
    if parsed is None:
        raise ValueError(f"{text!r} is not a number with a unit; write for example 10GB/s, 2us or 16")
    return parsed
