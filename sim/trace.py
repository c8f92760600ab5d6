"""Events of the Chrome trace format, which ui.perfetto.dev opens; its times are in microseconds."""

from typing import Any


def name_event(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    """Return the event that names a process (kind ``process_name``) or its track (``thread_name``)."""
    return {"ph": "M", "pid": process, "tid": track, "name": kind, "args": {"name": name}}


def span_event(process: int, track: int, start: float, end: float, name: str) -> dict[str, Any]:
    """Return the event of a span on one track of a process from ``start`` to ``end``, in seconds."""
    return {
        "ph": "X",
        "pid": process,
        "tid": track,
        "ts": start * 1e6,
        "dur": (end - start) * 1e6,
        "name": name,
    }


def counter_event(process: int, moment: float, name: str, value: float) -> dict[str, Any]:
    """Return the event of a process's counter that has ``value`` from a moment (s) on."""
    return {"ph": "C", "pid": process, "ts": moment * 1e6, "name": name, "args": {name: value}}
