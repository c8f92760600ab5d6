"""Check compute tables and lower them: insert messages, then FSDP's actions.

As in torch, a receive is placed at its sender's time step, so ranks reach messages in the right order.
"""

from collections import deque
from collections.abc import Iterable, Sequence

from ringside.sim.training.pipeline.actions import (
    BACKWARDS,
    COMPUTES,
    ENDS,
    Action,
    Kind,
    Placement,
    Table,
    singles,
)

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
