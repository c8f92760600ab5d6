r"""The one door to a terminal: what is printed, answers and errors alike, moves no cursor and hides nothing.

Names in traces, logs and files are written by others. An escape sequence among them could paint over a
verdict, and a bidirectional override turn one round. Every such character leaves as JSON would spell it,
``\u001b``, so that what a program reads is the same.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_C0_AND_C1 = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
_BIDIRECTIONAL = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNSEEN = "\u200b-\u200d\u2028\u2029\u2060-\u2064\u206a-\u206f\ufeff\U000e0000-\U000e007f"
_ALONE = "\ud800-\udfff"
"""Halves of characters, as which Python has the bytes of names that are no UTF-8; no stream takes them."""

_CONTROL = re.compile(f"[{_C0_AND_C1}{_BIDIRECTIONAL}{_UNSEEN}{_ALONE}]")


def plain(text: str) -> str:
    """Text without control characters other than the ends of lines and tabs."""
    return _CONTROL.sub(_spelled, text)


def one_line(text: str) -> str:
    """Text without any, for what stands in a line with others."""
    return plain(text).replace("\n", r"\u000a").replace("\t", r"\u0009")


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _Door:
    """A stream for text that leaves as `plain` has it; in all else it is the stream behind it."""

    def __init__(self, stream: Any) -> None:
        self.behind = stream

    def write(self, text: str) -> int:
        """Write text plainly."""
        self.behind.write(plain(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """Write lines plainly."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


@contextmanager
def door() -> Iterator[None]:
    """While it lasts stdout and stderr are reached by the door alone."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream and _Door(stream) for stream in (out, err))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


def behind(stream: Any) -> Any:
    """The stream itself, for bars, which move the cursor; what they are told must be `plain`."""
    return stream.behind if isinstance(stream, _Door) else stream
