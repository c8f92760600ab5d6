"""Stream a trace's JSON event by event: a file of gigabytes has millions, and few are kept.

The standard library's decoder reads one value at a time, so the place of an error is known.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringside.validation.readers.kineto.trace import TraceError

_DECODER = json.JSONDecoder(strict=False)
_BLANK = re.compile(r"[ \t\n\r]*")


class TracePlace:
    """A place in a file, computed only on demand."""

    __slots__ = ("at", "number", "path", "text")

    def __init__(self, path: Path, text: str, at: int = 0, number: int = 0) -> None:
        self.path, self.text, self.at, self.number = path, text, at, number

    def kept(self) -> "TracePlace":
        """Return a copy that does not advance with this one."""
        return TracePlace(self.path, self.text, self.at, self.number)

    def __str__(self) -> str:
        line = self.text.count("\n", 0, self.at) + 1
        event = f", event {self.number}" if self.number else ""
        return f"{self.path}, line {line}, character {self.at + 1}{event}"


def read_json(path: Path, text: str, take: Callable[[Any, TracePlace], None]) -> dict[str, Any]:
    """Call ``take`` with each of ``traceEvents``, in order; return all other members.

    A bare array of events, which the Chrome trace format allows, has no others. Raise `TraceError` with the
    place of invalid JSON.
    """
    place = TracePlace(path, text)
    try:
        head = _read(place, take)
    except json.JSONDecodeError as error:
        place.at = error.pos
        raise TraceError(f"{place}: broken or cut off JSON: {error.msg}; record or copy it again") from None
    except RecursionError:
        raise TraceError(f"{place}: JSON nested too deep; not a trace of the PyTorch profiler") from None
    except ValueError as error:
        if isinstance(error, TraceError):
            raise
        raise TraceError(f"{place}: a number out of range: {error}") from None
    return head


def _read(place: TracePlace, take: Callable[[Any, TracePlace], None]) -> dict[str, Any]:
    text = place.text
    at = _skip(text, 0)
    head: dict[str, Any] = {}
    if text[at : at + 1] == "[":
        at = _events(place, at, take)
    elif text[at : at + 1] == "{":
        at = _object(place, at, head, take)
    else:
        raise TraceError(f"{place.path}: not a JSON object; expected one with 'traceEvents'")
    if at < len(text):
        raise json.JSONDecodeError("something after the end", text, at)
    return head


def _object(place: TracePlace, at: int, head: dict[str, Any], take: Callable[[Any, TracePlace], None]) -> int:
    text = place.text
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        key, at = _DECODER.raw_decode(text, at)
        if not isinstance(key, str):
            raise json.JSONDecodeError("a key that is not a string", text, at)
        at = _skip(text, _expect(text, at, ":"))
        place.at = at
        if key == "traceEvents":
            if text[at : at + 1] != "[":
                raise TraceError(f"{place}: 'traceEvents' is not an array")
            head[key] = None
            at = _events(place, at, take)
        else:
            head[key], at = _DECODER.raw_decode(text, at)
            at = _skip(text, at)
        at = _next(text, at, "}")
    return _skip(text, at + 1)


def _events(place: TracePlace, at: int, take: Callable[[Any, TracePlace], None]) -> int:
    text, decode, skip = place.text, _DECODER.raw_decode, _BLANK.match
    at = _skip(text, at + 1)
    number = 0
    while text[at : at + 1] != "]":
        number += 1
        place.at, place.number = at, number
        event, at = decode(text, at)
        take(event, place)
        # inlined _next: the loop runs once for each of a million events
        at = skip(text, at).end()  # type: ignore[union-attr]
        if text[at : at + 1] == ",":
            at = skip(text, at + 1).end()  # type: ignore[union-attr]
            if text[at : at + 1] != "]":
                continue
            raise json.JSONDecodeError("a comma before the end", text, at)
        if text[at : at + 1] != "]":
            raise json.JSONDecodeError("expected , or ]", text, at)
    place.number = 0
    return _skip(text, at + 1)


def _next(text: str, at: int, end: str) -> int:
    """Return the position of the next member, or of the object's end."""
    at = _skip(text, at)
    if text[at : at + 1] == end:
        return at
    at = _skip(text, _expect(text, at, ","))
    if text[at : at + 1] == end:
        raise json.JSONDecodeError("a comma before the end", text, at)
    return at


def _expect(text: str, at: int, sign: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] != sign:
        raise json.JSONDecodeError(f"expected {sign}", text, at)
    return at + 1


def _skip(text: str, at: int) -> int:
    return _BLANK.match(text, at).end()  # type: ignore[union-attr]
