"""Parse and format quantities; no other module converts between text and numbers.

Inside Ringside every quantity is a plain SI number: seconds, bytes, bytes per second. Users write
them as nccl-tests and data sheets do: sizes are binary (``25M``, ``25MB`` and ``25MiB`` are all
25 * 2**20 bytes), rates are decimal (``25GB/s`` is 25e9 bytes/s and ``400Gb/s`` is 50e9 bytes/s), and
a link's rate is that of one direction.

    >>> parse_size("25M"), parse_rate("400Gb/s"), parse_duration("5us")
    (26214400, 50000000000.0, 5e-06)
    >>> format_size(26214400), format_rate(50e9), format_duration(5e-6)
    ('25 MiB', '50 GB/s', '5 us')

Every ``format_x`` without ``digits`` is exact: ``parse_x(format_x(value)) == value``. Conversions are
decimal, so prefixes cause no rounding.
"""

import re
import reprlib
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import BeforeValidator

MAX_SIZE = 2**50
"""Bytes. No rank holds a pebibyte, so a larger size is a typing error."""

MIN_RATE, MAX_RATE = 1e-6, 1e18
"""Bytes/s. Beyond this range there are no links, and times would overflow."""

MAX_DURATION = 1e9
"""Seconds, about thirty years."""

_NUMBER = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*([a-zA-Zµμ/]*)\s*")
_MAX_EXPONENT = 30
_BINARY = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50}
_DECIMAL = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12}
_SIZE_UNITS = {
    prefix + suffix: Decimal(2**power)
    for prefix, power in _BINARY.items()
    for suffix in (("", "B", "iB") if prefix else ("", "B"))
}
_RATE_UNITS = {
    f"{prefix}{unit}": Decimal(10) ** power / bits
    for prefix, power in _DECIMAL.items()
    for unit, bits in (("B/s", 1), ("b/s", 8), ("bit/s", 8), ("bps", 8))
}
_AMOUNT_UNITS = {
    prefix: Decimal(10) ** power for prefix, power in (*_DECIMAL.items(), ("B", 9), ("b", 9), ("t", 12))
}
_DURATION_UNITS = {
    unit: Decimal(10) ** power
    for unit, power in (("s", 0), ("ms", -3), ("us", -6), ("µs", -6), ("μs", -6), ("ns", -9), ("ps", -12))
} | {"min": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}


def parse_size(text: str | int) -> int:
    """Parse bytes from text such as ``8``, ``1K``, ``25MiB`` or ``1.5G``; prefixes are powers of two."""
    advice = "write for example 8, 64K, 25MiB or 1G"
    value = _parse(text, "a size", _SIZE_UNITS, advice)
    if value != value.to_integral_value():
        raise ValueError(f"{text!r} is not a whole number of bytes; {advice}")
    if value > MAX_SIZE:
        raise ValueError(f"{text!r} is too large; allowed: up to {format_size(MAX_SIZE)}; {advice}")
    return int(value)


def parse_rate(text: str) -> float:
    """Parse bytes per second from text such as ``25GB/s`` or ``400Gb/s``; prefixes are powers of ten."""
    advice = "write for example 400Gb/s or 50GB/s"
    value = float(_parse(text, "a rate", _RATE_UNITS, advice))
    if value == 0:
        raise ValueError(f"{text!r} is not a rate above 0; {advice}")
    if not MIN_RATE <= value <= MAX_RATE:
        raise ValueError(f"{text!r} is out of range; allowed: {MIN_RATE:g} to {MAX_RATE:g} B/s; {advice}")
    return value


def parse_share(text: str) -> float:
    """Parse a share such as ``10%``; raise ValueError for any other text."""
    try:
        value = float(text.removesuffix("%")) / 100
    except ValueError:
        value = -1.0
    if not text.endswith("%") or not 0 <= value < float("inf"):
        raise ValueError(f"invalid percentage {text!r}; write for example 10%")
    return value


def parse_duration(text: str) -> float:
    """Parse seconds from text such as ``5us``, ``1.5ms``, ``20min``, ``3h`` or ``54d``."""
    advice = "write for example 5us, 1.5ms or 2s"
    value = float(_parse(text, "a duration", _DURATION_UNITS, advice))
    if value > MAX_DURATION:
        raise ValueError(f"{text!r} is too long; allowed: up to {MAX_DURATION:g} s; {advice}")
    return value


