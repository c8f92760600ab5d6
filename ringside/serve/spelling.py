"""A question written as text: by its fields, as a command line, as Python, as an object."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import Field
from typing import Any

from ringside.sim.questions.question import Question, from_text, option_of, options_of, types_of

Texts = Mapping[str, Sequence[str]]
"""Fields with their texts; a field that repeats has several."""


def question_of(kind: type[Question], texts: Texts) -> Question:
    """Return the question; raise ValueError for unknown fields and invalid values."""
    return kind(**_values(kind, texts))


def command_line(kind: type[Question], texts: Texts) -> str:
    """Return the command line that asks the question."""
    own = {one.name: one for one in options_of(kind)}
    first = [text for name, given in texts.items() if option_of(own[name]).is_argument for text in given]
    options = [
        part
        for name, given in texts.items()
        if not option_of(own[name]).is_argument
        for text in given
        for part in _option(own[name], types_of(kind)[name], text)
    ]
    return shlex.join(["ringside", kind.schema, *first, *options])


def python_code(kind: type[Question], texts: Texts) -> str:
    """Return the Python that asks the question."""
    fields = ", ".join(f"{name}={value!r}" for name, value in _values(kind, texts).items())
    name = kind.__name__
    return f"from ringside import {name}\n\nanswer = {name}({fields}).ask()\nprint(answer.rows)\n"


def parsed(kind: type[Question], line: str) -> dict[str, list[str]]:
    """Return the fields of options as on a command line: ``--dtype bfloat16 --collnet``."""
    flags = {flag: one for one in options_of(kind) for flag in _flags(one) if not option_of(one).is_argument}
    try:
        parts = shlex.split(line)
    except ValueError:
        raise ValueError(f"{line}: a quotation mark is missing; close it") from None
    texts: dict[str, list[str]] = {}
    while parts:
        flag, equals, text = parts.pop(0).partition("=")
        if flag not in flags:
            raise ValueError(f"{flag} is no option of ringside {kind.schema}; see ringside {kind.schema} -h")
        one = flags[flag]
        if types_of(kind)[one.name] in (bool, bool | None):
            text = "no" if flag.startswith("--no-") and one.name[:3] != "no_" else "yes"
        elif not equals:
            if not parts:
                raise ValueError(f"{flag} needs a value; write it behind the option")
            text = parts.pop(0)
        texts.setdefault(one.name, []).append(text)
    return texts


def _values(kind: type[Question], texts: Texts) -> dict[str, Any]:
    own = {one.name: one for one in options_of(kind)}
    values = {}
    for name, given in texts.items():
        repeats = option_of(own[name]).repeats
        if len(given) > 1 and not repeats:
            raise ValueError(f"{_flags(own[name])[0]} is given {len(given)} times; write it once")
        values[name] = list(given) if repeats else from_text(kind, name, given[-1])
    return values


def _flags(one: "Field[Any]") -> list[str]:
    """Return an option's flags, long ones first; ``--clip/--no-clip`` are two."""
    flags = [part for flag in option_of(one).flags for part in flag.split("/")]
    return sorted(flags or [f"--{one.name.replace('_', '-')}"], key=lambda flag: not flag.startswith("--"))


def _option(one: "Field[Any]", hint: Any, text: str) -> list[str]:
    flags = _flags(one)
    if hint not in (bool, bool | None):
        return [flags[0], text]
    off = [flag for flag in flags if flag.startswith("--no-")] if len(flags) > 1 else []
    return [flags[0]] if text == "yes" else off[:1]
