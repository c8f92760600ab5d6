"""A study: a command line with holes, and what to put into them.

A YAML file::

    ask: simulate all_reduce --cluster dgx-h100:{nodes} --library nccl --size {size} --set nic={nic}
    grid:                                  # every combination of these
      nodes: [1, 2, 4, 8]
      size: [1M, 64M]
    sample:                                # asked at each of them, so many draws of these
      points: 50
      seed: 7
      draws:
        nic: {from: 10GB/s, to: 100GB/s, scale: log}
    answer: time_s                         # the column that the picture is about

Points are numbered from 0: the grid's last parameter changes fastest but for the draws. What stands in the
holes is parted as a shell does: ``--tp 2 --pp 4`` is four words, an empty text none.
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
"""Commands that can be asked, and the column of their answers that pictures are about."""

MOST_POINTS = 1_000_000
"""Of one study."""

CLOCK = "elapsed_s"
"""Seconds that a point took: the one column that is another in every run."""

OWN = ("point", "error", CLOCK)
"""Columns of every row, beside the study's parameters and the answer's figures."""

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
"""Words that a study may not have: points would write over each other's files, or ask nothing."""

_NUMBER = re.compile(r"([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\D*)")


class StudyError(ValueError):
    """A study that cannot be made; the message says what to write."""


