"""Carry out a schedule with real numbers, in a random legal order.

It shares only the schedule with the proof: it implements docs/design.md ("What a schedule means")
independently, one event at a time. A transfer starts, arrives and, where it adds, is added some time later.
Its source is read at the start or at the arrival, whichever is drawn; where ranks send copies, when what it
sends is complete, and nothing is added to that before. Connections start and arrive in order, with `credits`
transfers on the way at most.
"""

import heapq
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import count

from ringside.sim.schedule import Schedule
from tests.sim.algorithms.rewriting import Move, moves

START, ARRIVE, ADD = range(3)

Connection = tuple[int, int, int]


class Program:
    """What of a schedule is the same in all its executions."""

    def __init__(self, plan: Schedule) -> None:
        self.plan = plan
        self.moves: list[Move] = []
        self.waiters: list[list[int]] = []
        self.gates: list[int] = []
        self.connections: dict[Connection, list[int]] = defaultdict(list)
        self.copies_before: list[list[int]] = []
        """For each move that adds, where ranks send copies: the moves that copy what it adds to."""
        readers: dict[tuple[int, int], list[int]] = defaultdict(list)
        writers: dict[tuple[int, int], list[int]] = defaultdict(list)
        for wave in moves(plan):
            numbers = range(len(self.moves), len(self.moves) + len(wave))
            for number, move in zip(numbers, wave, strict=True):
                self.moves.append(move)
                self.waiters.append([])
                self.connections[connection_of(move)].append(number)
                before = {w for c in chunks_of(move) for w in writers[move.src, c]}
                self.gates.append(len(before))
                for writer in before:
                    self.waiters[writer].append(number)
                for chunk in chunks_of(move):
                    readers[move.src, chunk].append(number)
            for move in wave:
                reads = {r for c in chunks_of(move) for r in readers[move.dst, c]}
                self.copies_before.append(sorted(reads) if plan.copies and move.reduce else [])
            for number, move in zip(numbers, wave, strict=True):
                for chunk in chunks_of(move):
                    writers[move.dst, chunk].append(number)
        owners = [{block for block, _ in plan.collective.start(rank)} for rank in range(plan.ranks)]
        values = random.Random(len(self.moves))
        self.parts = [[values.getrandbits(60) for _ in range(len(plan.chunks))] for _ in range(plan.ranks)]
        self.parts += [[0] * len(plan.chunks) for _ in plan.switches]
        block = plan.chunks.block.tolist()
        totals = [
            sum(part[c] for part, owned in zip(self.parts, owners, strict=False) if block[c] in owned)
            for c in range(len(block))
        ]
        self.wanted = [
            (rank, chunk, totals[chunk])
            for rank in range(plan.ranks)
            for wanted, _ in plan.collective.goal(rank)
            for chunk in plan.chunks.of_block[wanted]
        ]


def chunks_of(move: Move) -> range:
    return range(move.chunk, move.chunk + move.span)


def connection_of(move: Move) -> Connection:
    return move.src, move.dst, move.channel


def urgency(program: Program, chance: random.Random) -> Callable[[int, int], float]:
    """Return priorities of events: random, or with some slow transfers, connections or ranks."""
    number = len(program.moves)
    match chance.randrange(5):
        case 0:
            return lambda transfer, event: chance.random()
        case 1:
            late = [chance.random() for _ in range(number)]
            return lambda transfer, event: late[transfer]
        case 2:
            slow = {connection: chance.random() for connection in program.connections}
            late = [slow[connection_of(move)] for move in program.moves]
            return lambda transfer, event: late[transfer] + chance.random() / 9
        case 3:
            ranks = [chance.random() for _ in range(program.plan.ends)]
            late = [ranks[move.src] for move in program.moves]
            return lambda transfer, event: late[transfer] + chance.random() / 9
    pairs = [chance.random() for _ in range(3 * number)]
    return lambda transfer, event: pairs[3 * transfer + event]


