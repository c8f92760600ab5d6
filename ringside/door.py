r"""The one door to a terminal: no answer or error message moves the cursor or hides text.

Names in traces, logs and files come from outside. An escape sequence in one could overwrite a verdict, and a
bidirectional override reverse it. Every such character is printed as in JSON, ``\u001b``, so that programs
parse the same text.
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
"""Surrogates, by which Python represents bytes of names that are not UTF-8; no stream accepts them."""

_CONTROL = re.compile(f"[{_C0_AND_C1}{_BIDIRECTIONAL}{_UNSEEN}{_ALONE}]")


def plain(text: str) -> str:
    """Return the text without control characters other than the ends of lines and tabs."""
    return _CONTROL.sub(_spelled, text)


def one_line(text: str) -> str:
    """Return the text without any control character, for a part of a line."""
    return plain(text).replace("\n", r"\u000a").replace("\t", r"\u0009")


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class _Door:
    """A stream that passes text through `plain`; everything else is the stream behind it."""

    def __init__(self, stream: Any) -> None:
        self.behind = stream

    def write(self, text: str) -> int:
        """Write text through `plain`."""
        self.behind.write(plain(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """Write lines through `plain`."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)


@contextmanager
def door() -> Iterator[None]:
    """Route stdout and stderr through the door inside the block."""
    out, err = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream and _Door(stream) for stream in (out, err))
    try:
        yield
    finally:
        sys.stdout, sys.stderr = out, err


def behind(stream: Any) -> Any:
    """Return the stream itself, for bars, which move the cursor; their text must be `plain`."""
    return stream.behind if isinstance(stream, _Door) else stream