def parse_amount(text: str) -> float:
    """Parse a number of tokens or samples such as ``15T``, ``300B`` or ``1e12``; B is 10**9, as G is."""
    return float(_parse(text, "an amount", _AMOUNT_UNITS, "write for example 15T, 300B or 1e12"))


def format_amount(amount: float) -> str:
    """Format a number of tokens or samples as people say it, exactly: ``15T``, ``300B``, ``1.2B``."""
    return _format(amount, (("T", 12), ("B", 9), ("M", 6), ("k", 3), ("", 0)), None).strip().replace(" ", "")


def format_size(nbytes: int, digits: int | None = None) -> str:
    """Format exactly, in the largest binary unit in which two decimals are enough, else in bytes.

    Rounded to ``digits`` significant digits, the largest unit is enough.
    """
    for prefix, power in reversed(_BINARY.items()):
        if prefix and nbytes >= 2**power and (digits is not None or nbytes * 100 % 2**power == 0):
            value = Decimal(nbytes) / 2**power
            return f"{_plain(value if digits is None else Decimal(f'{value:.{digits - 1}e}'))} {prefix}iB"
    return f"{nbytes} B"


def format_rate(bytes_per_s: float, digits: int | None = None) -> str:
    """Format bytes per second with a decimal prefix; exact, or rounded to ``digits`` significant digits."""
    prefixes = (("TB/s", 12), ("GB/s", 9), ("MB/s", 6), ("kB/s", 3), ("B/s", 0))
    return _format(bytes_per_s, prefixes, digits)


def format_duration(seconds: float, digits: int | None = None) -> str:
    """Format seconds with a prefix; exact, or rounded to ``digits`` significant digits."""
    return _format(seconds, (("s", 0), ("ms", -3), ("us", -6), ("ns", -9)), digits)


def format_setting(key: str, value: Any) -> str:
    """Format a setting exactly, so that it parses back: a latency, a rate, a ratio, a count or text."""
    if isinstance(value, float) and key != "oversubscription":
        return format_duration(value) if "latency" in key else format_rate(value)
    return str(value)


def format_span(seconds: float, digits: int = 3) -> str:
    """Format a long duration, rounded, in the customary unit: s, min, h or d."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{float(f'{seconds / length:.{digits}g}'):g} {unit}"
    return format_duration(seconds, digits)


def format_count(count: int, what: str) -> str:
    """Return a count with its noun, such as ``1 rank`` or ``8 ranks``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def shown(given: Any) -> str:
    """Format a given value for an error: text and numbers shortened, anything else by its type.

    A few lines of YAML can mean a list of a billion items.
    """
    plain = given is None or isinstance(given, str | int | float)
    return reprlib.repr(given) if plain else f"a {type(given).__name__}"


def _parse(text: Any, what: str, units: dict[str, Decimal], advice: str) -> Decimal:
    known = isinstance(text, str | int | float) and not isinstance(text, bool)
    match = _NUMBER.fullmatch(str(text)) if known else None
    if match is None or match[2] not in units:
        raise ValueError(f"{shown(text)} is not {what}; {advice}")
    try:
        number = Decimal(match[1])
    except InvalidOperation:
        raise ValueError(f"{text!r} has too large an exponent; {advice}") from None
    if number < 0:
        raise ValueError(f"{text!r} is negative; {advice}")
    if number.adjusted() > _MAX_EXPONENT:
        raise ValueError(f"{text!r} is too large; {advice}")
    return number * units[match[2]]


def _format(value: float, prefixes: tuple[tuple[str, int], ...], digits: int | None) -> str:
    exact = Decimal(repr(float(value)))
    if digits is not None:
        exact = Decimal(f"{value:.{digits - 1}e}")
    for unit, power in prefixes:
        if exact.copy_abs() >= Decimal(10) ** power:
            return f"{_plain(exact.scaleb(-power))} {unit}"
    if not exact:
        return f"0 {prefixes[0][0]}"
    unit, power = prefixes[-1]
    return f"{_plain(exact.scaleb(-power))} {unit}"


def _plain(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


Bytes = Annotated[int, BeforeValidator(parse_size)]
BytesPerSecond = Annotated[float, BeforeValidator(parse_rate)]
Seconds = Annotated[float, BeforeValidator(parse_duration)]
"""Types that name their unit; pydantic parses them from text with a unit in files and command lines."""
