"""A question is a frozen dataclass; its fields are its options on the command line and in Python.

Beside it are the fields that also questions for a real run share: sizes, counts of machines, and a cluster's
settings.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from ringside.topologies.catalogue import parse_settings, split
from ringside.topologies.units import format_size, parse_size, shown

_KEY = "option"

PARSERS: dict[str, str] = {}
"""Parsers of other rooms by name, as ``module:function``; only `ringside.options` registers them."""


class QuestionError(ValueError):
    """A field has an invalid value; the message names fields in backticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """How a field is written as an option.

    ``flags`` are the command line's names, ``--FIELD`` where empty. ``parse`` turns text into the value; a
    string names one of `PARSERS`. ``default_text`` describes a default of None. An option that ``repeats`` is
    parsed from a list of texts. ``completions`` are offered by the shell.
    """

    help: str
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    default_text: str | None = None
    parse: Callable[[Any], Any] | str | None = None
    minimum: float | None = None
    maximum: float | None = None
    repeats: bool = False
    is_argument: bool = False
    completions: tuple[str, ...] = ()


def option(help: str, *flags: str, default: Any = MISSING, factory: Any = MISSING, **settings: Any) -> Any:
    """Define a field that is an option; see `Option`."""
    metadata = {_KEY: Option(help=help, flags=flags, **settings)}
    return field(default=default, default_factory=factory, metadata=metadata)


def argument(help: str, **settings: Any) -> Any:
    """Define a required field without a flag on the command line."""
    return option(help, is_argument=True, **settings)


def choices(names: Iterable[str]) -> str:
    """Return a metavar that lists the allowed values."""
    return "|".join(names)


def option_of(one: "Field[Any]") -> Option:
    """Return a field's option."""
    written: Option = one.metadata[_KEY]
    return written


def options_of(question: "Question | type[Question]") -> list["Field[Any]"]:
    """Return the fields that are options; the others follow from these."""
    return [one for one in fields(question) if _KEY in one.metadata]


def types_of(question: "type[Question]") -> dict[str, Any]:
    """Return the type of each field."""
    if question not in _TYPES:
        _TYPES[question] = get_type_hints(question)
    return _TYPES[question]


_TYPES: dict[type, dict[str, Any]] = {}


@dataclass(frozen=True, kw_only=True)
class Question:
    """The base of all questions; each has ``ask``, which returns an `Answer` of ``answer.py``.

    Text is parsed and every value checked at construction. Raise QuestionError for invalid values.
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
        """Return the fields that differ from their defaults."""
        types, own = types_of(type(self)), {one.name: one for one in options_of(self)}
        defaults = {name: _value(own[name], types[name], _default(own[name])) for name in names}
        return [name for name in names if getattr(self, name) != defaults[name]]


def _value(one: "Field[Any]", hint: Any, given: Any) -> Any:
    """Return the value of a field, parsed from text."""
    how, kinds = option_of(one), get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if tuple[int, ...] in kinds and given is not None:
        return _whole_numbers(one, given)
    if how.repeats and isinstance(given, str):
        given = [given]
    if how.parse and (_is_texts(given) if how.repeats else isinstance(given, str)):
        return _within(one, _parser(how.parse)(given))
    if Path in kinds and isinstance(given, str):
        return Path(given)
    if not any(_is_of(given, kind) for kind in kinds):
        allowed = " or ".join(_word_of(kind) for kind in kinds if kind is not NoneType)
        raise QuestionError(f"`{one.name}` {shown(given)}; write {allowed}")
    return _within(one, given)


def _within(one: "Field[Any]", value: Any) -> Any:
    """Return a field's value; raise QuestionError for a number beyond its limits."""
    how = option_of(one)
    if how.minimum is not None and isinstance(value, Real) and not float(value) >= how.minimum:
        raise QuestionError(f"`{one.name}` {value}; write {how.minimum} or more")
    if how.maximum is not None and isinstance(value, Real) and not float(value) <= how.maximum:
        raise QuestionError(f"`{one.name}` {value}; write {how.maximum} or less")
    return value


def _whole_numbers(one: "Field[Any]", given: Any) -> tuple[int, ...]:
    """Return a number, a text, or a list of both, as numbers."""
    how, numbers = option_of(one), list[Any]()
    for item in given if isinstance(given, list | tuple) else [given]:
        numbers += _parser(how.parse)(item) if how.parse and isinstance(item, str) else [item]
    least = how.minimum or 0
    if not numbers or not all(_is_of(number, int) and number >= least for number in numbers):
        raise QuestionError(f"`{one.name}` {given!r}; write whole numbers of {least} or more")
    return tuple(map(int, numbers))


