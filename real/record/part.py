"""What passes between the process that asks for a recording and those of its ranks."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPart:
    """What a rank recorded: its step with the groups in it, or in ``error`` why there is none.

    ``steps`` are the optimizer steps that the script took, ``period`` those of the recorded step. ``samples``
    are those of a step of all ranks, None if it does not say.
    """

    rank: int
    torch: str
    steps: int = 0
    period: int = 1
    recorded: RecordedRank | None = None
    groups: tuple[RecordedGroup, ...] = ()
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
