"""The stages that ranks of a pipeline have, and their actions, checked and lowered to messages and FSDP's.

Actions are written in torch's notation: ``2F0``, ``1UNSHARD``. As in torch, a receive is placed at its
sender's time step, so ranks reach messages in the right order.
"""

import csv
import re
from collections import deque
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

    def gets(self, stage: int) -> tuple[bool, bool]:
        """Return whether other ranks send a stage its inputs, and the gradients of its outputs."""
        here = self.rank(stage)
        return (
            stage > 0 and self.rank(stage - 1) != here,
            stage < self.stages - 1 and self.rank(stage + 1) != here,
        )

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


MOST_ACTIVE = 3
"""Maximum number of stages whose whole parameters a rank holds, or gathers, at once."""


def find_placement(tables: Sequence[Table]) -> Placement:
    """Return the placement of stages in tables from a file; `ValueError` unless it is a loop or a V."""
    own = [sorted({single.stage for single in singles(table)}) for table in tables]
    each = len(own[0]) if own else 0
    if tables and each:
        for v in (False, True) if each == 2 else (False,):
            placement = Placement(len(tables), each, v)
            if all(tuple(stages) == placement.of(rank) for rank, stages in enumerate(own)):
                return placement
    raise ValueError(
        f"tables of {len(tables)} ranks, the first with stages {own[0] if own else 'none'}; write stages "
        "in a loop (rank r has r, r + ranks, ...) or in a V (r and 2 ranks - 1 - r), equally many per rank"
    )


def check_tables(tables: Sequence[Table], placement: Placement) -> int:
    """Return the number of micro-batches; `ValueError` unless each passes every stage once, and all end."""
    if len(tables) != placement.ranks:
        raise ValueError(f"{len(tables)} tables for {placement.ranks} ranks; write one a rank")
    done: dict[int, set[Action]] = {stage: set() for stage in range(placement.stages)}
    for rank, table in enumerate(tables):
        for action in singles(table):
            if action.kind not in COMPUTES:
                raise ValueError(f"rank {rank}: {action} does not compute; write tables of F, I, W and B")
            if action.stage >= placement.stages or placement.rank(action.stage) != rank:
                raise ValueError(
                    f"rank {rank} does {action}, but has stages {', '.join(map(str, placement.of(rank)))}"
                )
            if action in done[action.stage]:
                raise ValueError(f"rank {rank} does {action} twice")
            done[action.stage].add(action)
    numbers = {action.micro_batch for own in done.values() for action in own}
    count = len(numbers)
    gap = next((number for number in range(count + 1) if number not in numbers), 0)
    if gap < max(count, 1):
        raise ValueError(f"the tables have no micro-batch {gap}; number them from 0")
    for stage, own in done.items():
        for number in range(count):
            _check_whole(stage, number, own)
    _in_order(tables, placement)
    return count


def lower(tables: Sequence[Table], placement: Placement) -> tuple[Table, ...]:
    """Return the tables with UNSHARD, RESHARD, REDUCE_GRAD, sends and receives."""
    check_tables(tables, placement)
    return _in_order([_with_gradients(_with_parameters(table)) for table in tables], placement)


def source(action: Action, placement: Placement) -> Action | None:
    """Return the action that makes the input of a computation; None for the first stage's forward.

    It is on another stage, or on its own for the loss. `BACKWARD` represents both backward kinds.
    """
    if action.kind is Kind.FORWARD:
        return action._replace(stage=action.stage - 1) if action.stage else None
    if action.kind is Kind.WEIGHT_GRADIENT:
        return action._replace(kind=Kind.INPUT_GRADIENT)
    if action.stage == placement.stages - 1:
        return action._replace(kind=Kind.FORWARD)
    return action._replace(stage=action.stage + 1, kind=Kind.BACKWARD)


def received(action: Action, placement: Placement) -> list[Action]:
    """Return the message that an action needs before it can be computed, if any."""
    if action.kind is Kind.FORWARD and placement.receives_forward(action.stage):
        return [action._replace(kind=Kind.RECV_FORWARD)]
    if action.kind in BACKWARDS and placement.receives_backward(action.stage):
        return [action._replace(kind=Kind.RECV_BACKWARD)]
    return []


def sent(action: Action, placement: Placement) -> list[Action]:
    """Return the message to send once an action has been computed, if any."""
    if action.kind is Kind.FORWARD and placement.receives_backward(action.stage):
        return [action._replace(kind=Kind.SEND_FORWARD)]
    if action.kind in BACKWARDS and placement.receives_forward(action.stage):
        return [action._replace(kind=Kind.SEND_BACKWARD)]
    return []


