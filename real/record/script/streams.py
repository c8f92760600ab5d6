"""Streams and events of the device, as ``torch.cuda`` has them: what they order is on the tape."""

from typing import Any

import torch

from ringside.real.record.script.tape import TAPE, Line

_streams: dict[str, "Stream"] = {}


def current_stream(*_: Any) -> "Stream":
    """Return the stream on which the host posts."""
    return _of(TAPE.current)


def default_stream(*_: Any) -> "Stream":
    """Return the stream on which a program begins."""
    return _of(TAPE.default)


def set_stream(stream: "Stream") -> None:
    """Post on this stream from now on."""
    TAPE.current = stream.line


def synchronize(*_: Any) -> None:
    """Have the host wait for all streams."""
    TAPE.wait("synchronize", TAPE.reached())


def _of(line: Line) -> "Stream":
    return _streams.get(line.name) or Stream(_line=line)


class Stream:
    """A stream of the device, a lane of its own."""

    def __init__(self, device: Any = None, priority: int = 0, *, _line: Line | None = None, **_: Any) -> None:
        self.line = _line or TAPE.new_stream()
        _streams[self.line.name] = self
        self.priority = priority
        self.device_index = torch.cuda.current_device()
        self.device = torch.device("cuda", self.device_index)
        self.device_type = 1
        self.stream_id = self.cuda_stream = self.native_handle = len(_streams) - 1

    def wait_stream(self, stream: "Stream") -> None:
        """Have what comes next wait for all that is on the other stream."""
        self.line.pending |= stream.line.reached()

    def wait_event(self, event: "Event") -> None:
        """Have what comes next wait for an event."""
        self.line.pending |= event.entries

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Return an event of what is on the stream now."""
        event = event or Event()
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Have the host wait for the stream."""
        TAPE.wait("stream.synchronize", self.line.reached())

    def query(self) -> bool:
        """Return that all is done."""
        return True

    def is_capturing(self) -> bool:
        """Return that no graph is captured."""
        return False

    def __enter__(self) -> "Stream":
        self._before = TAPE.current
        TAPE.current = self.line
        return self

    def __exit__(self, *_: Any) -> None:
        TAPE.current = self._before

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other.line is self.line

    def __hash__(self) -> int:
        return hash(self.line.name)


class Event:
    """A point on a stream."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.entries: set[int] = set()
        self.event_id = 0

    def record(self, stream: Stream | None = None) -> None:
        """Be the point that a stream, the current one by default, has reached."""
        self.entries = (stream.line if stream else TAPE.current).reached()

    def wait(self, stream: Stream | None = None) -> None:
        """Have what comes next on a stream wait for the point."""
        (stream.line if stream else TAPE.current).pending |= self.entries

    def synchronize(self) -> None:
        """Have the host wait for the point."""
        TAPE.wait("event.synchronize", self.entries)

    def query(self) -> bool:
        """Return that the point is passed."""
        return True

    def elapsed_time(self, other: "Event") -> float:
        """Return milliseconds to another event: 1, as nothing runs."""
        return 1.0


class StreamContext:
    """``torch.cuda.stream``: post on a stream within a block; on the current one if it is None."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._before: list[Line] = []

    def __enter__(self) -> None:
        self._before.append(TAPE.current)
        if self.stream is not None:
            TAPE.current = self.stream.line

    def __exit__(self, *_: Any) -> None:
        TAPE.current = self._before.pop()
