"""Small shipped schedules, and random mutations of them."""

import random
from collections.abc import Callable
from dataclasses import replace

from ringside.sim.algorithms import ALGORITHMS
from ringside.sim.collective import Collective
from ringside.sim.libraries import gloo
from ringside.sim.schedule import Schedule
from tests.sim.algorithms.rewriting import Move, moves, with_moves

Waves = list[list[Move]]

BUILDS = [
    *((kind, build) for builds in ALGORITHMS.values() for kind, build in builds.items()),
    *gloo.BUILDS.items(),
]


def shipped(chance: random.Random, most_ranks: int = 5) -> Schedule:
    """Draw an algorithm on a few ranks, with a few chunks."""
    kind, build = chance.choice(BUILDS)
    ranks = chance.randint(2, most_ranks)
    root = chance.randrange(ranks) if kind in ("broadcast", "reduce", "gather", "scatter") else 0
    return build(Collective(kind, ranks, chance.choice([64, 9000]), root=root))


def mutated(plan: Schedule, chance: random.Random) -> Schedule:
    """Return the schedule with one to three changes, most of them harmful."""
    waves = moves(plan)
    for _ in range(chance.choice([1, 1, 1, 2, 3])):
        chance.choice(MUTATIONS)(waves, chance, plan)
        waves = [wave for wave in waves if wave]
        if not waves:
            break
    pairs = sorted({(move.src, move.dst) for wave in waves for move in wave})
    after = plan.after
    if len(pairs) > 1 and chance.random() < 0.2:
        after = {chance.choice(pairs): chance.choice(pairs) for _ in range(chance.randint(1, 2))}
    return replace(with_moves(plan, waves), credits=chance.choice([1, 2, 8]), after=after)


def _drop(waves: Waves, chance: random.Random, plan: Schedule) -> None:
    wave = chance.choice(waves)
    wave.remove(chance.choice(wave))


def _double(waves: Waves, chance: random.Random, plan: Schedule) -> None:
    chance.choice(waves).append(chance.choice(chance.choice(waves)))


def _move(waves: Waves, chance: random.Random, plan: Schedule) -> None:
    wave = chance.choice(waves)
    move = wave.pop(chance.randrange(len(wave)))
    chance.choice(waves).append(move)


def _swap(waves: Waves, chance: random.Random, plan: Schedule) -> None:
    one, other = chance.choice(waves), chance.choice(waves)
    i, j = chance.randrange(len(one)), chance.randrange(len(other))
    one[i], other[j] = other[j], one[i]


def _merge(waves: Waves, chance: random.Random, plan: Schedule) -> None:
    if len(waves) > 1:
        first = chance.randrange(len(waves) - 1)
        waves[first].extend(waves.pop(first + 1))


def _change(waves: Waves, chance: random.Random, plan: Schedule) -> None:
    wave = chance.choice(waves)
    i = chance.randrange(len(wave))
    move, rank = wave[i], chance.randrange(plan.ranks)
    changes = [
        {"reduce": not move.reduce},
        {"channel": chance.randrange(3)},
        {"chunk": chance.randint(0, len(plan.chunks) - move.span)},
        {"dst": rank} if rank != move.src else {"channel": 1},
        {"src": rank} if rank != move.dst else {"channel": 2},
    ]
    wave[i] = move._replace(**chance.choice(changes))


def _detour(waves: Waves, chance: random.Random, plan: Schedule) -> None:
    """Route a direct transfer through a third rank."""
    where = chance.randrange(len(waves))
    move = chance.choice(waves[where])
    others = [rank for rank in range(plan.ranks) if rank not in (move.src, move.dst)]
    if others:
        waves[where].remove(move)
        between = chance.choice(others)
        waves[where].append(move._replace(dst=between))
        waves.insert(where + 1, [move._replace(src=between)])


def _stray(waves: Waves, chance: random.Random, plan: Schedule) -> None:
    """Add a sum to or from a rank whose part is overwritten later."""
    where = chance.randrange(len(waves))
    move = chance.choice(waves[where])
    others = [rank for rank in range(plan.ranks) if rank != move.dst]
    if not move.reduce:
        other = chance.choice(others)
        ends = {"src": other} if chance.random() < 0.5 else {"src": move.dst, "dst": other}
        waves[chance.randint(0, where)].append(move._replace(reduce=True, **ends))


MUTATIONS: list[Callable[[Waves, random.Random, Schedule], None]] = [
    _drop, _double, _move, _swap, _merge, _change, _change, _detour, *(_stray,) * 6
]  # fmt: skip
