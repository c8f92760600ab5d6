"""What passes between the process that asks for a recording and those of its ranks."""

import json
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import TypeAdapter

from ringside.sim.recorded.job import RecordedGroup, RecordedRank


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOrder:
    """One rank to record: the script, or module, with its arguments, and the job that it believes to be in.

    ``mail`` is the folder through which ranks exchange objects, ``result`` the file of the `RankPart`.
    ``shims`` are modules of the user's that register more of them, ``without`` packages that get none.
    ``like`` are the optimizer steps that a rank which it should equal took until they were steady, those of
    its last step, and the entries of that.
    """

    script: str
    is_module: bool
    arguments: tuple[str, ...]
    rank: int
    ranks: int
    per_node: int
    steps: int
    with_source: bool
    mail: str
    result: str
    shims: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    like: tuple[int, int, int] | None = None

    def write(self, path: Path) -> None:
        """Write the order for `read`."""
        path.write_bytes(TypeAdapter(type(self)).dump_json(self))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read an order."""
        return TypeAdapter(cls).validate_json(path.read_bytes())


class Fork(NamedTuple):
    """A rank to fork, the file of its order, and that of what it writes."""

    rank: int
    order: str
    log: str

    def __bytes__(self) -> bytes:
        return json.dumps(self).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Self:
        """Read what `bytes` of a fork are."""
        return cls(*json.loads(line))


class ShardedExtent(NamedTuple):
    """An extent that is cut among ranks as by ``torch.chunk``: those of the last are smaller, or empty."""

    extent: int
    among: int

    def of(self, place: int) -> int:
        """Return the extent of a chunk."""
        size = -(-self.extent // self.among)
        return max(0, min(size, self.extent - place * size))


class FlatShards(NamedTuple):
    """Parameters of these elements laid end to end, and cut among ranks: a shard has parts of some."""

    laid: tuple[int, ...]
    among: int

    def of(self, place: int) -> tuple[tuple[int, int], ...]:
        """Return the elements of each parameter that a shard has a part of, by the parameter's number."""
        size = -(-sum(self.laid) // self.among)
        ends = accumulate(self.laid, initial=-place * size)
        parts = (min(size, end) - max(0, begin) for begin, end in pairwise(ends))
        return tuple((number, elements) for number, elements in enumerate(parts) if elements > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPart:
    """What a rank recorded: its step with the groups in it, or in ``error`` why there is none.

    ``steps`` are the optimizer steps that the script took, ``period`` those of the recorded step, ``posted``
    the entries that it had before any were fused. ``samples`` are those of a step of all ranks, None if it
    does not say. ``uneven`` are tensors cut into unequal shards, one for each rank of a group, and flat ones
    whose shards have other parts.
    """

    rank: int
    torch: str
    steps: int = 0
    period: int = 1
    posted: int = 0
    recorded: RecordedRank | None = None
    groups: tuple[RecordedGroup, ...] = ()
    uneven: tuple[ShardedExtent | FlatShards, ...] = ()
    samples: int | None = None
    notes: tuple[str, ...] = ()
    error: str = ""

    def write(self, path: Path) -> None:
        """Write the part for `read`; the file is there once it is whole."""
        unfinished = path.with_suffix(".part")
        unfinished.write_bytes(TypeAdapter(type(self)).dump_json(self))
        unfinished.rename(path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a part."""
        return TypeAdapter(cls).validate_json(path.read_bytes())
