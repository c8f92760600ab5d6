"""A `Program` as Chakra's nodes, rank by rank, and nodes as a `Program`.

A collective's ``comm_size`` is one rank's contribution (ASTRA-sim, system/collective/Ring.cc), as a program's
is. A group is ``pg_name``; its ranks are listed beside the traces, in ASTRA-sim's comm_groups.json, or follow
from its users. Nodes of one rank wait for their dependencies and for nothing else; a message leaves when it
is sent, even without a posted receive, as in ASTRA-sim, unless its receive is marked otherwise.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ringside.sim.collective import MAX_SPACE
from ringside.sim.formats import FormatError
from ringside.sim.formats.chakra import COLLECTIVE, COMPUTE, METADATA, RECV, SEND, ChakraNode
from ringside.sim.formats.order import (
    ARRIVAL,
    BESIDE,
    QUEUE_LOST,
    OperationOrder,
    closed,
    folded,
    loses_queue,
)
from ringside.sim.program.operations import (
    ANY,
    BARRIERS,
    ROOTED,
    Action,
    Call,
    Compute,
    Group,
    Lost,
    Operation,
    Program,
    Raise,
    Recv,
    Send,
    Together,
    Wait,
)
from ringside.sim.program.record.mesh import Groups

KINDS = (
    *("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all"),
    *("reduce_scatter", "reduce_scatter", "barrier"),
)
"""Values of ``comm_type``, from 0 on."""

OF_EACH = ("all_gather", "gather", "scatter")
"""Collectives whose size is that of all parts; a rank contributes one part."""

RENDEZVOUS = "rendezvous"
"""An attribute of receives, written only by Ringside: the message is held back until the receive begins."""

MARK = "metadata"
"""The category of nodes that carry information and take no time."""


def nodes_of(program: Program) -> tuple[list[list[ChakraNode]], dict[str, list[int]]]:
    """Return the nodes of each rank, and the ranks of each ``pg_name``.

    Groups other than that of all are numbered from 1 on, as ASTRA-sim names them. Raise `FormatError` for
    operations that a trace cannot express.
    """
    names: dict[Group, str] = {}
    ranks = [_nodes(program, rank, names) for rank in range(program.ranks)]
    return ranks, {name: list(group.ranks) for group, name in names.items() if name}


def losses(program: Program) -> list[str]:
    """Return sentences on the information that a program loses as nodes."""
    actions = [one.action for rank in range(program.ranks) for one in program.operations(rank)]
    notes = []
    if any(isinstance(one, Call) and one.collective.redop != "sum" for one in actions):
        notes.append("reductions other than sum are lost")
    if any(isinstance(one, Together) for one in actions):
        notes.append("messages of one batch become separate nodes")
    if loses_queue(program):
        notes.append(QUEUE_LOST)
    if any(isinstance(one, Compute) and (one.seconds * 1e6) % 1 for one in actions):
        notes.append("compute is rounded to microseconds")
    return notes


def _nodes(program: Program, rank: int, names: dict[Group, str]) -> list[ChakraNode]:
    """Return one rank's nodes, with their places as ids."""
    operations = program.operations(rank)
    order, messages = OperationOrder(operations), folded(operations)
    nodes: list[ChakraNode] = []
    ends: list[list[int]] = []
    for place, operation in enumerate(operations):
        depends = list(dict.fromkeys(node for other in order.before(place) for node in ends[other]))
        made = [
            ChakraNode(len(nodes) + number, operation.name, kind, depends, duration, attributes)
            for number, (kind, duration, attributes) in enumerate(
                () if place in messages else _figures(program, rank, operation, names)
            )
        ]
        for node in made if operation.category != ARRIVAL else ():
            if node.type == RECV and depends:
                node.attributes[RENDEZVOUS] = True
        nodes += made
        if not made:
            # operations without time end with their predecessors, some of which imply others
            implied = {other for one in depends for other in nodes[one].depends}
            depends = [one for one in depends if one not in implied]
        ends.append([node.id for node in made] or depends)
    return nodes


def _figures(
    program: Program, rank: int, operation: Operation, names: dict[Group, str]
) -> list[tuple[int, int, dict[str, Any]]]:
    """Return the type, the duration and the attributes of each node of an operation."""
    action = operation.action
    if operation.category == ARRIVAL:
        action = program.operations(rank)[operation.after[0]].action
    match action:
        case Compute(seconds):
            return [(COMPUTE, round(seconds * 1e6), {"is_cpu_op": False})]
        case Raise(message) | Lost(_, message):
            raise FormatError(
                f"{program.name}: rank {rank} fails at {operation.where}, unlike traces: {message}"
            )
        case Send() | Recv():
            return [_message(program, rank, action, names)]
        case Together(_, parts):
            return [_message(program, rank, part, names) for part in parts]
        case Call(group, name, collective):
            barrier = name in BARRIERS
            shares = collective.ranks if collective.kind in OF_EACH else 1
            attributes = {
                "is_cpu_op": False,
                "comm_type": KINDS.index("barrier" if barrier else collective.kind),
                "comm_size": 0 if barrier else collective.nbytes // shares,
                **_group(group, program, names),
            }
            if collective.kind in ROOTED:
                attributes["root"] = group.ranks[collective.root]
            return [(COLLECTIVE, 0, attributes)]
        case Wait() if operation.category == MARK:
            return [(METADATA, 0, {})]
    return []


