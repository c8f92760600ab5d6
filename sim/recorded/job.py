"""A recorded training job as plain data, and as a file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from ringside.topologies.disk import write_file

VERSION = 1
"""The version of the file's format."""

POOLS = ("parameters", "gradients", "optimizer", "activations", "gathered", "buffers")
"""What device memory is for."""

COMPUTE = "compute"
"""The lane of a rank's default stream; other streams have lanes of their own, and so do groups."""


@dataclass(frozen=True, slots=True)
class Shaped:
    """The shape and type of a tensor, by PyTorch's name of the type."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def elements(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.elements * itemsize(self.dtype)


def itemsize(dtype: str) -> int:
    """Return the bytes of an element by PyTorch's name of its type, which says its bits; bool has none."""
    bits = re.search(r"\d+", dtype)
    return max(int(bits[0]) // 8, 1) if bits else 1


@dataclass(frozen=True, slots=True)
class Operator:
    """Work of the device: an operator by PyTorch's name, such as ``aten.mm``, with what it reads and writes.

    ``options`` are arguments that change its work, such as ``is_causal`` of attention. Copies between host
    and device are ``copy_to_device`` and ``copy_to_host``.
    """

    name: str
    inputs: tuple[Shaped, ...] = ()
    outputs: tuple[Shaped, ...] = ()
    options: tuple[tuple[str, bool | int | float | str], ...] = ()
    kind: Literal["operator"] = "operator"


@dataclass(frozen=True, slots=True)
class GroupCall:
    """A collective of a group, by torch.distributed's ``name``.

    ``collective`` and ``nbytes`` are those of `ringside.sim.collective.Collective`; ``root`` is a rank of the
    job, None without one. ``waits`` says that the host or its stream waits (``async_op=False``).
    """

    group: str
    name: str
    collective: str
    nbytes: int
    dtype: str
    redop: str = "sum"
    root: int | None = None
    waits: bool = True
    kind: Literal["call"] = "call"


@dataclass(frozen=True, slots=True)
class PeerMessage:
    """A message to rank ``peer`` of the job, or from it; several of one ``batch`` number go together."""

    group: str
    peer: int
    nbytes: int
    is_send: bool
    dtype: str = "uint8"
    tag: int = 0
    batch: int | None = None
    kind: Literal["message"] = "message"


@dataclass(frozen=True, slots=True)
class HostWait:
    """A wait of the host for the device, by the call that waits, such as ``item``."""

    name: str
    kind: Literal["wait"] = "wait"


Action = Annotated[Operator | GroupCall | PeerMessage | HostWait, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True)
class Entry:
    """One operation of a rank, in the order in which its host posts them.

    ``action`` and ``place`` are numbers in its rank's ``actions`` and ``places``. It begins when the one
    before it on its ``lane`` has ended, and those of ``after``, earlier entries of the step. ``memory`` are
    bytes allocated, or freed if negative, by pool, when the host posts it.
    """

    action: int
    lane: str = COMPUTE
    after: tuple[int, ...] = ()
    memory: tuple[tuple[str, int], ...] = ()
    place: int | None = None


@dataclass(frozen=True, slots=True)
class RecordedRank:
    """One rank's step, and the memory that it ``held`` by pool when the step began.

    ``alike`` are the ranks of the job that do the same, itself included. ``unsteady`` says how the step
    differs from the one before it, empty if it does not. ``places`` are ``FILE:LINE`` of calls, none without
    source.
    """

    rank: int
    alike: tuple[int, ...]
    actions: tuple[Action, ...]
    entries: tuple[Entry, ...]
    held: Mapping[str, int]
    unsteady: str = ""
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedGroup:
    """A process group: ``partition`` are the ranks of all groups that were made together.

    Each rank of the job calls its own part of the partition by this name. The groups of a mesh's dimension
    are one partition; a group alone is a partition of one part.
    """

    name: str
    partition: tuple[tuple[int, ...], ...]

    def of(self, rank: int) -> tuple[int, ...] | None:
        """Return the ranks of the part with this rank; None if no part has it."""
        return next((part for part in self.partition if rank in part), None)


@dataclass(frozen=True, kw_only=True)
class RecordedJob:
    """A step of a job of ``ranks`` ranks, ``per_node`` on each node; every rank is `alike` to a recorded one.

    ``samples`` of a step are None if unknown. ``command`` is the script with its arguments, without folders.
    ``notes`` say what was assumed.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", allow_inf_nan=False)

    command: tuple[str, ...]
    ranks: int
    per_node: int
    torch: str
    groups: tuple[RecordedGroup, ...]
    recorded: tuple[RecordedRank, ...]
    notes: tuple[str, ...] = ()
    samples: int | None = None
    format: Literal["ringside.job"] = "ringside.job"
    version: Literal[1] = 1

    @cached_property
    def representatives(self) -> tuple[int, ...]:
        """For each rank of the job the recorded one that does the same."""
        stands = {rank: one.rank for one in self.recorded for rank in one.alike}
        return tuple(stands[rank] for rank in range(self.ranks))


_JOB = TypeAdapter(RecordedJob)


class JobFileError(ValueError):
    """A file that holds no recorded job."""


def write_job(job: RecordedJob, path: str | Path) -> None:
    """Write the job as JSON."""
    write_file(Path(path), _JOB.dump_json(job))


def read_job(path: str | Path) -> RecordedJob:
    """Read a job; raise JobFileError for a file that holds none."""
    try:
        return _JOB.validate_json(Path(path).read_bytes())
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise JobFileError(
            f"{path}: {where or 'the file'}: {first['msg']}; write a file that `ringside record` made"
        ) from None
    except OSError as error:
        raise JobFileError(f"{path}: {error.strerror}") from None


def is_job_file(path: str | Path) -> bool:
    """Return whether a file says that it holds a recorded job."""
    path = Path(path)
    return path.suffix == ".json" and path.is_file() and b'"ringside.job"' in path.read_bytes()


def schema() -> dict[str, Any]:
    """Return the JSON schema of the file."""
    return _JOB.json_schema()
