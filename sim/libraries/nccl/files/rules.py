"""Picks as rules of tuner plugins: NCCL's example plugin, and the tuner that is built into NCCLX.

NCCL's example plugin (plugins/tuner/example/plugin.c, v2.30.7) reads CSV:

    collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks,pipe_ops,reg_buff

The first rule that matches wins. The plugin requests one channel if no rule matches or a rule has -1. So
every rule names NCCL's own number of channels, and the other collectives of the same communicators get rules
with NCCL's own choice. Communicators without rules keep NCCL's algorithm, but have one channel until the
plugin is built with ``*nChannels = 0``, which leaves the number to NCCL. It knows no header, reads unknown
names as allreduce, ring or simple, and breaks lines at 255 characters. Ranges include both ends and leave no
gap: from 0 to the largest unsigned 64-bit number.

NCCLX reads JSON (github.com/meta-pytorch/torchcomms, comms/ncclx/meta/tuner/README.md). Where no rule
matches, NCCL's choice holds, as do its channels for rules that name none. So only picked sizes have rules.
Sizes there are bytes per rank: a boundary is exact to one byte per rank.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.names import FUNCTIONS
from ringside.sim.libraries.nccl.tuner import check_function, cost_table, launch
from ringside.sim.pick import Pair

MOST = 2**60
"""Bytes beyond which the choice is constant."""

NEAR = 1 / 64
"""Precision of a boundary, as a fraction of the size, for times other than the tuner's own."""

Value = TypeVar("Value")

Picked = Callable[[list[int]], list[Pair]]
"""A function from sizes to pairs."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Sizes with one pair, and one number of channels if stated (0: not); both ends included."""

    min_bytes: int
    max_bytes: int
    pair: Pair
    channels: int = 0


def own_stretches(comm: Communicator, kind: str, dtype: str, redop: str) -> list[Stretch]:
    """Return NCCL's own choice from 0 to `MOST` bytes, exact to the byte."""
    table = cost_table(comm, kind, dtype, redop)
    return _stretches(changes(_parts([0, *table.jumps(MOST), MOST]), table.pairs, {}))


def picked_stretches(
    comm: Communicator, kind: str, sizes: Sequence[int], picked: Picked, dtype: str, redop: str
) -> list[Stretch]:
    """Return the ``picked`` pairs between the least and the largest of ``sizes``.

    Below and above them NCCL's own choice holds. Boundaries are within `NEAR` of the change of winner,
    if it changes once between two neighbouring sizes.
    """
    sizes = sorted(sizes)
    table = cost_table(comm, kind, dtype, redop)
    inside = changes(list(pairwise(sizes)), picked, {}, close=NEAR)
    jumps = table.jumps(MOST)
    below = _parts([0, *(jump for jump in jumps if jump < sizes[0]), sizes[0]])
    above = _parts([sizes[-1] + 1, *(jump for jump in jumps if jump > sizes[-1] + 1), MOST])
    around = [changes(parts, table.pairs, {}) for parts in (below, above)]
    return _stretches([*around[0], *inside, *around[1]])


def with_channels(comm: Communicator, stretches: Sequence[Stretch]) -> list[Stretch]:
    """Yield the same stretches, split where NCCL's number of channels for a pair changes."""
    parted = []
    for stretch in stretches:

        def channels(sizes: list[int], pair: Pair = stretch.pair) -> list[int]:
            return [launch(comm, *pair, nbytes)[0] for nbytes in sizes]

        steps = changes([(stretch.min_bytes, stretch.max_bytes)], channels, {})
        ends = [start - 1 for start, _ in steps[1:]]
        for (start, count), end in zip(steps, [*ends, stretch.max_bytes], strict=True):
            parted.append(Stretch(start, end, stretch.pair, count))
    return parted