def _text(value: object) -> object:
    """A value as it stands on a command line; YAML reads ``on``, ``no`` and ``~`` as no text."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"YAML reads {shown(value)} there; put what is meant between quotation marks")
    return str(value)


Value = Annotated[str, BeforeValidator(_text)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class Draw(_Strict):
    """Values between two ends, of one unit; ``whole`` ones are rounded."""

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
        """The value at this share of the way."""
        (low, unit), (high, _) = _number(self.first), _number(self.last)
        value = low * (high / low) ** share if self.scale == "log" else low + (high - low) * share
        return f"{round(value)}{unit}" if self.whole else f"{value:.6g}{unit}"


class Sample(_Strict):
    """So many draws, spread over the whole room (a Latin hypercube), the same ones for a seed."""

    points: Annotated[int, Field(ge=1, le=MOST_POINTS, strict=True)]
    seed: Annotated[int, Field(ge=0, strict=True)] = 0
    draws: Annotated[dict[str, Draw], Field(min_length=1)]

    def values(self) -> list[dict[str, str]]:
        """What is drawn, in order."""
        random = np.random.default_rng(self.seed)
        columns = []
        for draw in self.draws.values():
            shares = (random.permutation(self.points) + random.random(self.points)) / self.points
            columns.append([draw.at(float(share)) for share in shares])
        return [dict(zip(self.draws, row, strict=True)) for row in zip(*columns, strict=True)]


class Study(_Strict):
    """What is asked, and at which points."""

    ask: str
    grid: dict[str, Annotated[list[Value], Field(min_length=1)]] = {}
    sample: Sample | None = None
    answer: str | None = None

    @model_validator(mode="after")
    def _fits(self) -> Self:
        first, *words = _split(self.ask) or [""]
        if first not in ANSWERS:
            raise ValueError(f"ask: {first or 'nothing'} cannot be asked; begin with {', '.join(ANSWERS)}")
        _check_words("ask", words)
        for name, values in self.grid.items():
            twice = [value for value, count in Counter(values).items() if count > 1]
            if twice:
                raise ValueError(f"{name}: {twice[0]} stands there twice; leave one of them out")
            for value in values:
                _check_words(name, _split(value))
        holes = set(_holes(self.ask))
        both = sorted(set(self.grid) & set(self.sample.draws if self.sample else ()))
        if both:
            raise ValueError(f"{both[0]} stands under grid and under draws; leave one of them out")
        missing, idle = sorted(holes - set(self.parameters)), sorted(set(self.parameters) - holes)
        if missing:
            raise ValueError(
                f"ask: nothing says what {{{missing[0]}}} is; write it under grid, or under draws"
            )
        if idle:
            raise ValueError(
                f"{idle[0]} has no place in what is asked; write {{{idle[0]}}} there, or leave it out"
            )
        taken = [name for name in self.parameters if name in OWN]
        if taken:
            raise ValueError(f"{taken[0]} is a column of every row; call the parameter something else")
        if self.count > MOST_POINTS:
            raise ValueError(f"{self.count:,} points; write {MOST_POINTS:,} at the most")
        return self

    @property
    def target(self) -> str:
        """The column of the answers that pictures are about."""
        return self.answer or ANSWERS[self.ask.split()[0]]

    @property
    def parameters(self) -> list[str]:
        """What is put into the holes, by name."""
        return [*self.grid, *(self.sample.draws if self.sample else ())]

    @property
    def count(self) -> int:
        """Points in all."""
        return math.prod(map(len, self.grid.values())) * (self.sample.points if self.sample else 1)

    def points(self) -> Iterator[tuple[int, dict[str, str]]]:
        """The number of each point, and what stands in the holes there."""
        drawn = self.sample.values() if self.sample else [{}]
        number = itertools.count()
        for combination in itertools.product(*self.grid.values()):
            for draw in drawn:
                yield next(number), dict(zip(self.grid, combination, strict=True)) | draw


def filled(ask: str, values: Mapping[str, str]) -> list[str]:
    """The words of one point, parted as a shell does; raise `StudyError` for one that asks nothing."""
    words = _split(ask.format_map(values))
    _check_words("ask", words)
    return words


def read(path: Path) -> Study:
    """The study in a file; raise `StudyError` with every complaint at once."""
    try:
        text = regular(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StudyError(
            f"{path}: cannot be read: {reason}; ringside sweep --example prints a study"
        ) from None
    return loads(text, str(path))


def loads(text: str, name: str) -> Study:
    """The study that a text says."""
    try:
        content = strict_yaml.loads(text)
    except yaml.YAMLError as error:
        raise StudyError(f"{name}: not YAML: {' '.join(str(error).split())}") from None
    return made(content, name)


def made(content: object, name: str) -> Study:
    """The study of a mapping, as a file has it."""
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise StudyError(f"{name}: no study; ringside sweep --example prints one")
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
        raise StudyError(f"{text}: a quotation mark is open; close it") from None


def _check_words(where: str, words: Sequence[str]) -> None:
    for word in words:
        option = word.partition("=")[0]
        if option in _NO_QUESTIONS or re.match("-o.", word):
            raise StudyError(f"{where}: {word} has no place in a study, whose answers are rows; leave it out")


def _holes(ask: str) -> list[str]:
    try:
        parts = [part for part in string.Formatter().parse(ask) if part[1] is not None]
    except ValueError:
        raise ValueError(f"ask: {ask}: a brace is open; write {{name}}") from None
    for _, name, spec, conversion in parts:
        if not str(name).isidentifier() or spec or conversion:
            raise ValueError(f"ask: {ask}: write a name of letters alone between braces, {{nodes}}")
    return [str(name) for _, name, _, _ in parts]


def number(text: str) -> tuple[float, str] | None:
    """A number and its unit, or None where the text begins with none."""
    found = _NUMBER.fullmatch(text.strip())
    return (float(found[1]), found[2]) if found and math.isfinite(float(found[1])) else None


def ordered_by_size(values: Iterable[str]) -> list[str]:
    """The different values of a parameter: by size where they are numbers of one unit, else as they came."""
    found = list(dict.fromkeys(values))
    numbers = [number(value) for value in found]
    if all(numbers) and len({one[1] for one in numbers if one}) == 1:
        return sorted(found, key=lambda value: (number(value) or (0.0, ""))[0])
    return found


def _number(text: str) -> tuple[float, str]:
    found = number(text)
    if found is None:
        raise ValueError(f"{text!r} is no number with a unit; write for example 10GB/s, 2us or 16")
    return found
