"""The events of a trace by role: kernels, launches, communication calls, steps; and the names in them.

Kineto's categories have changed: PyTorch 1.8 wrote ``Kernel``, ``Runtime`` and ``Operator``. Names are
PyTorch's, NCCL's and Gloo's of kinds of communication and of data types.
"""

import math
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ringside.sim.collective import ITEMSIZE
from ringside.validation.readers.kineto.files import TracePlace
from ringside.validation.readers.kineto.trace import UNTOLD, TraceError

WIDTHS = {
    **ITEMSIZE,
    **dict.fromkeys(("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"), 1),
    **{"uint16": 2, "uint32": 4, "uint64": 8, "complex32": 4},
}
"""Bytes per element of PyTorch's communicated types."""

_KINDS = {
    "sendrecv": UNTOLD,
    "barrier": "barrier",
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv",
}
"""Parts of names without underscores, the more specific first."""

_TYPES = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16",
    "int": "int32", "long": "int64", "longint": "int64", "longlong": "int64", "short": "int16",
    "char": "int8", "signedchar": "int8", "byte": "uint8", "unsignedchar": "uint8", "bool": "bool",
    "complexfloat": "complex64", "complexdouble": "complex128",
    "complexhalf": "complex32",
    "complex<float>": "complex64", "complex<double>": "complex128",
    "float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2",
}  # fmt: skip
"""Types by c10::ScalarType's name, or C++'s, without underscores and blanks."""

_KERNEL = re.compile(r"^(?:void\s+)?\w*?(?:nccl|rccl|msccl)\w*", re.IGNORECASE)
_ANNOTATION = re.compile(r"^(nccl|gloo|mpi|ucc|xccl):(\w+)$")


def kind_of(name: str) -> str | None:
    """Return the kind of communication that a name denotes; ``None`` for others, such as ``Generic``."""
    bare = name.lower().replace("_", "")
    return next((kind for word, kind in _KINDS.items() if word in bare), None)


def kernel_kind(name: str) -> str | None:
    """Return the kind of an NCCL kernel by its name, without the arguments after the first bracket."""
    return kind_of(re.split(r"[(<]", name, maxsplit=1)[0])


def is_communication(name: str) -> bool:
    """Return whether a kernel is one of NCCL, RCCL or MSCCL by its name."""
    return _KERNEL.match(name) is not None


def annotated(name: str) -> tuple[str, str] | None:
    """Parse backend and operation of an annotation such as ``nccl:all_reduce``; ``None`` for others."""
    match = _ANNOTATION.match(name)
    return (match[1], match[2]) if match else None


def dtype_of(word: str) -> str | None:
    """Return PyTorch's name of a type such as ``Float``, ``c10::BFloat16``, ``long int``, or ``None``."""
    bare = word.lower().replace("c10::", "").replace("_", "").replace(" ", "")
    name = _TYPES.get(bare, word.lower())
    return name if name in WIDTHS else None


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
