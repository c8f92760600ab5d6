import contextlib
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.topologies.units import (
    MAX_DURATION,
    MAX_RATE,
    MAX_SIZE,
    MIN_RATE,
    format_count,
    format_duration,
    format_rate,
    format_size,
    parse_duration,
    parse_rate,
    parse_size,
)

rates = st.floats(MIN_RATE, MAX_RATE)
durations = st.floats(1e-15, MAX_DURATION)


@given(st.integers(0, MAX_SIZE))
def test_a_size_survives_its_own_text(nbytes: int) -> None:
    assert parse_size(format_size(nbytes)) == nbytes


@given(rates)
def test_a_rate_survives_its_own_text(bytes_per_s: float) -> None:
    assert parse_rate(format_rate(bytes_per_s)) == bytes_per_s


@given(st.one_of(st.just(0.0), durations))
def test_a_duration_survives_its_own_text(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.floats(1e-5, 1e8), st.integers(1, 12))
def test_rounded_text_is_as_near_as_its_digits(value: float, digits: int) -> None:
    for parse, write in ((parse_rate, format_rate), (parse_duration, format_duration)):
        assert parse(write(value, digits)) == pytest.approx(value, rel=10 ** (1 - digits))


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("0", 0),
        ("8", 8),
        ("8B", 8),
        (" 64K ", 65536),
        ("25M", 25 << 20),
        ("25MB", 25 << 20),
        ("25 MiB", 25 << 20),
        ("1.5G", 3 << 29),
        (".5KiB", 512),
        ("1e3", 1000),
        ("1PiB", MAX_SIZE),
    ],
)
def test_sizes_are_binary(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("25GB/s", 25e9),
        ("400Gb/s", 50e9),
        ("400 Gbit/s", 50e9),
        ("400Gbps", 50e9),
        ("100Mb/s", 12.5e6),
        ("1kB/s", 1e3),
        ("1TB/s", 1e12),
        ("8b/s", 1.0),
    ],
)
def test_rates_are_decimal_and_tell_bits_from_bytes(text: str, bytes_per_s: float) -> None:
    assert parse_rate(text) == bytes_per_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5us", 5e-6),
        ("5µs", 5e-6),
        ("5μs", 5e-6),
        ("1.5ms", 1.5e-3),
        ("2s", 2.0),
        ("600ns", 6e-7),
        ("0s", 0.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


REFUSED: list[tuple[Callable[[str], float], str]] = [
    *((parse_rate, text) for text in ("400G", "25", "0GB/s", "-25GB/s", "25GiB/s", "25 GB / s", "fast", "")),
    *((parse_rate, text) for text in ("nan", "inf", "infGB/s", "25gb/s", "1e400GB/s", "1,5GB/s", "25GB")),
    *((parse_rate, text) for text in ("1e-300B/s", "1e-7B/s", "1e19B/s", "1e29TB/s")),
    *(
        (parse_size, text)
        for text in ("-1", "1.5", "0.3K", "2PiB", "1e99", "25Mb", "25mb", "M", "1 2", "+4k", "")
    ),
    *((parse_size, text) for text in ("nan", "0x10", "1_000", "--5", "5s", "25GB/s", "9" * 5000)),
    *(
        (parse_duration, text)
        for text in ("5", "-5us", "5 minutes", "1e99s", "2e9s", "inf", "us", "5GB/s", "5Us", "")
    ),
]


@pytest.mark.parametrize(("parse", "text"), REFUSED)
def test_what_is_no_quantity_is_refused_with_what_to_write(parse: Callable[[str], float], text: str) -> None:
    with pytest.raises(ValueError, match="write for example"):
        parse(text)


@pytest.mark.parametrize(("parse", "unit"), [(parse_size, "M"), (parse_rate, "GB/s"), (parse_duration, "s")])
@pytest.mark.parametrize("number", ["1e9999999999999999999", "1e-9999999999999999999"])
def test_an_exponent_beyond_all_arithmetic_is_refused_like_any_absurdity(
    parse: Callable[[str], float], unit: str, number: str
) -> None:
    with pytest.raises(ValueError, match="write for example"):
        parse(number + unit)


def test_a_bare_prefix_is_answered_with_both_spellings() -> None:
    with pytest.raises(ValueError, match=r"'400G' is not a rate; write for example 400Gb/s or 50GB/s"):
        parse_rate("400G")


@pytest.mark.parametrize("parse", [parse_size, parse_rate, parse_duration])
@given(text=st.text(max_size=12))
def test_any_text_gives_a_number_or_a_refusal(parse: Callable[[str], float], text: str) -> None:
    value = None
    with contextlib.suppress(ValueError):
        value = parse(text)
    assert value is None or (math.isfinite(value) and value >= 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (format_size(1 << 30), "1 GiB"),
        (format_size(1000), "1000 B"),
        (format_size(0), "0 B"),
        (format_size(8991327744, 4), "8.374 GiB"),
        (format_size(1023, 4), "1023 B"),
        (format_size((1 << 20) - 1, 4), "1024 KiB"),
        (format_rate(50e9), "50 GB/s"),
        (format_rate(48.21e9, 3), "48.2 GB/s"),
        (format_rate(999.9e6, 2), "1 GB/s"),
        (format_duration(85.187e-3), "85.187 ms"),
        (format_duration(0.0), "0 s"),
    ],
)
def test_numbers_are_written_as_the_field_writes_them(text: str, expected: str) -> None:
    assert text == expected


def test_one_of_a_kind_has_no_plural() -> None:
    assert [format_count(count, "rank") for count in (0, 1, 2)] == ["0 ranks", "1 rank", "2 ranks"]
