"""NCCL's rows from records: the communicator, the launch, the choice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringside.sim.libraries.find import Options
from ringside.sim.libraries.nccl.bind import nccl_settings
from ringside.sim.libraries.nccl.cluster import communicator_of
from ringside.sim.libraries.nccl.communicator import Communicator, SiteFacts
from ringside.sim.libraries.nccl.library import Nccl
from ringside.sim.libraries.nccl.message_times import FORMS, KINDS, Launch, Task
from ringside.sim.libraries.nccl.names import ALGORITHMS, PROTOCOLS
from ringside.sim.libraries.nccl.send_times import SEND_KINDS, SENDS
from ringside.sim.libraries.nccl.tuner import cost_table
from ringside.sim.record import Record
from ringside.validation.machines import with_nodes
from ringside.validation.measurements import options_of

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class NcclRow:
    """A record with the communicator that made it. ``run`` distinguishes runs."""

    record: Record
    comm: Communicator
    launch: Launch
    run: str


@dataclass(frozen=True, eq=False, slots=True)
class Chosen:
    """The tuner's choice per observation, and its certainty.

    ``kept`` are the positions of those whose pair has a form; ``sure`` is 1 where the second best estimate is
    at least a tenth above the best: closer estimates do not decide which one ran.
    """

    tasks: list[Task]
    kept: list[int]
    sure: Floats


_CLEAR = 0.1


def observed(
    records: Sequence[Record], machine: str, values: Mapping[str, str], kinds: Sequence[str] = KINDS
) -> list[NcclRow]:
    """Return the NCCL records of collectives with a form, on the named machine."""
    communicators: dict[tuple[int, int, Options], Communicator | None] = {}
    rows = []
    for record in records:
        if not is_observable(record, kinds):
            continue
        options = options_of(record)
        key = record.num_nodes, record.ranks, options
        if key not in communicators:
            name = with_nodes(machine, record.num_nodes, record.ranks)
            communicators[key] = communicator_of(name, values, record.ranks, nccl_settings(options))
        comm = communicators[key]
        if comm:
            launch = Launch(options.gpus_per_thread, options.threads_per_process, options.torch)
            rows.append(NcclRow(record, comm, launch, _run_of(record)))
    return rows


def is_observable(record: Record, kinds: Sequence[str] = KINDS) -> bool:
    """Return whether NCCL made the record of a collective that may have a form."""
    return record.library == Nccl.name and record.collective in kinds and record.ranks > 1


def _run_of(record: Record) -> str:
    """Return the facts common to all rows of one run."""
    fields = record.fingerprint.get("id", "")
    return f"{record.source} {fields} {record.collective} {record.algorithm} {record.protocol} {record.ranks}"


def choose(rows: Sequence[NcclRow], facts: SiteFacts) -> Chosen:
    """Return NCCL's choice per row under these facts, without rows that cannot run or have no form."""
    alike: dict[tuple[int, str, str, str], list[int]] = {}
    for place, row in enumerate(rows):
        record = row.record
        key = id(row.comm), record.collective, record.dtype or "float32", record.redop or "sum"
        alike.setdefault(key, []).append(place)
    tasks: dict[int, tuple[Task, float]] = {}
    for (_, kind, dtype, redop), places in alike.items():
        comm = facts.on(rows[places[0]].comm)
        sizes = [rows[place].record.nbytes for place in places]
        if kind in SEND_KINDS:
            tasks |= {
                place: (Task(comm, kind, nbytes, SENDS, rows[place].launch), 1.0)
                for place, nbytes in zip(places, sizes, strict=True)
            }
            continue
        beliefs = cost_table(comm, kind, dtype, redop).times_us(sizes).reshape(len(sizes), -1)
        order = np.argsort(beliefs, axis=1, kind="stable")
        for place, nbytes, belief, (best, second, *_) in zip(places, sizes, beliefs, order, strict=True):
            pair = list(ALGORITHMS)[best // len(PROTOCOLS)], list(PROTOCOLS)[best % len(PROTOCOLS)]
            if np.isfinite(belief[best]) and (kind, pair) in FORMS:
                sure = float(np.clip(np.log(belief[second] / belief[best]) / _CLEAR, 0.1, 1.0))
                tasks[place] = Task(comm, kind, nbytes, pair, rows[place].launch), sure
    kept = sorted(tasks)
    return Chosen([tasks[place][0] for place in kept], kept, np.array([tasks[place][1] for place in kept]))
