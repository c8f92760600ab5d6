"""A program, or a schedule, as GOAL's nodes: messages, work, and their requirements.

GOAL has no collectives: each becomes the transfers of a schedule, between a node that begins it and one that
ends it. It has no groups: each group's own tag distinguishes its messages. It has no host, streams or queues:
their order becomes requirements.
"""

from collections.abc import Callable, Iterable, Sequence

from ringside.sim.formats import FormatError
from ringside.sim.formats.goal import BEGIN, EAGER, MAX_NODES, MAX_TAG, RECV, SEND, WORK, GoalNode
from ringside.sim.formats.order import ARRIVAL, QUEUE_LOST, OperationOrder, folded, loses_queue
from ringside.sim.program.operations import (
    Call,
    Compute,
    Group,
    Join,
    Lost,
    NewGroup,
    Operation,
    Program,
    Raise,
    Recv,
    Send,
    Together,
)
from ringside.sim.schedule import Schedule

ScheduleOf = Callable[[Call], Schedule]
"""The transfers that carry out a collective."""

FEW = 4
"""Nodes that a transfer requires one by one; more are joined in one."""


def of_schedule(plan: Schedule) -> list[list[GoalNode]]:
    """Return each rank's nodes of one collective: a transfer leaves after all earlier ones of its chunks.

    It leaves no earlier than the one before it on its connection. The k-th transfer from one rank to another
    has tag k. Channels, credits, the time of additions and ``after`` are lost.
    """
    what = f"{plan.algorithm} {plan.collective.kind} on {plan.ranks} ranks cannot be written as GOAL"
    if plan.switches:
        raise FormatError(f"{what}: it adds in switches, but GOAL has ranks only; write another algorithm")
    if plan.longer_than(MAX_NODES // 4):
        raise FormatError(
            f"{what}: it has more than {MAX_NODES // 4:,} transfers; write a smaller size or fewer ranks"
        )
    ranks: list[list[GoalNode]] = [[] for _ in range(plan.ranks)]
    came: list[dict[int, list[int]]] = [{} for _ in range(plan.ranks)]
    tags: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int, int], list[int]] = {}
    for moved in plan.steps():
        carried = []
        for (src, dst, chunks, channel, _), size in zip(
            moved.transfers(), plan.nbytes(moved).tolist(), strict=True
        ):
            tag = tags[src, dst] = tags.get((src, dst), -1) + 1
            required = _required(ranks[src], came[src], chunks)
            # its predecessor on its connection, which may have further dependencies
            begun = [
                place
                for place in last.get((src, dst, channel), ())
                if not {*ranks[src][place].requires} <= {*required}
            ]
            last[src, dst, channel] = [len(ranks[src])]
            ranks[src].append(GoalNode(SEND, size, dst, tag, required, begun))
            carried.append((dst, chunks, GoalNode(RECV, size, src, tag)))
        # a step does not send data that arrive in it
        for dst, chunks, node in carried:
            for chunk in chunks:
                came[dst].setdefault(chunk, []).append(len(ranks[dst]))
            ranks[dst].append(node)
    return ranks


def _required(nodes: list[GoalNode], came: dict[int, list[int]], chunks: range) -> list[int]:
    """Return the nodes that brought some chunks; a large set common to all is joined first."""
    lists = [came[chunk] for chunk in chunks if chunk in came]
    places = list(dict.fromkeys(place for one in lists for place in one))
    if len(places) > FEW and len(lists) == len(chunks) and all(one == lists[0] for one in lists):
        nodes.append(GoalNode(WORK, 0, requires=places))
        places = [len(nodes) - 1]
        came.update((chunk, list(places)) for chunk in chunks)
    return places


def of_program(program: Program, schedule_of: ScheduleOf) -> list[list[GoalNode]]:
    """Return each rank's nodes for a whole job; ``schedule_of`` returns a collective's transfers.

    Raise `FormatError` for a rank that ends with an error of its library.
    """
    shared = _Shared(program, schedule_of)
    return [_Rank(program, rank, shared).nodes for rank in range(program.ranks)]


