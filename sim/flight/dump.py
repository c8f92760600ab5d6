"""What one rank's Flight Recorder holds: its last calls, and the groups that it knows.

The keys are those of torch/csrc/distributed/c10d/FlightRecorder.hpp, whose versions 2.0 (PyTorch 2.4) to 2.10
(PyTorch 2.13) only add some.
"""

import re
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt
from pydantic.dataclasses import dataclass

MAX_RANK = 1_000_000

_OF_PYTORCH = re.compile(
    r"-packages/torch/|/torch/(distributed|nn|autograd|optim|utils|_\w+)/|^(<|\?\?|$)|/runpy\.py$"
)
"""Names of files, or of none, in which no call of a user's stands."""

_MESSAGE = re.compile(r"(send|recv) (\d+)(?:->|<-)(\d+)")


def _ranks(value: Any) -> Any:
    """Parse the text ``[0, 1]``, as PyTorch writes the ranks of a group."""
    if isinstance(value, str):
        return [int(one) for one in value.strip("[] ").split(",") if one.strip()]
    return value


def _known(version: str) -> str:
    if not re.fullmatch(r"2\.\d{1,3}", version):
        raise ValueError(
            f"{version[:20]!r} is not read; versions 2.0 and later are, of PyTorch 2.4 and later"
        )
    return version


END_BY_RETIRING = HIDE_MESSAGES = ("gloo",)
"""Libraries whose calls end by being retired; those whose dumps have no sends and receives."""

Sizes = tuple[tuple[NonNegativeInt, ...], ...]
Rank = Annotated[int, Field(ge=0, le=MAX_RANK)]


@dataclass(frozen=True)
class Frame:
    """A line of a stack, innermost first."""

    name: str = ""
    filename: str = ""
    line: int = 0


@dataclass(frozen=True)
class FlightCall:
    """One entry: a collective or message that a rank posted, by its group's name and description.

    Collectives of a group are numbered by ``collective_seq_id``. ``state`` is scheduled, started or
    completed. Gloo never changes it, but ``retired`` is set when a call has ended; NCCL
    retires calls that failed too.
    """

    process_group: tuple[str, str]
    collective_seq_id: NonNegativeInt
    profiling_name: str
    record_id: NonNegativeInt = 0
    p2p_seq_id: NonNegativeInt = 0
    input_sizes: Sizes = ()
    input_dtypes: tuple[str, ...] = ()
    output_sizes: Sizes = ()
    output_dtypes: tuple[str, ...] = ()
    state: str = "scheduled"
    retired: bool = False
    is_p2p: bool = False
    time_created_ns: int = 0
    frames: tuple[Frame, ...] = ()
    in_batch: bool = False
    """Set by `ringside.sim.flight.job`, of messages."""

    @property
    def has_ended(self) -> bool:
        """Whether the call has ended on this rank."""
        return self.state == "completed" or (self.retired and self.library in END_BY_RETIRING)

    @property
    def library(self) -> str:
        """``nccl`` or ``gloo``."""
        return self.profiling_name.partition(":")[0]

    @property
    def name(self) -> str:
        """The call without its library: ``all_reduce``, ``_all_gather_base``, ``send 0->1``."""
        return self.profiling_name.partition(":")[2] or self.profiling_name

    @property
    def places(self) -> tuple[int, int] | None:
        """Of a message the sender's and the receiver's place in its group."""
        match = _MESSAGE.fullmatch(self.name)
        if match is None:
            return None
        own, peer = int(match[2][:9]), int(match[3][:9])
        return (own, peer) if match[1] == "send" else (peer, own)

    @property
    def where(self) -> str:
        """``FILE:LINE`` of the first line of the stack outside of PyTorch, or nothing."""
        for frame in self.frames:
            if not _OF_PYTORCH.search(frame.filename):
                return f"{PurePath(frame.filename).name}:{frame.line}"
        return ""


@dataclass(frozen=True)
class GroupConfig:
    """A process group as PyTorch knows it; Gloo's last group has no name and perhaps no ranks."""

    name: str = ""
    desc: str = ""
    ranks: Annotated[tuple[Rank, ...], BeforeValidator(_ranks)] = ()


@dataclass(frozen=True)
class Dump:
    """What one rank's Flight Recorder holds: its last calls, oldest first."""

    version: Annotated[str, AfterValidator(_known)]
    entries: tuple[FlightCall, ...] = ()
    pg_config: dict[str, GroupConfig] = Field(default_factory=dict)

    @property
    def lost(self) -> int:
        """Return how many older calls newer ones have overwritten."""
        return self.entries[0].record_id if self.entries else 0