def _message(
    program: Program, rank: int, part: Send | Recv, names: dict[Group, str]
) -> tuple[int, int, dict[str, Any]]:
    if part.peer == ANY:
        raise FormatError(
            f"{program.name}: rank {rank} receives from any source, but traces need one; write the source"
        )
    kind, end = (SEND, "comm_dst") if isinstance(part, Send) else (RECV, "comm_src")
    figures = {"comm_type": kind, "comm_size": part.nbytes, end: part.peer, "comm_tag": part.tag}
    return kind, 0, {"is_cpu_op": False, **figures, **_group(part.group, program, names)}


def _group(group: Group, program: Program, names: dict[Group, str]) -> dict[str, str]:
    """Return the group's ``pg_name``; that of all ranks, used first, has none."""
    if group not in names:
        is_world = group.ranks == tuple(range(program.ranks)) and "" not in names.values()
        names[group] = "" if is_world else str(len(names) + ("" not in names.values()))
    return {"pg_name": names[group]} if names[group] else {}


def program_of(
    ranks: Sequence[Sequence[ChakraNode]], groups: Mapping[str, Sequence[int]], name: str, library: str
) -> tuple[Program, list[str]]:
    """Return the program of all ranks' nodes, and notes on incomplete nodes, in sentences."""
    reader = _Reader(ranks, groups, library)
    lists = [reader.rank(rank) for rank in range(len(ranks))]
    return Program(name, len(ranks), lists.__getitem__), reader.notes()


class _Reader:
    """Maker of operations from nodes; ranks that name the same group share it."""

    def __init__(
        self, ranks: Sequence[Sequence[ChakraNode]], groups: Mapping[str, Sequence[int]], library: str
    ) -> None:
        self._ranks = ranks
        self._library = library
        self._launches = self._unsized = 0
        members = {name: list(some) for name, some in groups.items()}
        used: dict[str, dict[int, None]] = {}
        for rank, nodes in enumerate(ranks):
            for node in nodes:
                if pg_name := self._pg_name(node):
                    if rank not in members.get(pg_name, (rank,)):
                        raise node.wrong(
                            f"rank {rank} is not in group {pg_name}, which has {members[pg_name]}"
                        )
                    used.setdefault(pg_name, {})[rank] = None
        members = {name: list(some) for name, some in used.items()} | members
        self._groups = {"": Group("world", tuple(range(len(ranks))), library, BESIDE)}
        for pg_name, some in members.items():
            self._groups[pg_name] = Group(pg_name, tuple(some), library, BESIDE)
        self._calls = Groups(len(ranks), library)

    def rank(self, rank: int) -> list[Operation]:
        """Return one rank's operations."""
        place_of: dict[int, int] = {}
        operations: list[Operation] = []
        for node in self._ranks[rank]:
            place_of[node.id] = len(operations)
            action, category = self._action(rank, node)
            after = tuple(place_of[one] for one in node.depends)
            if isinstance(action, Recv) and after and node.attributes.get(RENDEZVOUS) is not True:
                operations.append(Operation(action, None, (), False, node.name, category, (node.place, 0)))
                after, action, category = (place_of[node.id], *after), Wait(), ARRIVAL
                place_of[node.id] += 1
            operations.append(Operation(action, None, after, False, node.name, category, (node.place, 0)))
        return closed(operations)

    def notes(self) -> list[str]:
        """Return notes on how incomplete nodes were converted."""
        notes = []
        if self._launches:
            notes.append(f"{self._launches} collectives or messages of the host are treated as compute")
        if self._unsized:
            notes.append(f"{self._unsized} collectives of unknown type or size are treated as compute")
        return notes

    def _pg_name(self, node: ChakraNode) -> str:
        value = node.attributes.get("pg_name", "")
        return value if isinstance(value, str) else str(value)

    def _action(self, rank: int, node: ChakraNode) -> tuple[Action, str]:
        if node.type == METADATA:
            return Wait(), MARK
        if node.type in (COLLECTIVE, SEND, RECV):
            on_host = node.attributes.get("is_cpu_op") is True
            unsized = node.type == COLLECTIVE and not {"comm_type", "comm_size"} <= node.attributes.keys()
            self._launches += on_host
            self._unsized += unsized and not on_host
            if not (on_host or unsized):
                return self._call(node) if node.type == COLLECTIVE else self._message(rank, node)
        return Compute(node.duration_us / 1e6), "compute"

    def _call(self, node: ChakraNode) -> tuple[Action, str]:
        group = self._groups[self._pg_name(node)]
        kind = KINDS[node.number("comm_type", len(KINDS) - 1)]
        nbytes = node.number("comm_size", MAX_SPACE)
        root = 0
        if kind in ROOTED and "root" in node.attributes:
            root = node.number("root", len(self._ranks) - 1)
            if root not in group.members:
                raise node.wrong(f"root {root} is not in group {group.name}, which has {list(group.ranks)}")
            root = group.ranks.index(root)
        name = kind
        if kind == "barrier":
            kind, nbytes = "all_reduce", 4 if group.rules.on_stream else 0
        try:
            call = self._calls.call(group, name, kind, nbytes, root, "sum")
        except ValueError as error:
            raise node.wrong(str(error)) from None
        return call, kind

    def _message(self, rank: int, node: ChakraNode) -> tuple[Action, str]:
        action, end = (Send, "comm_dst") if node.type == SEND else (Recv, "comm_src")
        group = self._groups[self._pg_name(node)]
        peer = node.number(end, len(self._ranks) - 1)
        if peer not in group.members:
            raise node.wrong(f"{end} {peer} is not in group {group.name}, which has {list(group.ranks)}")
        tag = node.number("comm_tag", 2**31 - 1, -(2**31)) if "comm_tag" in node.attributes else 0
        return action(group, peer, node.number("comm_size", MAX_SPACE), tag), "message"