def losses(program: Program) -> list[str]:
    """Return sentences on the information that a program loses as nodes."""
    actions = [one.action for rank in range(program.ranks) for one in program.operations(rank)]
    calls = [action for action in actions if isinstance(action, Call)]
    groups = {action.group for action in actions if isinstance(action, Call | Send | Recv | Together)}
    notes = []
    if calls:
        kinds = ", ".join(dict.fromkeys(call.collective.kind for call in calls))
        notes.append(
            f"collectives ({kinds}) are written as their transfers, without type, reduction and time to add"
        )
    if any(_holds_back(program.operations(rank)) for rank in range(program.ranks)):
        notes.append(
            f"messages of up to {EAGER:,} bytes leave before their receive is posted, as in LogGOPSim"
        )
    if len(groups) > 1:
        notes.append(f"{len(groups)} groups are distinguished by tags alone")
    if loses_queue(program):
        notes.append(QUEUE_LOST)
    if any(isinstance(action, Join | NewGroup) for action in actions):
        notes.append("creating groups takes no time and does not wait for other ranks")
    if any(isinstance(action, Compute) and (action.seconds * 1e9) % 1 for action in actions):
        notes.append("compute is rounded to nanoseconds")
    return notes


def _holds_back(operations: Sequence[Operation]) -> bool:
    """Return whether small messages may wait for a late receive, or a late member of a collective."""
    order, messages = OperationOrder(operations), folded(operations)
    for place, operation in enumerate(operations):
        is_late = bool(order.before(place)) and place not in messages
        parts = _messages(operation.action) if is_late else ()
        if isinstance(operation.action, Call) or any(
            isinstance(part, Recv) and part.nbytes <= EAGER for part in parts
        ):
            return True
    return False


class _Shared:
    """Shared state of a job's ranks: tags, and the transfers of each collective."""

    def __init__(self, program: Program, schedule_of: ScheduleOf) -> None:
        self._schedule_of = schedule_of
        self._transfers: dict[Call, list[list[GoalNode]]] = {}
        self._taken: dict[int, Group] = {}
        self._tags: dict[tuple[Group, int], int] = {}
        self._firsts: dict[tuple[Group, int], int] = {}
        messages = [
            part
            for rank in range(program.ranks)
            for one in program.operations(rank)
            for part in _messages(one.action)
        ]
        for part in messages:
            if 0 <= part.tag <= MAX_TAG:
                self._taken.setdefault(part.tag, part.group)
        self._next = max(self._taken, default=-1) + 1
        for part in messages:
            if self._taken.get(part.tag) is part.group:
                self._tags[part.group, part.tag] = part.tag
            elif (part.group, part.tag) not in self._tags:
                self._tags[part.group, part.tag] = self._new(1)

    def tag(self, part: Send | Recv) -> int:
        """Return the tag of a message: its own, where no other group has it."""
        return self._tags[part.group, part.tag]

    def collective(self, call: Call, number: int) -> tuple[list[list[GoalNode]], int]:
        """Return each member's transfers in the ``number``-th call of a group, and their first tag."""
        if call not in self._transfers:
            self._transfers[call] = of_schedule(self._schedule_of(call))
        transfers = self._transfers[call]
        if (call.group, number) not in self._firsts:
            count = 1 + max((node.tag for nodes in transfers for node in nodes), default=0)
            self._firsts[call.group, number] = self._new(count)
        return transfers, self._firsts[call.group, number]

    def _new(self, count: int) -> int:
        first, self._next = self._next, self._next + count
        if self._next > MAX_TAG:
            raise FormatError(f"more than {MAX_TAG:,} tags; GOAL has no more, write a smaller job")
        return first


