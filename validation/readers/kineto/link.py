"""Link each communication kernel to the call that launched it, and find calls that launched none."""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from ringside.validation.readers.kineto.calls import CallFacts, from_args, from_operators
from ringside.validation.readers.kineto.events import RECORD, Events, KernelLaunch, TraceEvent
from ringside.validation.readers.kineto.names import annotated
from ringside.validation.readers.kineto.trace import BATCH, MESSAGES

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
