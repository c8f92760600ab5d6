"""A recorded training job as plain data, and as a file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt

COMPUTE = "compute"
"""The lane of a rank's default stream; other streams have lanes of their own, and so do groups."""


Dtype = Annotated[str, Field(pattern=r"^(bool|[a-z]+[0-9]+[a-z0-9_]*)$")]
"""PyTorch's name of a type, such as ``bfloat16``."""


@dataclass(frozen=True, slots=True)
class Shaped:
    """The shape and type of a tensor, by PyTorch's name of the type."""

    shape: tuple[NonNegativeInt, ...]
    dtype: Dtype

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


@cache
def itemsize(dtype: str) -> int:
    """Return the bytes of an element from the bits in the name of its PyTorch type; bool has none there."""
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

    def __str__(self) -> str:
        shown = self.inputs or self.outputs
        return f"{self.name}({', '.join(str(list(one.shape)) for one in shown[:3])})"


@dataclass(frozen=True, slots=True)
class GroupCall:
    """A collective of a group, by torch.distributed's ``name``.

    ``collective`` and ``nbytes`` are those of `ringside.sim.collective.Collective`; ``root`` is a rank of the
    job, None without one. ``waits`` says that the host or its stream waits (``async_op=False``).
    """

    group: str
    name: str
    collective: str
    nbytes: NonNegativeInt
    dtype: Dtype
    redop: str = "sum"
    root: int | None = None
    waits: bool = True
    kind: Literal["call"] = "call"

    def __str__(self) -> str:
        return f"{self.name} of {self.nbytes} bytes in group {self.group}"


@dataclass(frozen=True, slots=True)
class PeerMessage:
    """A message to rank ``peer`` of the job, or from it; several of one ``batch`` number go together."""

    group: str
    peer: int
    nbytes: NonNegativeInt
    is_send: bool
    dtype: Dtype = "uint8"
    tag: int = 0
    batch: int | None = None
    kind: Literal["message"] = "message"

    def __str__(self) -> str:
        return f"{'send to' if self.is_send else 'recv from'} {self.peer} of {self.nbytes} bytes"


@dataclass(frozen=True, slots=True)
class HostWait:
    """A wait of the host for the device, by the call that waits, such as ``item``."""

    name: str
    kind: Literal["wait"] = "wait"

    def __str__(self) -> str:
        return f"wait for {self.name}"


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

    Pools are parameters, gradients, optimizer, activations, gathered (other ranks' parameters) and buffers.
    ``alike`` are the ranks of the job that do the same, itself included. ``unsteady`` says how the step
    differs from the one before it, empty if it does not. ``places`` are ``FILE:LINE`` of calls, none without
    source.
    """

    rank: int
    alike: tuple[int, ...]
    actions: tuple[Action, ...]
    entries: tuple[Entry, ...]
    held: Mapping[str, NonNegativeInt]
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

    format: Literal["ringside.job"] = "ringside.job"
    version: Literal[1] = 1
    command: tuple[str, ...]
    ranks: PositiveInt
    per_node: PositiveInt
    torch: str
    groups: tuple[RecordedGroup, ...]
    recorded: tuple[RecordedRank, ...]
    notes: tuple[str, ...] = ()
    samples: PositiveInt | None = None

    @cached_property
    def representatives(self) -> tuple[int, ...]:
        """For each rank of the job the recorded one that does the same."""
        stands = {rank: one.rank for one in self.recorded for rank in one.alike}
        return tuple(stands[rank] for rank in range(self.ranks))


class JobFileError(ValueError):
    """A recorded job that contradicts itself, or a file that holds none."""
