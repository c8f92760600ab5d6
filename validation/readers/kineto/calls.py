"""The call of each communication kernel: its kind, sizes, group, in any of PyTorch's formats.

From PyTorch 2.2 on ``record_param_comms``, and the kernel that it launched, have the sizes in their
arguments. Before, the shapes of the tensors are on the operators around the launch, if shapes were recorded:
on ``nccl:all_reduce`` the input, on ``c10d::alltoall_base_`` the output and the input. Calls that launched no
kernel are found too.
"""

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ringside.validation.readers.kineto.events import (
    RECORD,
    WIDTHS,
    Events,
    KernelLaunch,
    TraceEvent,
    annotated,
    dtype_of,
    kind_of,
)
from ringside.validation.readers.kineto.files import TracePlace
from ringside.validation.readers.kineto.trace import BATCH, MESSAGES, TracedGroup, TraceError

_PAIRED = re.compile(r"_base_?$|_tensor|_single")
"""Operators of c10d that take the output first, then the input."""

_MOST = 2**62
_MOST_RANKS = 2**24


class CallFacts(NamedTuple):
    """The known properties of a call; ``name`` is the trace's own."""

    name: str
    kind: str | None
    in_bytes: int | None = None
    out_bytes: int | None = None
    dtype: str | None = None
    group: TracedGroup = TracedGroup()
    sequence: int | None = None
    identity: str | None = None
    peer: int | None = None
    is_uneven: bool = False
    backend: str | None = None
    rank: int | None = None


def from_args(args: dict[str, Any], place: TracePlace) -> CallFacts | None:
    """Parse the arguments of a kernel, or of ``record_param_comms``; ``None`` without any."""
    name = args.get("Collective name")
    if not isinstance(name, str):
        return None
    kind = kind_of(name)
    dtype = dtype_of(str(args.get("dtype", "")))
    width = WIDTHS[dtype] if dtype else None
    sizes = [_count(args, key, place) for key in ("In msg nelems", "Out msg nelems")]
    given, got = [None if n is None or width is None else n * width for n in sizes]
    splits = [_numbers(args.get(f"{way} split size")) for way in ("In", "Out")]
    uneven = any(len(set(some)) > 1 for some in splits if some)
    group = _group(args, place)
    rank = _count(args, "Rank", place)
    peer = None
    if kind in ("send", "recv"):
        # for a message, Rank is its other end
        peer, rank = _count(args, "Dst Rank" if kind == "send" else "Src Rank", place), None
    elif rank is not None:
        rank = group.ranks[rank] if group.ranks and rank < len(group.ranks) else None
    identity = args.get("Comms Id")
    return CallFacts(
        name, kind, given, got, dtype, group, _count(args, "Seq", place),
        None if identity is None else str(identity), peer, uneven, rank=rank,
    )  # fmt: skip


def from_operators(events: Sequence[TraceEvent], size: int | None) -> CallFacts | None:
    """Parse the operators around a launch; ``size`` is the group's number of ranks, if known.

    Raise `TraceError` with the place for invalid shapes.
    """
    for event in events:
        if event.name == RECORD and (call := from_args(event.args, event.place)):
            return call
    name, kind, backend, dtype = "", None, None, None
    given = got = None
    for event in events:
        shapes, types = _shapes(event)
        if annotation := annotated(event.name):
            backend, name = annotation[0], annotation[1]
            kind = kind_of(name)
            given, dtype = _bytes(shapes, types)
        elif event.name.startswith("c10d::"):
            word = event.name.removeprefix("c10d::")
            kind = kind or kind_of(word)
            name = name or word
            if _PAIRED.search(word) and len(shapes) > 1:
                got, dtype = _bytes(shapes[:1], types[:1])
                given = _bytes(shapes[1:2], types[1:2])[0] if given is None else given
        elif event.name == RECORD and given is None and shapes:
            given, dtype = _bytes(shapes[:1], types[:1])
    if not name:
        return None
    given, got = _both(kind, given, got, size)
    return CallFacts(name, kind, given, got, dtype, backend=backend)


