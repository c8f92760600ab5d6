"""A study: a question, and the points at which to ask it.

A YAML file::

    ask: simulate                          # the question, named as its command
    options:                               # its fixed options
      collective: all_reduce
      cluster: dgx-h100:{nodes}            # a hole, filled by a parameter
      settings: {nic: "{nic}"}
    grid:                                  # every combination of these
      nodes: [1, 2, 4, 8]
      size: [1M, 64M]                      # an option
    sample:                                # random draws at each combination
      points: 50
      seed: 7
      draws:
        nic: {from: 10GB/s, to: 100GB/s, scale: log}
    answer: time_s                         # the column for the picture

Points are numbered from 0: the grid's last parameter changes fastest except for the draws. A value may set
several options: ``layout: [{tp: 2, pp: 4}, {tp: 8}]``.
"""

import itertools
import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from ringside.sim.questions.question import from_text, options_of
from ringside.topologies import strict_yaml
from ringside.topologies.disk import regular
from ringside.topologies.names import one_of
from ringside.topologies.units import format_duration, shown

STUDIED = {
    "simulate": ("CollectiveTime", "time_s"),
    "pick": ("AlgorithmChoice", "time_s"),
    "experts": ("ExpertExchange", "total_s"),
    "train": ("StepTime", "step_s"),
    "goodput": ("JobGoodput", "simulated"),
    "program": ("ProgramTime", "makespan_s"),
}
"""Questions of a study by command: the class, and the column of its answer for pictures."""

MOST_POINTS = 1_000_000
"""The maximum number of points of one study."""

CLOCK = "elapsed_s"
"""Seconds that a point took: the only column that differs between runs."""

OWN = ("point", "error", CLOCK)
"""Columns of every row, besides the study's parameters and the answer's figures."""

_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\D*)")


class StudyError(ValueError):
    """An invalid study; the message says what to write."""


def _text(value: object) -> object:
    """Return a number or a text as text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"YAML reads {shown(value)} there; quote the text")
    return str(value)


def _value(value: object) -> object:
    """Return a value of a parameter: text, true or false, or a mapping of options."""
    is_mapping = isinstance(value, dict) and all(isinstance(key, str) for key in value)
    return value if is_mapping or isinstance(value, bool) else _text(value)


Text = Annotated[str, BeforeValidator(_text)]
Value = Annotated[bool | str | dict[str, Any], BeforeValidator(_value)]


def text_of(value: Value) -> str:
    """Return a value as the text of its column."""
    if isinstance(value, dict):
        return " ".join(f"{name}={one}" for name, one in value.items())
    return str(value)


class Query(NamedTuple):
    """A question whose options have holes: ``ask`` names its command."""

    ask: str
    options: Mapping[str, Any]

    @property
    def type(self) -> type[Any]:
        """The question's class."""
        question: type[Any] = getattr(import_module("ringside"), STUDIED[self.ask][0])
        return question

    @property
    def figure(self) -> str:
        """The column of the answer for pictures."""
        return STUDIED[self.ask][1]

    def holes(self) -> set[str]:
        """Return the names of the holes."""
        return {name for text in _texts(self.options) for name in _holes(text)}

    def question(self, values: Mapping[str, Value]) -> Any:
        """Return the question of one point; raise ValueError if it is invalid."""
        holes, kind = self.holes(), self.type
        texts = {name: values[name] for name in holes}
        options = {name: _filled(value, texts) for name, value in self.options.items()}
        for name, value in values.items():
            if isinstance(value, dict):
                options |= value
            elif name not in holes:
                options[name] = value
        return kind(
            **{
                name: from_text(kind, name, value) if isinstance(value, str) else value
                for name, value in options.items()
            }
        )


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class ValueRange(_Strict):
    """A range of values with one unit; ``whole`` ones are rounded."""

    first: Text = Field(alias="from")
    last: Text = Field(alias="to")
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
    draws: Annotated[dict[str, ValueRange], Field(min_length=1)]

    def values(self) -> list[dict[str, str]]:
        """Return the drawn values, in order."""
        random = np.random.default_rng(self.seed)
        columns = []
        for draw in self.draws.values():
            shares = (random.permutation(self.points) + random.random(self.points)) / self.points
            columns.append([draw.at(float(share)) for share in shares])
        return [dict(zip(self.draws, row, strict=True)) for row in zip(*columns, strict=True)]


