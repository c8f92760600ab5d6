"""GOAL, the text that LogGOPSim reads (github.com/spcl/LogGOPSim, txt2bin.re): sends, receives and work.

A node begins when all nodes it requires have ended and all nodes it irequires have begun. Work is in
nanoseconds. Messages meet by sender, receiver and tag.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError

from ringside.sim.collective import MAX_SPACE
from ringside.sim.formats import FormatError
from ringside.sim.formats.order import ARRIVAL, BESIDE, closed, in_order
from ringside.sim.program.operations import ANY, Compute, Group, Operation, Program, Recv, Send, Wait
from ringside.topologies.units import MAX_DURATION

MAX_TAG = 2**32 - 2
"""Tags are 32 bits wide, and the last one means any."""

MAX_RANKS = 1_000_000
"""Maximum ranks of a file."""

MAX_NODES = 5_000_000
"""Maximum nodes of a file that is read or written."""

WORK, SEND, RECV = "calc", "send", "recv"


@dataclass(slots=True)
class GoalNode:
    """One node of a rank: ``size`` is bytes, or nanoseconds of work; others are named by their places."""

    kind: str
    size: int
    peer: int = ANY
    tag: int = 0
    requires: list[int] = field(default_factory=list)
    irequires: list[int] = field(default_factory=list)
    line: int = 0


_LABEL = "[a-zA-Z][a-zA-Z0-9_]*"
_NODE = re.compile(
    rf"(?:(?P<label>{_LABEL})\s*:\s*)?(?:"
    r"calc\s+(?P<work>\d+)(?:\s+cpu\s+(?P<cpu>\d+))?"
    r"|(?P<kind>send|recv)\s+(?P<size>\d+)\s*b\s+(?P<way>to|from)\s+(?P<peer>-1|\d+)(?:\s+tag\s+(?P<tag>-1|\d+))?"
    r"(?:\s+cpu\s+(?P<on>\d+))?(?:\s+nic\s+(?P<nic>\d+))?)",
    re.ASCII,
)
_EDGE = re.compile(rf"(?P<later>{_LABEL})\s+(?P<kind>i?requires)\s+(?P<earlier>{_LABEL})", re.ASCII)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_RANK = re.compile(r"rank\s+(\S+?)\s*\{", re.ASCII)


@dataclass(slots=True)
class Goal:
    """A file's ranks; ``placed`` counts the nodes that name a processor or a card other than the first."""

    ranks: list[list[GoalNode]]
    placed: int = 0


def dumps(ranks: Sequence[Sequence[GoalNode]]) -> str:
    """Return the text of ranks' nodes, labelled by their places."""
    return "\n".join(_lines(ranks)) + "\n"


def _lines(ranks: Sequence[Sequence[GoalNode]]) -> Iterator[str]:
    yield f"num_ranks {len(ranks)}"
    for rank, nodes in enumerate(ranks):
        yield ""
        yield f"rank {rank} {{"
        for place, node in enumerate(nodes, start=1):
            if node.kind == WORK:
                yield f"l{place}: calc {node.size}"
            else:
                way = "to" if node.kind == SEND else "from"
                yield f"l{place}: {node.kind} {node.size}b {way} {node.peer} tag {node.tag}"
            yield from (f"l{place} requires l{other + 1}" for other in node.requires)
            yield from (f"l{place} irequires l{other + 1}" for other in node.irequires)
        yield "}"


def loads(text: str, name: str) -> Goal:
    """Return the ranks of a text, called ``name`` in errors; nodes come in a valid order."""
    return _Reader(name).read(text)