def _both(
    kind: str | None, given: int | None, got: int | None, size: int | None
) -> tuple[int | None, int | None]:
    """Return input and output sizes, one from the other where the kind defines it."""
    if kind in ("all_reduce", "broadcast", "reduce", "barrier", "send", "recv"):
        return given, given if got is None else got
    if size and given is not None and got is None:
        got = {"all_gather": given * size, "reduce_scatter": given // size}.get(kind or "")
    return given, got


def _bytes(shapes: Sequence[Any], types: Sequence[Any]) -> tuple[int | None, str | None]:
    """Return the bytes of all tensors with these shapes, and their type; None if one is unknown."""
    total, dtype = 0, None
    for shape, word in zip(shapes, types, strict=False):
        dtype = dtype_of(str(word))
        if dtype is None or not shape:
            return None, dtype
        for dims in shape if isinstance(shape[0], list) else [shape]:
            total += math.prod(dims) * WIDTHS[dtype]
    return (total, dtype) if shapes and types else (None, None)


def _shapes(event: TraceEvent) -> tuple[list[Any], list[Any]]:
    shapes = event.args.get("Input Dims", event.args.get("Input dims", []))
    types = event.args.get("Input type", [])
    if not isinstance(shapes, list) or not isinstance(types, list):
        raise TraceError(f"{event.place}: shapes of inputs that are not a list")
    for shape in shapes:
        for dims in shape if isinstance(shape, list) and shape and isinstance(shape[0], list) else [shape]:
            if not isinstance(dims, list) or any(
                isinstance(n, bool) or not isinstance(n, int) or not 0 <= n < _MOST for n in dims
            ):
                raise TraceError(f"{event.place}: {str(dims)[:60]} is not a tensor's shape")
    return shapes, types


def _group(args: dict[str, Any], place: TracePlace) -> TracedGroup:
    size = _count(args, "Group size", place)
    texts = [args.get(f"Process Group {what}") for what in ("Name", "Description")]
    ranks = ranks_of(args.get("Process Group Ranks"))
    if ranks is None and size and size < _MOST_RANKS:
        # PyTorch truncates a long list; its first rank and stride, if present, define it too
        first, stride = args.get("Global rank start"), args.get("Global rank stride")
        if isinstance(first, int) and isinstance(stride, int) and first >= 0 and stride > 0:
            ranks = tuple(range(first, first + size * stride, stride))
    if ranks and size is not None and len(ranks) != size:
        ranks = None
    name, description = [text if isinstance(text, str) and text else None for text in texts]
    return TracedGroup(name, description, size, ranks or None)


def _count(args: dict[str, Any], key: str, place: TracePlace) -> int | None:
    value = args.get(key)
    if value is None or value == -1:
        return None
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST:
        raise TraceError(f"{place}: {key!r} is {str(value)[:40]!r}; expected a whole number, 0 or more")
    return value


def ranks_of(value: Any) -> tuple[int, ...] | None:
    """Parse the ranks of a group from a list or its text; ``None`` if they are invalid."""
    numbers = _numbers(value)
    return numbers if numbers and min(numbers) >= 0 and len(set(numbers)) == len(numbers) else None


def _numbers(value: Any) -> tuple[int, ...] | None:
    """Parse a list of numbers, or its text as PyTorch writes it; ``None`` if truncated or not a list."""
    if isinstance(value, str):
        if "..." in value or not value.startswith("["):
            return None
        parts = [part.strip() for part in value.strip("[]").split(",")]
        if not all(part.isdecimal() for part in parts if part):
            return None
        return tuple(int(part) for part in parts if part)
    if isinstance(value, list) and all(isinstance(one, int) for one in value):
        return tuple(value)
    return None


_DEPTH = 32
"""The maximum number of nested or overlapping calls."""

_SILENT = ("init", "wait")
"""Calls that move no data."""

ON_DEVICE = ("nccl", "xccl")
"""The backends whose collectives kernels carry out, as annotations have them."""


class Calls:
    """The communication calls of a trace, by thread and by External id."""

    def __init__(self, events: Events) -> None:
        self._launches = events.launches
        self._by_thread: dict[Any, list[TraceEvent]] = defaultdict(list)
        self._by_id: dict[Any, list[TraceEvent]] = defaultdict(list)
        for call in sorted(events.calls, key=lambda call: (call.begin, -call.end)):
            if call.args.get("Collective name") in _SILENT:
                continue
            self._by_thread[call.thread].append(call)
            if (number := external_id(call)) is not None:
                self._by_id[number].append(call)
        self._begins = {thread: [call.begin for call in own] for thread, own in self._by_thread.items()}
        self._took: Counter[int] = Counter()
        launches = [launch for kernel in events.kernels if (launch := self.launch(kernel))]
        self._launched = {id(call) for launch in launches for call in self.around(launch)}
        self._moments: dict[Any, list[float]] = defaultdict(list)
        """When each thread launched communication kernels."""
        for launch in sorted(launches, key=lambda launch: launch.at):
            self._moments[launch.thread].append(launch.at)

    def around(self, launch: KernelLaunch) -> list[TraceEvent]:
        """Return the calls in progress at a launch, the outermost first."""
        own = self._by_thread.get(launch.thread, [])
        last = bisect_right(self._begins.get(launch.thread, []), launch.at)
        return [call for call in own[max(0, last - _DEPTH) : last] if launch.at <= call.end]

    def of(self, kernel: TraceEvent) -> tuple[CallFacts | None, str]:
        """Return the known properties of a kernel from its arguments or its calls, and their source."""
        call = from_args(kernel.args, kernel.place)
        launch = self.launch(kernel)
        around = self.around(launch) if launch else []
        if not around and (number := external_id(kernel)) != str(kernel.args.get("correlation")):
            around = self._by_id.get(number or "", [])
        if around:
            self._took[id(around[0])] += 1
        if call:
            return call, "args"
        if launch and "Graph" in launch.name:
            return None, "launched by a graph, which names no operator"
        call = from_operators(around, None)
        if call is None or call.kind is None:  # such as nccl:coalesced, at the end of a group call
            call = (self._group_call(launch) if launch else None) or call
        if call:
            return call, "operator"
        return None, "its operator is not in the trace" if launch else "launched outside of the trace"

    def launch(self, kernel: TraceEvent) -> KernelLaunch | None:
        """Return the launch of a kernel on the host, if the trace has it."""
        correlation = kernel.args.get("correlation")
        return self._launches.get(correlation if isinstance(correlation, int | str) else str(correlation))

    def outermost(self) -> Iterator[tuple[TraceEvent, list[TraceEvent]]]:
        """Yield each outermost call, with all calls inside it."""
        for own in self._by_thread.values():
            inside: list[TraceEvent] = []
            for call in own:
                if inside and call.begin <= inside[0].end:
                    inside.append(call)
                    continue
                if inside:
                    yield inside[0], inside
                inside = [call]
            if inside:
                yield inside[0], inside

    def shared(self) -> int:
        """Return the number of calls that launched several kernels."""
        return sum(count > 1 for count in self._took.values())

    def _group_call(self, launch: KernelLaunch) -> CallFacts | None:
        """Return the content of a kernel that was launched at the end of a group call.

        That is all the thread's calls since its last launch, which launched nothing.
        """
        own = self._by_thread.get(launch.thread, [])
        moments = self._moments[launch.thread]
        before = bisect_left(moments, launch.at)
        first = bisect_right(own, moments[before - 1], key=lambda call: call.begin) if before else 0
        last = bisect_right(own, launch.at, key=lambda call: call.begin)
        parts = [call for call in own[first:last] if call.name == RECORD and id(call) not in self._launched]
        calls = [inner for call in parts if (inner := from_args(call.args, call.place))]
        return _together(calls) if calls else None


def _together(parts: Sequence[CallFacts]) -> CallFacts:
    kinds = {part.kind for part in parts}
    first = parts[0]
    if kinds <= set(MESSAGES):
        kind = first.kind if len(kinds) == 1 else BATCH
        given = [part.in_bytes for part in parts if part.kind == "send"]
        got = [part.out_bytes for part in parts if part.kind == "recv"]
    else:
        kind = first.kind if len(kinds) == 1 else None
        given, got = [part.in_bytes for part in parts], [part.out_bytes for part in parts]
    peers = {part.peer for part in parts}
    return first._replace(
        name=f"{len(parts)} in a group call" if len(parts) > 1 else first.name,
        kind=kind,
        in_bytes=_sum(given),
        out_bytes=_sum(got),
        peer=peers.pop() if len(peers) == 1 else None,
    )


def _sum(sizes: Sequence[int | None]) -> int | None:
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


def external_id(event: TraceEvent) -> str | None:
    """Return the id of the operator that an event belongs to."""
    number = event.args.get("External id", event.args.get("external id"))
    return None if number is None else str(number)


def facts_of_host(inside: Sequence[TraceEvent]) -> tuple[CallFacts | None, str]:
    """Return the known properties of a call that the host carries out, or that has no kernel."""
    call = from_operators(inside, None)
    if call is None:
        return None, "its operator names neither kind nor size"
    unsized = call.in_bytes is None and call.out_bytes is None
    return call, "shapes were not recorded: profile with record_shapes=True" if unsized else "operator"


def is_host_backend(call: TraceEvent) -> bool:
    """Return whether an annotation is that of a collective on the host, such as Gloo's."""
    operation = annotated(call.name)
    return operation is not None and operation[0] not in ON_DEVICE
