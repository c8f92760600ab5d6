"""The events of a trace by role: kernels, launches, communication calls, steps.

Kineto's categories have changed: PyTorch 1.8 wrote ``Kernel``, ``Runtime`` and ``Operator``.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ringside.validation.readers.kineto.names import annotated, is_communication
from ringside.validation.readers.kineto.stream import TracePlace
from ringside.validation.readers.kineto.trace import TraceError

_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
_RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime", "runtime", "privateuse1_runtime"})
_HOST = frozenset({"cpu_op", "operator", "user_annotation"})
KNOWN = _GPU | _RUNTIME | _HOST
"""Categories that identify a trace of the PyTorch profiler."""

_WAITS = re.compile(r"^(cuda|hip)(StreamWaitEvent|(Stream|Event|Device)Synchronize)")
_NANOSECONDS = 1e17
"""A time beyond the year 5000 in microseconds is in nanoseconds."""

_STEP = "ProfilerStep#"
RECORD = "record_param_comms"
"""PyTorch's operator around each communication call, with its sizes in newer releases."""


class TraceEvent(NamedTuple):
    """One complete event; times in microseconds of the file."""

    name: str
    begin: float
    end: float
    thread: tuple[Any, Any]
    args: dict[str, Any]
    place: TracePlace


class KernelLaunch(NamedTuple):
    """A runtime call that started work on a GPU."""

    at: float
    thread: tuple[Any, Any]
    name: str


@dataclass(slots=True)
class Events:
    """The events of a trace about communication and the work beside it."""

    kernels: list[TraceEvent] = field(default_factory=list)
    """Communication kernels."""
    work: list[tuple[float, float, Any, Any]] = field(default_factory=list)
    """Begin, end, correlation and device of all other GPU work."""
    launches: dict[Any, KernelLaunch] = field(default_factory=dict)
    calls: list[TraceEvent] = field(default_factory=list)
    """Operators and annotations of communication, on the host."""
    waits: list[tuple[float, tuple[Any, Any]]] = field(default_factory=list)
    steps: list[TraceEvent] = field(default_factory=list)
    operators: list[tuple[float, float, tuple[Any, Any]]] = field(default_factory=list)
    """All other operators of the host."""
    first: float = math.inf
    known: int = 0
    """The number of events with a category of Kineto's."""

    def take(self, event: Any, place: TracePlace) -> None:
        """Keep the useful fields of one event of the file."""
        if not isinstance(event, dict):
            raise TraceError(f"{place}: an event that is not an object")
        if event.get("ph") != "X":
            return
        category = event.get("cat")
        category = category.lower() if isinstance(category, str) else ""
        if category not in KNOWN:
            return
        self.known += 1
        begin, end = _times(event, place)
        name = event.get("name")
        if not isinstance(name, str):
            raise TraceError(f"{place}: an event without a name")
        self.first = min(self.first, begin)
        args = event.get("args") or {}
        if not isinstance(args, dict):
            raise TraceError(f"{place}: 'args' that are not an object")
        if category in _GPU:
            self._on_gpu(event, name, begin, end, args, place)
        elif category in _RUNTIME:
            self._runtime(event, name, begin, args)
        else:
            self._host(event, category, name, begin, end, args, place)

    def _on_gpu(
        self,
        event: dict[str, Any],
        name: str,
        begin: float,
        end: float,
        args: dict[str, Any],
        place: TracePlace,
    ) -> None:
        if event["cat"].lower() == "kernel" and (is_communication(name) or "Collective name" in args):
            self.kernels.append(TraceEvent(name, begin, end, _thread(event), args, place.kept()))
        else:
            device = args.get("device", event.get("pid"))
            self.work.append((begin, end, _hashable(args.get("correlation")), _hashable(device)))

    def _runtime(self, event: dict[str, Any], name: str, begin: float, args: dict[str, Any]) -> None:
        if _WAITS.match(name):
            self.waits.append((begin, _thread(event)))
        if args.get("correlation") is not None:
            self.launches[_hashable(args["correlation"])] = KernelLaunch(begin, _thread(event), name)

    def _host(
        self,
        event: dict[str, Any],
        category: str,
        name: str,
        begin: float,
        end: float,
        args: dict[str, Any],
        place: TracePlace,
    ) -> None:
        if name.startswith(_STEP):
            self.steps.append(TraceEvent(name, begin, end, _thread(event), args, place.kept()))
        elif name == RECORD and args.get("Collective name") == "wait":
            self.waits.append((begin, _thread(event)))
        elif name == RECORD or name.startswith("c10d::") or annotated(name):
            self.calls.append(TraceEvent(name, begin, end, _thread(event), args, place.kept()))
        elif category != "user_annotation":
            self.operators.append((begin, end, _thread(event)))


def _times(event: dict[str, Any], place: TracePlace) -> tuple[float, float]:
    times = []
    for key in ("ts", "dur"):
        value = event.get(key, 0 if key == "dur" else None)
        try:
            number = value if isinstance(value, int | float) else float(value)  # type: ignore[arg-type]
            sound = not isinstance(value, bool) and math.isfinite(number) and abs(number) < 1e19
        except (TypeError, ValueError, OverflowError):
            sound = False
        if not sound or (key == "dur" and number < 0):
            raise TraceError(f"{place}: {key!r} is {str(value)[:40]!r}; expected microseconds")
        times.append(number)
    if times[0] >= _NANOSECONDS:
        times = [number / 1000 for number in times]
    return times[0], times[0] + times[1]


def _thread(event: dict[str, Any]) -> tuple[Any, Any]:
    return _hashable(event.get("pid")), _hashable(event.get("tid"))


def _hashable(value: Any) -> Any:
    """Return a process, thread or correlation as it is, or as text: some tools write them as strings."""
    return value if isinstance(value, int | str) else str(value)