class Study(_Strict):
    """A question, and its points."""

    ask: str
    options: dict[str, Any] = {}
    grid: dict[str, Annotated[list[Value], Field(min_length=1)]] = {}
    sample: Sample | None = None
    answer: str | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.ask not in STUDIED:
            raise ValueError(f"ask: {self.ask!r}; write one of {', '.join(STUDIED)}")
        both = sorted(set(self.grid) & set(self.sample.draws if self.sample else ()))
        if both:
            raise ValueError(f"{both[0]} is under grid and under draws; remove one of them")
        self._check_options()
        for name, values in self.grid.items():
            twice = [value for value, count in Counter(map(text_of, values)).items() if count > 1]
            if twice:
                raise ValueError(f"{name}: {twice[0]} occurs twice; remove one of them")
        taken = [name for name in self.parameters if name in OWN]
        if taken:
            raise ValueError(f"{taken[0]} is a column of every row; rename the parameter")
        if self.count > MOST_POINTS:
            raise ValueError(f"{self.count:,} points; write at most {MOST_POINTS:,}")
        return self

    def _check_options(self) -> None:
        """Raise ValueError unless options, holes and parameters belong together."""
        holes = self.query.holes()
        known = {one.name: one for one in options_of(self.query.type)}
        if missing := sorted(holes - set(self.parameters)):
            raise ValueError(f"options: no values for {{{missing[0]}}}; write it under grid, or under draws")
        given = {"options": set(self.options)}
        for name in self.parameters:
            values = self.grid.get(name, [""])
            mappings = [value for value in values if isinstance(value, dict)]
            if mappings:
                if len(mappings) < len(values) or name in holes:
                    raise ValueError(f"{name}: write only mappings of options, and no hole {{{name}}}")
                given[name] = {option for value in mappings for option in value}
            elif name not in holes:
                given[name] = {name}
            elif any(isinstance(value, bool) for value in values):
                raise ValueError(f"{name}: YAML reads True or False there; quote the text")
        for place, names in given.items():
            if unknown := sorted(names - known.keys()):
                hole = "" if place == "options" else f"a hole {{{unknown[0]}}} in options, or "
                what = hole + one_of(known, unknown[0])
                raise ValueError(f"{place}: {self.ask} has no option {unknown[0]!r}; write {what}")
        required = [
            name for name, one in known.items() if one.default is MISSING and one.default_factory is MISSING
        ]
        lost = [name for name in required if not any(name in names for names in given.values())]
        if lost:
            raise ValueError(f"options: {lost[0]} is missing; write it there")

    @property
    def query(self) -> Query:
        """The question with its holes."""
        return Query(self.ask, self.options)

    @property
    def title(self) -> str:
        """The question in one line."""
        return ", ".join([self.ask, *(f"{name} {text_of(value)}" for name, value in self.options.items())])

    @property
    def target(self) -> str:
        """The column of the answers for pictures."""
        return self.answer or self.query.figure

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters."""
        return [*self.grid, *(self.sample.draws if self.sample else ())]

    @property
    def count(self) -> int:
        """The number of points."""
        return math.prod(map(len, self.grid.values())) * (self.sample.points if self.sample else 1)

    def points(self) -> Iterator[tuple[int, dict[str, Value]]]:
        """Yield the number and the values of each point."""
        drawn = self.sample.values() if self.sample else [{}]
        number = itertools.count()
        for combination in itertools.product(*self.grid.values()):
            for draw in drawn:
                yield next(number), dict(zip(self.grid, combination, strict=True)) | draw


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


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts within a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for one in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(one)


def _filled(value: Any, texts: Mapping[str, Any]) -> Any:
    """Return a value with its holes filled; numbers in mappings become text."""
    if isinstance(value, str):
        return value.format_map(texts)
    if isinstance(value, list):
        return [_filled(one, texts) for one in value]
    if isinstance(value, Mapping):
        return {name: str(_filled(one, texts)) for name, one in value.items()}
    return value


def _holes(text: str) -> list[str]:
    try:
        parts = [part for part in string.Formatter().parse(text) if part[1] is not None]
    except ValueError:
        raise ValueError(f"options: {text}: an unclosed brace; write {{name}}") from None
    for _, name, spec, conversion in parts:
        if not str(name).isidentifier() or spec or conversion:
            raise ValueError(f"options: {text}: write a name of letters alone between braces, {{nodes}}")
    return [str(name) for _, name, _, _ in parts]


def number(text: str) -> tuple[float, str] | None:
    """Parse a number and its unit; None if the text does not begin with a number."""
    match = _NUMBER.fullmatch(text.strip())
    return (float(match[1]), match[2]) if match and math.isfinite(float(match[1])) else None


def ordered_by_size(values: Iterable[str]) -> list[str]:
    """Return the distinct values of a parameter: by size for numbers of one unit, else in their order."""
    distinct = list(dict.fromkeys(values))
    numbers = [number(value) for value in distinct]
    if all(numbers) and len({one[1] for one in numbers if one}) == 1:
        return sorted(distinct, key=lambda value: (number(value) or (0.0, ""))[0])
    return distinct


def shown_answer(value: float, column: str) -> str:
    """Format a number in a column of the answers: seconds with their unit."""
    return format_duration(value, 4) if column.endswith("_s") else f"{value:.6g}"


def _number(text: str) -> tuple[float, str]:
    parsed = number(text)
    if parsed is None:
        raise ValueError(f"{text!r} is not a number with a unit; write for example 10GB/s, 2us or 16")
    return parsed
