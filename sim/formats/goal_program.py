"""A GOAL file as a `Program`: its messages are of one group of all, beside each other, as its work is."""

from functools import cache

from sim.formats.goal import RECV, WORK, Goal, Node
from sim.formats.order import BESIDE, closed
from sim.program.operations import Compute, Group, Operation, Program, Recv, Send, Wait

BEGIN = "begin"
"""The category of an operation that stands for the beginning of the next one in its list.

It comes after what that one requires and takes no time, so that what may begin with the next one comes after
it.
"""


def program_of(goal: Goal, name: str, library: str) -> Program:
    """The program, whose places are lines of the file ``name``."""
    group = Group("world", tuple(range(len(goal.ranks))), library, BESIDE)

    @cache
    def operations(rank: int) -> tuple[Operation, ...]:
        return tuple(closed(_operations(goal.ranks[rank], group, name)))

    return Program(name, len(goal.ranks), operations)


def _operations(nodes: list[Node], group: Group, name: str) -> list[Operation]:
    begun = {other for node in nodes for other in node.irequires}
    found: list[Operation] = []
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for place, node in enumerate(nodes):
        after = [ends[other] for other in node.requires] + [begins[other] for other in node.irequires]
        where = (name, node.line)
        if place in begun:
            begins[place] = len(found)
            found.append(Operation(Wait(), None, tuple(after), False, BEGIN, BEGIN, where))
            after = [begins[place]]
        ends[place] = len(found)
        found.append(_operation(node, group, tuple(after), where))
    return found


def _operation(node: Node, group: Group, after: tuple[int, ...], where: tuple[str, int]) -> Operation:
    if node.kind == WORK:
        return Operation(Compute(node.size / 1e9), None, after, False, "calc", "compute", where)
    action = (Recv if node.kind == RECV else Send)(group, node.peer, node.size, node.tag)
    return Operation(action, None, after, False, node.kind, "message", where)