def _plain(value: Any) -> Any:
    """Convert a value for JSON; values without a plain form become text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Real) and not isinstance(value, int):  # NumPy's integers too
        return int(value) if isinstance(value, Integral) else float(value)
    return value if value is None or isinstance(value, int | str) else str(value)


def from_text(question: type[Question], name: str, text: str) -> Any:
    """Convert a field's text from the command line; text that the field itself parses is unchanged."""
    (one,) = (one for one in options_of(question) if one.name == name)
    hint = types_of(question)[name]
    if option_of(one).parse:
        return [text] if option_of(one).repeats else text
    for kind in get_args(hint) if isinstance(hint, UnionType) else (hint,):
        if kind is bool and text.lower() in _BOOLEANS:
            return _BOOLEANS[text.lower()]
        if kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                raise QuestionError(f"`{name}` {text!r}; write {_WORDS[kind]}") from None
    return text


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


def _is_of(given: Any, hint: Any) -> bool:
    """Return whether a value has a type; items of a list or tuple are checked too."""
    if type(given) is hint:
        return bool(given != "")
    kind = get_origin(hint) or hint
    if isinstance(given, bool) or kind is bool:
        return isinstance(given, bool) and kind is bool
    if kind is tuple and Ellipsis not in get_args(hint):
        return isinstance(given, tuple) and len(given) == 2 and all(_is_of(one, float) for one in given)
    if kind in (tuple, Sequence):
        element, *_ = get_args(hint) or (object,)
        return isinstance(given, list | tuple) and all(_is_of(one, element) for one in given)
    return isinstance(given, _NUMBERS.get(kind, kind)) and not (kind is str and given == "")


def _word_of(hint: Any) -> str:
    kind = get_origin(hint) or hint
    if kind is tuple and Ellipsis in get_args(hint):
        kind = Sequence
    return _WORDS.get(kind, f"a {kind.__name__}")


_WORDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text that is not empty",
    tuple: "a pair of numbers",
    Mapping: "a mapping of names to values",
    Sequence: "a list",
}
"""The description of each type in error messages."""

_BOOLEANS = {"yes": True, "true": True, "no": False, "false": False}

_NUMBERS: dict[type, type] = {int: Integral, float: Real}
"""The number types accepted for a type, NumPy's included."""


def settings_option() -> Any:
    """Define a field of a cluster's changed settings."""
    return option(
        "Change a figure or fabric: nic=25GB/s, latency=5us, fabric=torus; repeat for more.",
        "--set", "--settings", metavar="KEY=VALUE", factory=dict, parse=parse_settings, repeats=True,
    )  # fmt: skip


def _parse_sizes(text: str) -> tuple[int, ...]:
    return tuple(map(parse_size, text.split(",")))


def parse_counts(text: str) -> tuple[int, ...]:
    """Parse the distinct counts of ``1,2,4,8``; raise ValueError for any other text."""
    counts = text.split(",")
    if not all(count.isdecimal() and int(count) > 0 for count in counts):
        raise ValueError(f"{text!r} are not node counts; write for example 1,2,4,8")
    return tuple(dict.fromkeys(map(int, counts)))


def without_count(cluster: str, nodes: tuple[int, ...] | None) -> str:
    """Return the cluster's name without its count; raise ValueError if ``nodes`` differ."""
    name, count = split(cluster)
    if None not in (count, nodes) and (count,) != nodes:
        counts = ",".join(map(str, nodes or ()))
        raise ValueError(f"{cluster} and --nodes {counts} have different counts; remove one of them")
    return name


@dataclass(frozen=True, kw_only=True)
class BySize(Question):
    """Sizes in bytes: a list, or a series from ``begin`` to ``end`` by ``factor``; ``sizes`` has all."""

    begin: int = option(
        "Smallest size.", "-b", "--begin", metavar="SIZE", default="8", parse=parse_size, minimum=0
    )
    end: int = option(
        "Largest size.", "-e", "--end", metavar="SIZE", default="128M", parse=parse_size, minimum=0
    )
    factor: int = option(
        "Factor between sizes, 2 or more.", "-f", "--factor", metavar="FACTOR", default=2, minimum=2
    )
    size: tuple[int, ...] | None = option(
        "One size or several, instead of -b, -e and -f.",
        metavar="SIZE,...", default=None, parse=_parse_sizes,
    )  # fmt: skip
    sizes: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size is not None and self.changed("begin", "end", "factor"):
            raise QuestionError(
                "`size` is a list, `begin`, `end` and `factor` are a series; remove one of them"
            )
        if self.begin > self.end:
            raise QuestionError(
                f"`begin` {format_size(self.begin)} is more than `end` {format_size(self.end)}; "
                "write the smaller size first"
            )
        if self.begin < 1:
            raise QuestionError(f"`begin` {self.begin} cannot grow; write `begin` 1 or more, or `size` 0")
        sizes = self._series() if self.size is None else list(self.size)
        object.__setattr__(self, "sizes", sizes)

    def _series(self) -> list[int]:
        sizes = [self.begin]
        while sizes[-1] * self.factor <= self.end:
            sizes.append(sizes[-1] * self.factor)
        return sizes
