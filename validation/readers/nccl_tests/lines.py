"""The lines of an nccl-tests log, with what launchers and NCCL mixed into them taken apart.

mpirun and srun tag each line with its rank. With NCCL_DEBUG NCCL writes its own messages into the
same stream, also into the middle of a row, which then goes on some lines further down.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

RANK = re.compile(
    r"(?:#|\b)\s*Rank\s+(?P<rank>\d{1,9})\s+(?:Group\s+(?P<group>\d{1,9})\s+)?(?:Pid\s+\d+\s+)?on\s+(?P<host>\S+)"
    r"\s+device\s+\d+\s+\[[^\]\n]*\]\s*(?P<gpu>[^\n]*)"
)

_TAG = re.compile(r"\s*(?:\[\d+(?:,\d+)?\](?:<std(?:out|err)>:)?\s?|\d+: )")


@dataclass(frozen=True, slots=True)
class Line:
    """One line: what nccl-tests wrote, and NCCL's message that broke into it, empty if none."""

    number: int
    text: str
    message: str


def lines(text: str) -> Iterator[Line]:
    """The lines of a log, from 1."""
    # a message follows a row's last number without a gap, and a host's name may begin with a digit
    hosts = sorted({match["host"] for match in RANK.finditer(text)}, key=len, reverse=True)
    stamp, host = r"(?:\[[-\d: .]+\] )?", "|".join(map(re.escape, hosts))
    message = re.compile(rf"{stamp}(?:{host}):\d+:\d+ \[\d+\] NCCL ")
    for number, raw in enumerate(text.splitlines(), start=1):
        tag = _TAG.match(raw)
        line = raw[tag.end() :] if tag else raw
        found = message.search(line)
        end = found.start() if found else len(line)
        yield Line(number, line[:end], line[end:])
