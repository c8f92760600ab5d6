"""A question is a frozen dataclass; its fields are its options on the command line and in Python."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, Protocol, get_args, get_type_hints

from ringside.topologies.units import shown

_KEY = "option"

PARSERS: dict[str, str] = {}
"""Parsers of other rooms by name, as ``module:function``; only `ringside.parsers` registers them."""


class QuestionError(ValueError):
    """A field has an invalid value; the message names fields in backticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How a field is written.

    ``flags`` are the command line's names, ``--FIELD`` where empty. ``parse`` turns text into the value; a
    string names one of `PARSERS`. ``default_text`` describes a default of None. What
    ``repeats`` is parsed as a list of texts.
    """

    help: str
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    default_text: str | None = None
    parse: Callable[[Any], Any] | str | None = None
    minimum: int | None = None
    maximum: int | None = None
    repeats: bool = False
    is_argument: bool = False


def option(help: str, *flags: str, default: Any = MISSING, factory: Any = MISSING, **settings: Any) -> Any:
    """Define a field that is an option; see `Option`."""
    metadata = {_KEY: Option(help=help, flags=flags, **settings)}
    return field(default=default, default_factory=factory, metadata=metadata)


def argument(help: str, **settings: Any) -> Any:
    """Define a required field that the command line takes without a flag."""
    return option(help, is_argument=True, **settings)


def option_of(one: "Field[Any]") -> Option:
    """Return how a field is written."""
    written: Option = one.metadata[_KEY]
    return written


def options_of(question: "Question | type[Question]") -> list["Field[Any]"]:
    """Return the fields that are options; the others follow from these."""
    return [one for one in fields(question) if _KEY in one.metadata]


def types_of(question: "type[Question]") -> dict[str, Any]:
    """Return the type of each field."""
    return get_type_hints(question)


class Answer(Protocol):
    """What a question answers, in plain values: seconds, bytes, bytes/s."""

    @property
    def inputs(self) -> Mapping[str, Any]:
        """The question as understood."""
        ...

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """The rows, each by column."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What the rows rest on, a sentence each."""
        ...


@dataclass(frozen=True, kw_only=True)
class Question:
    """The base of all questions; each has ``ask``, which returns its `Answer`.

    Text is parsed and every value checked when a question is made. Raise QuestionError for invalid values.
    """

    schema: ClassVar[str]
    """The name of the answer's JSON schema, and of the command."""

    def __post_init__(self) -> None:
        types = types_of(type(self))
        for one in options_of(self):
            object.__setattr__(self, one.name, _value(one, types[one.name], getattr(self, one.name)))

    def inputs(self) -> dict[str, Any]:
        """Return every option by name, in plain values, arguments first."""
        ordered = sorted(options_of(self), key=lambda one: not option_of(one).is_argument)
        return {one.name: _plain(getattr(self, one.name)) for one in ordered}

    def changed(self, *names: str) -> list[str]:
        """Return those of the fields that do not have their defaults."""
        types, own = types_of(type(self)), {one.name: one for one in options_of(self)}
        defaults = {name: _value(own[name], types[name], _default(own[name])) for name in names}
        return [name for name in names if getattr(self, name) != defaults[name]]


def _value(one: "Field[Any]", hint: Any, given: Any) -> Any:
    """Return the value of a field, parsed where it is text."""
    how, kinds = option_of(one), get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if how.repeats and isinstance(given, str):
        given = [given]
    if how.parse and (_is_texts(given) if how.repeats else isinstance(given, str)):
        return _parser(how.parse)(given)
    if Path in kinds and isinstance(given, str):
        return Path(given)
    if all(kind in _CHECKS for kind in kinds) and not any(_CHECKS[kind][1](given) for kind in kinds):
        allowed = " or ".join(_CHECKS[kind][0] for kind in kinds)
        raise QuestionError(f"`{one.name}` {shown(given)}; write {allowed}")
    if how.minimum is not None and isinstance(given, int) and given < how.minimum:
        raise QuestionError(f"`{one.name}` {given}; write {how.minimum} or more")
    if how.maximum is not None and isinstance(given, int) and given > how.maximum:
        raise QuestionError(f"`{one.name}` {given}; write {how.maximum} or less")
    return given


def _plain(value: Any) -> Any:
    """Return a value as JSON holds it: text for what has no plain form."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _default(one: "Field[Any]") -> Any:
    return one.default if one.default_factory is MISSING else one.default_factory()


def _parser(parse: Callable[[Any], Any] | str) -> Callable[[Any], Any]:
    if not isinstance(parse, str):
        return parse
    module, _, name = PARSERS[parse].partition(":")
    registered: Callable[[Any], Any] = getattr(import_module(module), name)
    return registered


def _is_texts(given: Any) -> bool:
    return isinstance(given, list | tuple) and all(isinstance(one, str) for one in given)


def _is_number(given: Any) -> bool:
    return isinstance(given, int | float) and not isinstance(given, bool)


_CHECKS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    bool: ("True or False", lambda given: isinstance(given, bool)),
    int: ("a whole number", lambda given: isinstance(given, int) and not isinstance(given, bool)),
    float: ("a number", _is_number),
    str: ("text", lambda given: isinstance(given, str)),
    NoneType: ("None", lambda given: given is None),
}
"""What people are told to write for a type, and whether a value has it."""