class _Reader:
    """Reader line by line; its errors name the line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.line = 0
        self.count = 0
        self.goal = Goal([])
        self.blocks: dict[int, list[GoalNode]] = {}

    def read(self, text: str) -> Goal:
        """Read all ranks."""
        # a comment's lines still count
        text = _COMMENT.sub(lambda match: "\n" * match.group().count("\n") or " ", text)
        lines = iter(enumerate(text.split("\n"), start=1))
        ranks = 0
        for self.line, raw in lines:
            tokens = raw.split()
            if not tokens:
                continue
            if tokens[0] == "num_ranks" and len(tokens) == 2 and not ranks:
                ranks = self._number(tokens[1], "ranks", MAX_RANKS)
                if not ranks:
                    raise self._wrong("num_ranks is 0; write 1 or more")
            elif ranks and (opened := _RANK.fullmatch(raw.strip())):
                rank = self._number(opened[1], "a rank", MAX_RANKS)
                if rank >= ranks:
                    raise self._wrong(f"rank {rank} of {ranks}; allowed: 0 to {ranks - 1}")
                if rank in self.blocks:
                    raise self._wrong(f"rank {rank} is defined a second time")
                self.blocks[rank] = self._rank(lines, ranks)
            else:
                wanted = "rank N {" if ranks else "num_ranks N"
                raise self._wrong(f"{raw.strip()[:40]!r} where {wanted!r} is expected")
        if not ranks:
            raise self._wrong("no num_ranks; a GOAL file begins with num_ranks N")
        missing = [rank for rank in range(ranks) if rank not in self.blocks]
        if missing:
            raise self._wrong(f"rank {missing[0]} is missing: {len(missing)} of {ranks} ranks have no block")
        self.goal.ranks = [self.blocks[rank] for rank in range(ranks)]
        return self.goal

    def _rank(self, lines: Iterator[tuple[int, str]], ranks: int) -> list[GoalNode]:
        """Return the nodes in one rank's braces."""
        nodes: list[GoalNode] = []
        labels: dict[str, int] = {}
        for self.line, raw in lines:
            text = raw.strip()
            if text == "}":
                return self._ordered(nodes)
            if node := _NODE.fullmatch(text):
                label = node["label"]
                if label in labels:
                    raise self._wrong(f"label {label} is defined a second time")
                if label:
                    labels[label] = len(nodes)
                nodes.append(self._node(node, ranks))
                self.count += 1
                if self.count > MAX_NODES:
                    raise self._wrong(f"more than {MAX_NODES:,} nodes")
            elif edge := _EDGE.fullmatch(text):
                ends = []
                for label in (edge["later"], edge["earlier"]):
                    if label not in labels:
                        raise self._wrong(f"no label {label} above in this rank")
                    ends.append(labels[label])
                later = nodes[ends[0]]
                (later.requires if edge["kind"] == "requires" else later.irequires).append(ends[1])
            elif text:
                raise self._wrong(f"{text[:60]!r} is not a send, recv, calc, requires or irequires")
        raise self._wrong("the file ends inside a rank; '}' is missing")

    def _node(self, match: "re.Match[str]", ranks: int) -> GoalNode:
        self.goal.placed += any((match[key] or "").strip("0") for key in ("cpu", "on", "nic"))
        if match["work"] is not None:
            return GoalNode(
                WORK, self._number(match["work"], "nanoseconds", int(MAX_DURATION * 1e9)), line=self.line
            )
        kind = match["kind"]
        if match["way"] != ("to" if kind == SEND else "from"):
            raise self._wrong(f"{kind} {match['way']}; write send ... to, recv ... from")
        peer = int(match["peer"]) if len(match["peer"]) < 12 else ranks
        if peer >= ranks or (peer == ANY and kind == SEND):
            raise self._wrong(f"{kind} {match['way']} rank {match['peer']}; allowed: 0 to {ranks - 1}")
        if match["tag"] == "-1":
            raise self._wrong("a receive of any tag, which programs do not have; write the tag")
        tag = self._number(match["tag"] or "0", "a tag", MAX_TAG)
        return GoalNode(kind, self._number(match["size"], "bytes", MAX_SPACE), peer, tag, line=self.line)

    def _number(self, text: str, what: str, most: int) -> int:
        if not (text.isascii() and text.isdecimal()) or len(text) > 20 or int(text) > most:
            raise self._wrong(f"{text[:30]!r} for {what}; write a whole number, 0 to {most}")
        return int(text)

    def _ordered(self, nodes: list[GoalNode]) -> list[GoalNode]:
        """Return the nodes in topological order, otherwise in the file's order."""
        try:
            order = in_order([(*node.requires, *node.irequires) for node in nodes])
        except CycleError as error:
            self.line = nodes[error.args[1]].line
            raise self._wrong("this node waits for itself through its requirements") from None
        place_of = {old: new for new, old in enumerate(order)}
        for node in nodes:
            node.requires = [place_of[other] for other in node.requires]
            node.irequires = [place_of[other] for other in node.irequires]
        return [nodes[old] for old in order]

    def _wrong(self, message: str) -> FormatError:
        return FormatError(f"{self.name}, line {self.line}: {message}")


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