class _Rank:
    """One rank's nodes, built operation by operation."""

    def __init__(self, program: Program, rank: int, shared: _Shared) -> None:
        self.nodes: list[GoalNode] = []
        self._rank = rank
        self._shared = shared
        self._operations = program.operations(rank)
        self._ends: list[list[int]] = []
        """The nodes with which each operation ends; none where it is over at once."""
        self._order = OperationOrder(self._operations)
        self._folded = folded(self._operations)
        self._required: dict[int, tuple[list[int], list[int]]] = {}
        """Predecessors of the operation behind a beginning: those ended, and those begun."""
        self._calls: dict[Group, int] = {}
        for place, operation in enumerate(self._operations):
            self._ends.append(self._end(place, operation))
            if len(self.nodes) > MAX_NODES:
                raise FormatError(
                    f"{program.name} is more than {MAX_NODES:,} nodes of GOAL; write a smaller job"
                )

    def _end(self, place: int, operation: Operation) -> list[int]:
        """Write an operation; return the nodes with which it ends."""
        requires, irequires = self._before(place)
        action = operation.action
        if operation.category == BEGIN or place in self._folded:
            return []
        if operation.category == ARRIVAL:
            action = self._operations[operation.after[0]].action
        match action:
            case Raise(message) | Lost(_, message):
                raise FormatError(
                    f"rank {self._rank} fails at {operation.where}, which GOAL cannot express: {message}"
                )
            case Compute(seconds):
                return [
                    self._add(GoalNode(WORK, round(seconds * 1e9), requires=requires, irequires=irequires))
                ]
            case Send() | Recv():
                return [self._add(self._message(action, requires, irequires))]
            case Together(_, parts):
                return [self._add(self._message(part, requires, irequires)) for part in parts]
            case Call():
                return self._call(action, requires)
        return requires

    def _before(self, place: int) -> tuple[list[int], list[int]]:
        """Return the nodes that must have ended, and begun, before an operation begins."""
        ended: list[int] = []
        begun: list[int] = []
        for other in self._order.before(place):
            if self._operations[other].category != BEGIN:
                ended.append(other)
            elif other == place - 1:
                ended += self._required[other][0]
                begun += self._required[other][1]
            else:
                begun.append(other + 1)
        if self._operations[place].category == BEGIN:
            self._required[place] = ended, begun
        return self._nodes(ended), self._nodes(begun)

    def _nodes(self, places: Iterable[int]) -> list[int]:
        """Return the nodes with which operations end, joined where one ends with several."""
        for place in places:
            self._ends[place] = self._joined(self._ends[place])
        return list(dict.fromkeys(end for place in places for end in self._ends[place]))

    def _call(self, call: Call, requires: list[int]) -> list[int]:
        """Write a collective: its transfers begin after its predecessors; it ends with all of them."""
        number = self._calls[call.group] = self._calls.get(call.group, -1) + 1
        transfers, first = self._shared.collective(call, number)
        begin = self._joined(requires)
        own = transfers[call.group.ranks.index(self._rank)]
        offset = len(self.nodes)
        for node in own:
            after = [other + offset for other in node.requires] or begin
            begun = [other + offset for other in node.irequires]
            if node.kind == WORK:
                self._add(GoalNode(WORK, 0, requires=after))
            else:
                peer = call.group.ranks[node.peer]
                self._add(GoalNode(node.kind, node.size, peer, node.tag + first, after, begun))
        return list(range(offset, len(self.nodes))) or begin

    def _message(self, part: Send | Recv, requires: list[int], irequires: list[int]) -> GoalNode:
        kind = SEND if isinstance(part, Send) else RECV
        return GoalNode(kind, part.nbytes, part.peer, self._shared.tag(part), requires, irequires)

    def _joined(self, nodes: list[int]) -> list[int]:
        """Return one node in place of several: work of no time after them."""
        return nodes if len(nodes) < 2 else [self._add(GoalNode(WORK, 0, requires=nodes))]

    def _add(self, node: GoalNode) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


def _messages(action: object) -> Sequence[Send | Recv]:
    if isinstance(action, Together):
        return action.parts
    return (action,) if isinstance(action, Send | Recv) else ()
