"""The types of a question's options, which are checked in one place."""

from collections.abc import Mapping
from numbers import Integral, Real
from types import UnionType
from typing import Any, get_args, get_origin

NAMES = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text that is not empty",
    tuple: "a pair of numbers",
    Mapping: "a mapping of names to values",
}
"""What an option of a type is, in words."""

NUMBERS: dict[type, type] = {int: Integral, float: Real}
"""The numbers that stand for a type: those of NumPy too."""


def check_types(hints: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Refuse an option whose value is of no type that ``hints`` have for it; None is always right."""
    for name, value in options.items():
        types = _types(hints[name])
        if value is not None and not any(_is_of(value, one) for one in types):
            known = " or ".join(NAMES.get(one, f"a {one.__name__}") for one in types)
            raise ValueError(f"--{name.replace('_', '-')} {value!r}; write {known}")


def _types(hint: Any) -> list[type]:
    """The types of a hint but None, without what they contain."""
    each = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    return [get_origin(one) or one for one in each if one is not type(None)]


def _is_of(value: object, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is tuple:
        return isinstance(value, tuple) and len(value) == 2 and all(_is_of(one, float) for one in value)
    return isinstance(value, NUMBERS.get(kind, kind)) and value != ""