def changes(
    parts: list[tuple[int, int]],
    values: Callable[[list[int]], list[Value]],
    known: Mapping[int, Value],
    close: float = 0.0,
) -> list[tuple[int, Value]]:
    """Return the sizes at which a function changes its value.

    In each of ``parts``, from one size to another, the function must have one value wherever both ends of a
    stretch have it; then bisection locates every change, exactly or within the fraction ``close`` of the
    size. ``known`` are values computed before.
    """
    answers = dict(known)
    questions = sorted({size for part in parts for size in part if size not in answers})
    while parts:
        answers |= zip(questions, values(questions) if questions else [], strict=True)
        parts = [
            (low, high)
            for low, high in parts
            if answers[low] != answers[high] and high - low > max(1, close * low)
        ]
        middles = [(low + high) // 2 for low, high in parts]
        questions = [size for size in middles if size not in answers]
        halves = (((low, m), (m, high)) for (low, high), m in zip(parts, middles, strict=True))
        parts = [half for both in halves for half in both]
    starts: list[tuple[int, Value]] = []
    for size in sorted(answers):
        if not starts or starts[-1][1] != answers[size]:
            starts.append((size, answers[size]))
    return starts


def _parts(corners: Sequence[int]) -> list[tuple[int, int]]:
    return [(low, high - 1) for low, high in pairwise(corners) if low < high]


def _stretches(starts: list[tuple[int, Pair]]) -> list[Stretch]:
    parted = [start for place, start in enumerate(starts) if not place or starts[place - 1][1] != start[1]]
    ends = [start - 1 for start, _ in parted[1:]]
    return [Stretch(start, end, pair) for (start, pair), end in zip(parted, [*ends, MOST - 1], strict=True)]


MAX_BYTES = 2**64 - 1

ANY = -1


def tuner_csv(
    comms: Mapping[int, Communicator],
    kind: str,
    picked: Mapping[int, Sequence[Stretch]],
    dtype: str = "float32",
    redop: str = "sum",
) -> str:
    """Return the file's text for NCCL_TUNER_CONFIG_FILE; ``comms`` and ``picked`` pairs by node count."""
    check_function(kind)
    if not picked:
        raise ValueError("no picks to write rules of; pick for at least one node count and size")
    lines = list(_header(next(iter(comms.values())), kind))
    for nodes, stretches in sorted(picked.items()):
        comm = comms[nodes]
        lines += _csv_rules(comm, kind, stretches)
        for other in FUNCTIONS:
            if other != kind:
                lines += _csv_rules(comm, other, own_stretches(comm, other, dtype, redop))
    return "".join(f"{line}\n" for line in lines)


def _header(comm: Communicator, kind: str) -> Iterator[str]:
    yield f"# {kind} as picked by Ringside for {comm.system.name[:80]}, {comm.gpus} GPUs a node."
    yield "# The other collectives keep NCCL's own choice, and so do communicators without rules here; for"
    yield "# their channels build the plugin with *nChannels = 0 in place of 1 in pluginGetCollInfo."


def _csv_rules(comm: Communicator, kind: str, stretches: Sequence[Stretch]) -> Iterator[str]:
    for stretch in with_channels(comm, stretches):
        most = MAX_BYTES if stretch.max_bytes == MOST - 1 else stretch.max_bytes
        where = kind.replace("_", ""), stretch.min_bytes, most
        yield ",".join(map(str, (*where, *stretch.pair, stretch.channels, comm.nodes, comm.ranks, ANY, ANY)))


def tuner_json(comms: Mapping[int, Communicator], kind: str, picked: Mapping[int, Sequence[Stretch]]) -> str:
    """Return the file's text for NCCLX_TUNER_CONFIG_FILE; ``comms`` and ``picked`` pairs by node count."""
    check_function(kind)
    if not picked:
        raise ValueError("no picks to write rules of; pick for at least one node count and size")
    rules = [
        rule
        for nodes, stretches in sorted(picked.items())
        for rule in _json_rules(comms[nodes], kind, stretches)
    ]
    return json.dumps({"rules": rules}, indent=2) + "\n"


def _json_rules(comm: Communicator, kind: str, stretches: Sequence[Stretch]) -> list[dict[str, object]]:
    rules = []
    for stretch in stretches:
        least = (stretch.min_bytes + comm.ranks // 2) // comm.ranks
        end = (stretch.max_bytes + 1 + comm.ranks // 2) // comm.ranks
        if end == least:
            continue
        bounds = f"[{least},)" if stretch.max_bytes == MOST - 1 else f"[{least},{end - 1}]"
        algorithm, protocol = stretch.pair
        rules.append(
            {
                "filter": {
                    "collective": kind.replace("_", ""),
                    "bytesPerRank": bounds,
                    "nNodes": comm.nodes,
                    "nLocalRanks": comm.gpus,
                },
                "config": {"algorithm": algorithm, "protocol": protocol},
            }
        )
    return rules
