"""A PyTorch profiler trace of one rank, as plain data; unknown values are ``None``.

Times are seconds from the first event of the file; ``Trace.origin_ns`` is that event's own clock.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

BATCH = "batch"
"""Messages in both directions in one kernel, such as batch_isend_irecv's."""

MESSAGES = ("send", "recv", BATCH)
"""Kinds of communication other than collectives."""

UNTOLD = "sendrecv kernel"
"""NCCL's SendRecv kernel without an operator: an all-to-all, a gather, a scatter or messages."""


class TraceError(ValueError):
    """An unreadable trace, or traces of different jobs; the message says where and why."""


class KernelSpan(NamedTuple):
    """A span of time; ``called_s`` is the host's call for it, if the trace has it."""

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
"""The group of a call without a named group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """One collective, or message, of one rank.

    ``kind`` is one of `ringside.sim.collective.KINDS`, ``barrier``, one of `MESSAGES` or `UNTOLD`; ``name``
    is the trace's own. ``in_bytes`` and ``out_bytes`` are the rank's input and output. ``end_s`` is unknown
    where a trace has only the call. ``sequence`` counts within the group; ``identity`` (``Comms Id``) is the
    same for one collective on all ranks. ``peer`` is the job's rank at a message's other end. ``channels`` is
    the kernel's grid, ``stream`` the GPU's stream or the host's thread. ``source`` is where the size comes
    from: the kernel's ``args``, an ``operator``, or nowhere; ``unknown`` then says why.
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
        """Return the size on this rank, in a group of ``ranks``, by nccl-tests' definition."""
        given, got = self.in_bytes, self.out_bytes
        if self.kind in ("all_gather", "gather"):
            return got if got is not None else given * ranks if given is not None and ranks else None
        if self.kind in ("reduce_scatter", "scatter"):
            return given if given is not None else got * ranks if got is not None and ranks else None
        return got if given is None else given

    @property
    def ranks(self) -> int | None:
        """The number of ranks of its group, where the kind has one part per rank.

        From input and output; None where they are unknown, or parts are uneven.
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
        """From its begin to its end on this rank, including waiting for others."""
        return None if self.end_s is None else self.end_s - self.begin_s


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """One rank's activity while it was profiled.

    ``work`` are the spans in which it computed: kernels and copies of its GPU, or the host's operators
    without a GPU; ``waits`` the times of the host's calls for a wait.
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
    """Groups in the header of the file."""
    steps: tuple[KernelSpan, ...] = ()
    collectives: tuple[Traced, ...] = ()
    work: tuple[KernelSpan, ...] = ()
    waits: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
