"""The record of one simulated run, and its export for trace viewers."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ringside.sim.trace import name_event, span_event


class TransferSpan(NamedTuple):
    """One transfer: queued at its first link, sent while it keeps that link busy, then delivered."""

    queued: float
    sent: float
    left: float
    delivered: float
    src: int
    dst: int
    channel: int
    chunk: int
    span: int
    nbytes: int
    reduce: bool

    @property
    def label(self) -> str:
        """The transfer's label in a viewer."""
        chunks = (
            f"chunk {self.chunk}" if self.span == 1 else f"chunks {self.chunk}-{self.chunk + self.span - 1}"
        )
        return f"{chunks}: rank {self.src} to {self.dst}{', sum' if self.reduce else ''}"


class LinkSpan(NamedTuple):
    """A link kept busy by one transfer, with its index among the timeline's transfers."""

    start: float
    end: float
    link: int
    transfer: int


@dataclass(frozen=True)
class Timeline:
    """A finished run: times in seconds, links by their number in ``link_names``."""

    name: str
    ranks: int
    link_names: list[str]
    transfers: list[TransferSpan]
    links: list[LinkSpan]
    switches: int = 0
    """Ends beside the ranks, numbered after them."""

    def chrome_trace(self) -> dict[str, Any]:
        """Return the Chrome trace that ui.perfetto.dev opens: a track per rank and per link used.

        Times are in microseconds, the format's unit. A rank's track shows when it puts its sends on the wire;
        a rank that sends on two ports at once gets a second track, and so does a link whose messages
        alternate segment by segment.
        """
        return {
            "displayTimeUnit": "ns",
            "otherData": {"name": self.name},
            "traceEvents": [*self._sends(), *self._busy()],
        }

    def dumps(self) -> str:
        """Return the trace as JSON text, identical for identical runs."""
        return json.dumps(self.chrome_trace(), separators=(",", ":")) + "\n"

    def _sends(self) -> Iterator[dict[str, Any]]:
        yield name_event("process_name", 0, 0, "ranks")
        ends = [f"rank {rank}" for rank in range(self.ranks)]
        ends += [f"switch {switch}" for switch in range(self.switches)]
        for end, name in enumerate(ends):
            yield name_event("thread_name", 0, end, name)
        lanes = _Lanes()
        for sent in sorted(self.transfers, key=lambda t: (t.sent, t)):
            lane, new = lanes.take(sent.src, sent.sent, sent.left)
            track = sent.src + lane * len(ends)
            if lane and new:
                yield name_event("thread_name", 0, track, f"{ends[sent.src]}, port {lane}")
            args = {
                "bytes": sent.nbytes,
                "channel": sent.channel,
                "queued_us": sent.queued * 1e6,
                "delivered_us": sent.delivered * 1e6,
            }
            yield {**span_event(0, track, sent.sent, sent.left, sent.label), "args": args}

    def _busy(self) -> Iterator[dict[str, Any]]:
        yield name_event("process_name", 1, 0, "links")
        lanes = _Lanes()
        for link in sorted({span.link for span in self.links}):
            yield name_event("thread_name", 1, link, self.link_names[link])
        for busy in self.links:
            lane, new = lanes.take(busy.link, busy.start, busy.end)
            track = busy.link + lane * len(self.link_names)
            if lane and new:
                yield name_event("thread_name", 1, track, f"{self.link_names[busy.link]}, lane {lane}")
            yield span_event(1, track, busy.start, busy.end, self.transfers[busy.transfer].label)


class _Lanes:
    """Parallel tracks, one per concurrent span of a rank or a link: viewers nest overlapping spans."""

    def __init__(self) -> None:
        self._ends: dict[int, list[float]] = {}

    def take(self, owner: int, start: float, end: float) -> tuple[int, bool]:
        """Return the owner's first free lane, and whether it is new; spans arrive by their start."""
        ends = self._ends.setdefault(owner, [])
        lane = next((i for i, free in enumerate(ends) if free <= start), len(ends))
        new = lane == len(ends)
        if new:
            ends.append(end)
        else:
            ends[lane] = end
        return lane, new