class Execution:
    """One random legal order, to the end; ``data`` is then each rank's part of each chunk."""

    def __init__(self, program: Program, chance: random.Random) -> None:
        self.program = program
        self.data = [part.copy() for part in program.parts]
        self.finished = 0
        self.gates = program.gates.copy()
        self.reads_late = [chance.random() < 0.5 for _ in program.moves]
        self.freight: dict[int, list[int]] = {}
        self.held_back: list[int] = []
        """Sums that have come before what they are to be added to was copied."""
        self.started = dict.fromkeys(program.connections, 0)
        self.arrived = dict.fromkeys(program.connections, 0)
        # only the simulated world keeps ``after``
        self.after = program.plan.after if chance.random() < 0.5 else {}
        self.to_come = Counter((move.src, move.dst) for move in program.moves)
        self.urgency, self.tie = urgency(program, chance), count()
        self.possible: list[tuple[float, int, int, int]] = []
        self.seen: set[int] = set()
        for transfer, gates in enumerate(self.gates):
            if not gates:
                self.copy(transfer)
        for connection in program.connections:
            self.try_start(connection)
        while self.possible:
            *_, transfer, event = heapq.heappop(self.possible)
            (self.start, self.arrive, self.add)[event](transfer)

    def may(self, transfer: int, event: int) -> None:
        heapq.heappush(self.possible, (self.urgency(transfer, event), next(self.tie), transfer, event))

    def try_start(self, connection: Connection) -> None:
        line, nth = self.program.connections[connection], self.started[connection]
        if nth == len(line) or self.gates[line[nth]] or line[nth] in self.seen:
            return
        held = self.to_come[self.after[connection[:2]]] if connection[:2] in self.after else 0
        if not held and nth - self.arrived[connection] < self.program.plan.credits:
            self.seen.add(line[nth])
            self.may(line[nth], START)

    def read(self, transfer: int) -> None:
        move = self.program.moves[transfer]
        self.freight[transfer] = [self.data[move.src][chunk] for chunk in chunks_of(move)]

    def copy(self, transfer: int) -> None:
        if self.program.plan.copies:
            self.read(transfer)
            held, self.held_back = self.held_back, []
            for other in held:
                self.may_add(other)

    def may_add(self, transfer: int) -> None:
        if all(early in self.freight for early in self.program.copies_before[transfer]):
            self.may(transfer, ADD)
        else:
            self.held_back.append(transfer)

    def start(self, transfer: int) -> None:
        connection = connection_of(self.program.moves[transfer])
        if not self.reads_late[transfer] and not self.program.plan.copies:
            self.read(transfer)
        if self.started[connection] == self.arrived[connection]:
            self.may(transfer, ARRIVE)
        self.started[connection] += 1
        self.try_start(connection)

    def arrive(self, transfer: int) -> None:
        move = self.program.moves[transfer]
        connection = connection_of(move)
        if self.reads_late[transfer] and not self.program.plan.copies:
            self.read(transfer)
        self.arrived[connection] += 1
        if self.arrived[connection] < self.started[connection]:
            self.may(self.program.connections[connection][self.arrived[connection]], ARRIVE)
        self.try_start(connection)
        self.to_come[connection[:2]] -= 1
        if not self.to_come[connection[:2]] and self.after:
            for other in self.program.connections:
                self.try_start(other)
        if move.reduce:
            self.may_add(transfer)
        else:
            self.data[move.dst][move.chunk : move.chunk + move.span] = self.freight[transfer]
            self.complete(transfer)

    def add(self, transfer: int) -> None:
        move = self.program.moves[transfer]
        for chunk, value in zip(chunks_of(move), self.freight[transfer], strict=True):
            self.data[move.dst][chunk] += value
        self.complete(transfer)

    def complete(self, transfer: int) -> None:
        self.finished += 1
        for waiter in self.program.waiters[transfer]:
            self.gates[waiter] -= 1
            if not self.gates[waiter]:
                self.copy(waiter)
            self.try_start(connection_of(self.program.moves[waiter]))


def right(program: Program, chance: random.Random) -> bool:
    """Return whether a random legal order ends with the correct result on every rank."""
    done = Execution(program, chance)
    return done.finished == len(program.moves) and all(
        done.data[rank][chunk] == total for rank, chunk, total in program.wanted
    )
