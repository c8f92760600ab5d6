"""A GOAL file as a `Program`: its messages are of one group of all ranks, and concurrent, as its work is.

Messages up to LogGOPSim's own limit leave at once; larger ones leave when they are also received.
"""

from functools import cache

from ringside.sim.formats.goal import RECV, WORK, Goal, GoalNode
from ringside.sim.formats.order import ARRIVAL, BESIDE, closed
from ringside.sim.program.operations import ANY, Compute, Group, Operation, Program, Recv, Send, Wait

EAGER = 65_535
"""Bytes from which LogGOPSim holds a message back until it is received (its option S, by default)."""

BEGIN = "begin"
"""The category of an operation that stands for the beginning of the next one in its list.

It comes after that one's requirements and takes no time, so that other operations can begin with the next
one."""


def program_of(goal: Goal, name: str, library: str) -> Program:
    """Return the program, whose places are lines of the file ``name``."""
    group = Group("world", tuple(range(len(goal.ranks))), library, BESIDE)

    @cache
    def operations(rank: int) -> tuple[Operation, ...]:
        return tuple(closed(_operations(goal.ranks[rank], group, name)))

    return Program(name, len(goal.ranks), operations)


def _operations(nodes: list[GoalNode], group: Group, name: str) -> list[Operation]:
    begun = {other for node in nodes for other in node.irequires}
    operations: list[Operation] = []
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for place, node in enumerate(nodes):
        after = [ends[other] for other in node.requires] + [begins[other] for other in node.irequires]
        where = (name, node.line)
        arrival = bool(after) and node.kind == RECV and node.size <= EAGER and node.peer != ANY
        message = len(operations)
        if arrival:
            operations.append(_operation(node, group, (), where))
        if place in begun:
            begins[place] = len(operations)
            operations.append(Operation(Wait(), None, tuple(after), False, BEGIN, BEGIN, where))
            after = [begins[place]]
        ends[place] = len(operations)
        if arrival:
            operations.append(Operation(Wait(), None, (message, *after), False, node.kind, ARRIVAL, where))
        else:
            operations.append(_operation(node, group, tuple(after), where))
    return operations


def _operation(node: GoalNode, group: Group, after: tuple[int, ...], where: tuple[str, int]) -> Operation:
    if node.kind == WORK:
        return Operation(Compute(node.size / 1e9), None, after, False, "calc", "compute", where)
    action = (Recv if node.kind == RECV else Send)(group, node.peer, node.size, node.tag)
    return Operation(action, None, after, False, node.kind, "message", where)