def met(message: Action) -> Action:
    """Return the receive that matches a send, or the send that matches a receive."""
    kind, away = _OTHER_SIDE[message.kind]
    return message._replace(stage=message.stage + away, kind=kind)


_OTHER_SIDE = {
    Kind.SEND_FORWARD: (Kind.RECV_FORWARD, 1),
    Kind.RECV_FORWARD: (Kind.SEND_FORWARD, -1),
    Kind.SEND_BACKWARD: (Kind.RECV_BACKWARD, -1),
    Kind.RECV_BACKWARD: (Kind.SEND_BACKWARD, 1),
}


def _check_whole(stage: int, number: int, done: set[Action]) -> None:
    """Raise ValueError unless a micro-batch passes a stage forward, and backward at once or in both parts."""
    kinds = "".join(kind for kind in "FIWB" if Action(stage, Kind(kind), number) in done)
    if kinds not in ("FB", "FIW"):
        missing = "F" if "F" not in kinds else "I" if "W" in kinds else "W" if "I" in kinds else "B"
        what = (
            f"has both {stage}B{number} and a part of it"
            if "B" in kinds and kinds != "B"
            else f"lacks {stage}{missing}{number}"
        )
        raise ValueError(f"the tables' stage {stage} {what}; each needs F, and B or both of I and W")


def _with_parameters(table: Sequence[Action]) -> list[Action]:
    """Return a table with actions that gather parameters ahead, and free them."""
    active: set[int] = set()
    lowered: list[Action] = []
    last = {single.stage: place for place, action in enumerate(table) for single in action.singles}
    for place, action in enumerate(table):
        left = sum(until >= place for until in last.values())
        wanted = _next_stages(table, place, min(MOST_ACTIVE, left))
        # a set's own order, as torch has it
        for stage in [stage for stage in active if stage not in wanted]:
            active.remove(stage)
            lowered.append(Action(stage, Kind.RESHARD))
        for stage in wanted:
            if stage not in active:
                active.add(stage)
                lowered.append(Action(stage, Kind.UNSHARD))
        lowered.append(action)
    return [*lowered, *(Action(stage, Kind.RESHARD) for stage in active)]


def _next_stages(table: Sequence[Action], place: int, count: int) -> list[int]:
    """Return the next ``count`` stages from a place on, or one more if two begin at once."""
    stages: list[int] = []
    while len(stages) < count:
        stages += [single.stage for single in table[place].singles if single.stage not in stages]
        place += 1
    return stages


def _with_gradients(table: Sequence[Action]) -> list[Action]:
    """Return a table that reduces a stage's gradients after the last micro-batch that adds to them."""
    left: dict[int, int] = {}
    for single in singles(table):
        if single.kind in ENDS:
            left[single.stage] = left.get(single.stage, 0) + 1
    lowered: list[Action] = []
    for action in table:
        lowered.append(action)
        for single in action.singles:
            if single.kind in ENDS:
                left[single.stage] -= 1
                if not left[single.stage]:
                    lowered.append(Action(single.stage, Kind.REDUCE_GRAD))
    return lowered


def _in_order(tables: Sequence[Sequence[Action]], placement: Placement) -> tuple[Table, ...]:
    """Return the tables with messages, written one rank after another as inputs become ready.

    Raise ValueError if no rank can continue.
    """
    lowered: list[list[Action]] = [[] for _ in tables]
    made: set[Action] = set()
    left = [deque(table) for table in tables]
    while any(left):
        went_on = False
        for own, rest in zip(lowered, left, strict=True):
            if not rest or not all(_ready(single, made, placement) for single in rest[0].singles):
                continue
            went_on = True
            action = rest.popleft()
            own.append(action)
            for single in action.singles:
                made.add(single)
                if single.kind is Kind.INPUT_GRADIENT:
                    made.add(single._replace(kind=Kind.BACKWARD))
                for send in sent(single, placement):
                    own.append(send)
                    receive = met(send)
                    lowered[placement.rank(receive.stage)].append(receive)
        if not went_on:
            raise ValueError(f"the tables hang: {'; '.join(_stuck(left, made, placement))}")
    return tuple(map(tuple, lowered))


def _ready(single: Action, made: set[Action], placement: Placement) -> bool:
    if single.kind not in COMPUTES:
        return True
    needed = source(single, placement)
    return needed is None or needed in made


def _stuck(left: Sequence[deque[Action]], made: set[Action], placement: Placement) -> Iterable[str]:
    """Describe the waits of the ranks."""
    for rank, rest in enumerate(left):
        for single in rest[0].singles if rest else ():
            needed = source(single, placement)
            if needed and not _ready(single, made, placement):
                where = placement.rank(needed.stage)
                yield f"rank {rank} cannot do {single} before rank {where} has done {needed}"
