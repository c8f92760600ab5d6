"""What a PyTorch profiler trace tells of one rank, as plain data; what it does not tell is ``None``.

Moments are seconds from the first event of the file; ``Trace.origin_ns`` is that event's own clock.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

BATCH = "batch"
"""Messages both ways in one kernel, as batch_isend_irecv's."""

MESSAGES = ("send", "recv", BATCH)
"""Kinds of communication that are no collectives."""

UNTOLD = "sendrecv kernel"
"""What NCCL's SendRecv kernel did if no operator tells: an all-to-all, a gather, a scatter or messages."""


class TraceError(ValueError):
    """A trace that cannot be read, or traces that do not belong together; the message says where and why."""


class Span(NamedTuple):
    """A stretch of time; ``called_s`` is when the host asked for what filled it, if the trace tells."""

    begin_s: float
    end_s: float
    called_s: float | None = None
    name: str = ""


class TracedGroup(NamedTuple):
    """A process group as a trace names it; ``ranks`` are those of the job."""

    name: str | None = None
    description: str | None = None
    size: int | None = None
    ranks: tuple[int, ...] | None = None


UNNAMED = TracedGroup()
"""The group of a call of which the trace names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One collective, or message, of one rank.

    ``kind`` is one of `ringside.sim.collective.KINDS`, ``barrier``, one of `MESSAGES` or `UNTOLD`; ``name``
    is the trace's own word. ``in_bytes`` and ``out_bytes`` are what the rank puts in and gets. ``end_s`` is
    not known where a trace has only the call. ``sequence`` counts within the group; ``identity`` (``Comms
    Id``) is the same for one collective on all ranks. ``peer`` is the job's rank at a message's other end.
    ``channels`` is the kernel's grid, ``stream`` the GPU's stream or the host's thread. ``source`` says where
    the size stands: the kernel's ``args``, an ``operator``, or nowhere; ``unknown`` then says why.
    """

    kind: str | None
    name: str
    begin_s: float
    end_s: float | None
    called_s: float | None = None
    in_bytes: int | None = None
    out_bytes: int | None = None
    dtype: str | None = None
    group: TracedGroup = UNNAMED
    sequence: int | None = None
    identity: str | None = None
    peer: int | None = None
    is_uneven: bool = False
    stream: str = ""
    channels: int | None = None
    step: str | None = None
    source: str | None = None
    unknown: str = ""

    def nbytes(self, ranks: int | None) -> int | None:
        """nccl-tests' size on this rank, in a group of that size: `ringside.sim.collective.Collective`."""
        given, got = self.in_bytes, self.out_bytes
        if self.kind in ("all_gather", "gather"):
            return got if got is not None else given * ranks if given is not None and ranks else None
        if self.kind in ("reduce_scatter", "scatter"):
            return given if given is not None else got * ranks if got is not None and ranks else None
        return got if given is None else given

    @property
    def ranks(self) -> int | None:
        """How many ranks its group has, where the kind has one part a rank: parts in the whole.

        By what goes in and comes out; None where that is not known, or parts are uneven.
        """
        given, got = self.in_bytes, self.out_bytes
        if self.kind in ("reduce_scatter", "scatter"):
            given, got = got, given
        elif self.kind not in ("all_gather", "gather"):
            return None
        if not given or not got or got % given or self.is_uneven:
            return None
        return got // given

    @property
    def duration_s(self) -> float | None:
        """From its begin to its end on this rank, waiting for others included."""
        return None if self.end_s is None else self.end_s - self.begin_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What one rank did while it was profiled.

    ``work`` are the spans in which it computed: kernels and copies of its GPU, or the host's operators
    where there is no GPU; ``waits`` the moments at which the host asked for somebody to wait.
    """

    path: Path
    rank: int | None
    ranks: int | None = None
    backend: str | None = None
    library_version: str | None = None
    gpu: str | None = None
    gpus: int = 0
    origin_ns: int = 0
    groups: tuple[TracedGroup, ...] = ()
    """Those that the head of the file lists."""
    steps: tuple[Span, ...] = ()
    collectives: tuple[Traced, ...] = ()
    work: tuple[Span, ...] = ()
    waits: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def on_gpu(self) -> bool:
        """Whether its collectives are kernels of a GPU."""
        return self.gpu is not None or any(one.channels is not None for one in self.collectives)
