"""The stages that ranks of a pipeline have, and their actions, in torch's notation: ``2F0``, ``1UNSHARD``."""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Self


@dataclass(frozen=True, slots=True)
class Placement:
    """``stages_a_rank`` stages on each of ``ranks`` ranks of a pipeline.

    In a loop rank r has stages r, r + ranks, ... In a ``v`` the second half goes back: it has r and
    2 ranks - 1 - r, so that the first rank also has the last stage, and the last rank two in a row.
    """

    ranks: int
    stages_a_rank: int = 1
    v: bool = False

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.stages_a_rank < 1:
            raise ValueError(
                f"a pipeline of {self.ranks} ranks with {self.stages_a_rank} stages on each; write 1 or more"
            )
        if self.v and self.stages_a_rank != 2:
            raise ValueError(
                f"a V has exactly 2 stages on each rank, not {self.stages_a_rank}; write 2, or a "
                "schedule that loops"
            )

    @property
    def stages(self) -> int:
        """Number of stages."""
        return self.ranks * self.stages_a_rank

    def rank(self, stage: int) -> int:
        """Return the rank of a stage."""
        turn, place = divmod(stage, self.ranks)
        return self.ranks - 1 - place if self.v and turn else place

    def of(self, rank: int) -> tuple[int, ...]:
        """Return the stages of a rank, in forward order."""
        if self.v:
            return rank, 2 * self.ranks - 1 - rank
        return tuple(range(rank, self.stages, self.ranks))

    def receives_forward(self, stage: int) -> bool:
        """Return whether a stage's input comes from another rank."""
        return stage > 0 and self.rank(stage - 1) != self.rank(stage)

    def receives_backward(self, stage: int) -> bool:
        """Return whether the gradient of a stage's output comes from another rank."""
        return stage < self.stages - 1 and self.rank(stage + 1) != self.rank(stage)


def deal_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Return the number of layers of each stage: equal, or one more in the first stages."""
    if stages < 1:
        raise ValueError(f"{stages} stages; write 1 or more")
    if layers < stages:
        raise ValueError(
            f"{layers} layers on {stages} stages leave some without a layer; write {layers} stages or fewer"
        )
    each, more = divmod(layers, stages)
    return tuple(each + (stage < more) for stage in range(stages))


class Kind(StrEnum):
    """The kinds of actions, by the letters of torch.distributed.pipelining."""

    FORWARD = "F"
    INPUT_GRADIENT = "I"
    WEIGHT_GRADIENT = "W"
    BACKWARD = "B"
    """Both gradients."""
    UNSHARD = "UNSHARD"
    RESHARD = "RESHARD"
    REDUCE_GRAD = "REDUCE_GRAD"
    SEND_FORWARD = "SEND_F"
    RECV_FORWARD = "RECV_F"
    SEND_BACKWARD = "SEND_B"
    RECV_BACKWARD = "RECV_B"
    OVERLAP = "OVERLAP_F_B"
    """A forward and a backward that a model may fuse."""


COMPUTES = frozenset({Kind.FORWARD, Kind.INPUT_GRADIENT, Kind.WEIGHT_GRADIENT, Kind.BACKWARD})
BACKWARDS = frozenset({Kind.INPUT_GRADIENT, Kind.BACKWARD})
"""Kinds that need the gradient of a stage's output, and make that of its input."""
ENDS = frozenset({Kind.WEIGHT_GRADIENT, Kind.BACKWARD})
"""A micro-batch's last kinds in a stage, after which its activations are freed."""
OF_STAGES = frozenset({Kind.UNSHARD, Kind.RESHARD, Kind.REDUCE_GRAD})
"""Kinds that act on a stage, not on a micro-batch."""


class Action(NamedTuple):
    """One action. An overlapped one has ``parts``, and no stage or micro-batch of its own."""

    stage: int
    kind: Kind
    micro_batch: int | None = None
    parts: tuple["Action", ...] = ()

    def __str__(self) -> str:
        if self.parts:
            return f"({';'.join(map(str, self.parts))}){self.kind}"
        return f"{self.stage}{self.kind}{'' if self.micro_batch is None else self.micro_batch}"

    @property
    def singles(self) -> tuple["Action", ...]:
        """The parts, or the action itself."""
        return self.parts or (self,)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an action in torch's notation."""
        match = _PAIR.fullmatch(text)
        if match:
            parts = tuple(cls.parse(part.strip()) for part in match[1].split(";"))
            if [part.kind for part in parts] == [Kind.FORWARD, Kind.BACKWARD]:
                return cls(-1, Kind.OVERLAP, None, parts)
        match = _SINGLE.fullmatch(text)
        if match:
            stage, kind, micro_batch = match.groups()
            if bool(micro_batch) != (Kind(kind) in OF_STAGES):
                return cls(int(stage), Kind(kind), int(micro_batch) if micro_batch else None)
        raise ValueError(
            f"unknown pipeline action {text!r}; write as torch does: 2F0, 2I0, 2W0, 2B0 (stage, kind, "
            "micro-batch), 2SEND_F0, 2RECV_F0, 2SEND_B0, 2RECV_B0, 2UNSHARD, 2RESHARD, 2REDUCE_GRAD or "
            "(2F1;5B0)OVERLAP_F_B"
        )


Table = tuple[Action, ...]
"""One rank's actions, in order."""


def singles(table: Iterable[Action]) -> Iterator[Action]:
    """Yield the actions of a table, the parts of overlapped ones separately."""
    return (single for action in table for single in action.singles)


def read_tables(file: Path) -> tuple[Table, ...]:
    """Read the tables of a file in torch's form: one line per rank, cells of actions, idle ones empty."""
    tables = []
    try:
        with file.open(encoding="utf-8-sig", newline="") as text:
            for number, row in enumerate(csv.reader(text), 1):
                try:
                    tables.append(tuple(Action.parse(cell.strip()) for cell in row if cell.strip()))
                except ValueError as error:
                    raise ValueError(f"{file}, line {number}: {error}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file} cannot be read as a table of actions: {error}") from None
    if not any(tables):
        raise ValueError(f"{file} has no actions; write a line a rank, such as 0F0,0F1,0B0,0B1")
    return tuple(tables)


def write_tables(tables: Sequence[Sequence[Action]], file: Path) -> None:
    """Write tables in torch's form."""
    with file.open("w", encoding="utf-8", newline="") as text:
        csv.writer(text).writerows([str(action) for action in table] for table in tables)


_SINGLE = re.compile(
    r"(\d{1,9})(F|I|B|W|UNSHARD|RESHARD|REDUCE_GRAD|SEND_F|RECV_F|SEND_B|RECV_B)(\d{0,9})",
    re.ASCII,
)
_PAIR = re.compile(r"\(([^()]*)\)OVERLAP_F_B")
