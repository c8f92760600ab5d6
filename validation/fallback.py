"""The algorithm that ran where NCCL_ALGO names nothing that the machine, or the collective, supports.

The newest NCCL refuses that (`ringside.sim.libraries.nccl.pins`), but a record has a time, so something ran.
Older releases (src/graph/tuning.cc, where it knows NVLSTree and not PAT) skip names that they do not know.
Where CollNet is not supported, which NVLS over several nodes needs too, and nothing else is left, they allow
trees and rings again; where a collective still has nothing, it uses the ring. MareNostrum 5's published runs
behave so: with CollNet, NVLS or PAT requested they take the time of the tuner's choice of tree and ring, with
NVLSTree that of the ring.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ringside.sim.libraries.nccl.cluster import communicator_of, is_machine
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.names import ALGORITHMS, FUNCTIONS
from ringside.sim.libraries.nccl.pins import Pins
from ringside.sim.libraries.nccl.tuner import cost_table
from ringside.sim.record import Record, collective_of
from ringside.topologies.catalogue import split
from ringside.validation.machines import with_nodes
from ringside.validation.measured.observed import is_of_nccl, settings_of


def as_run(records: Sequence[Record], cluster: str, values: Mapping[str, str]) -> list[Record]:
    """Return the records with the algorithms that NCCL could use in place of impossible ones."""
    if not is_machine(cluster):
        return list(records)
    machine = split(cluster)[0]
    known: dict[tuple[str | int, ...], str] = {}
    ran = []
    for record in records:
        key = (
            *(record.library, record.library_version, record.num_nodes, record.ranks, record.collective),
            *(record.algorithm, record.protocol, record.dtype, record.redop),
        )
        if key not in known:
            known[key] = _taken(record, machine, values)
        ran.append(replace(record, algorithm=known[key]))
    return ran


def fell_back(records: Sequence[Record], ran: Sequence[Record], cluster: str, used: str) -> list[str]:
    """Describe where another algorithm ran than recorded; ``used`` says how the row is handled."""
    return list(
        dict.fromkeys(
            f"NCCL_ALGO={record.algorithm} names nothing that {cluster} supports for {record.collective}, "
            f"so NCCL fell back; {used} as NCCL_ALGO={as_it_ran.algorithm}"
            for record, as_it_ran in zip(records, ran, strict=True)
            if as_it_ran.algorithm != record.algorithm
        )
    )


def _taken(record: Record, machine: str, values: Mapping[str, str]) -> str:
    """Return the NCCL_ALGO of the algorithm that ran: the record's own if it is possible."""
    if not is_of_nccl(record) or record.algorithm == "auto":
        return record.algorithm
    named = _without_unknown(record.algorithm)
    if record.collective not in FUNCTIONS:  # sends and receives have no choice
        return named or "auto"
    name = with_nodes(machine, record.num_nodes)
    comm = communicator_of(name, values, record.ranks, settings_of(replace(record, algorithm="auto")))
    if comm is None:
        return named or "auto"
    tries = [named] if named else []
    if not comm.collnet and not _beside_collnet(named, record.collective, comm):
        tries.append("tree,ring")
    return next((one for one in (*tries, "ring") if _can(comm, record, one)), record.algorithm)


def _without_unknown(text: str) -> str:
    """Remove names that NCCL never had from a plain list; a list with functions stays as it is."""
    if set(text) & set(":;"):
        return text
    names = {name.replace("_", "") for name in ALGORITHMS}
    tokens = text.removeprefix("^").split(",")
    kept = ",".join(token for token in tokens if token.lower().replace("_", "") in names)
    if text.startswith("^"):
        return f"^{kept}" if kept else "auto"
    return kept


def _beside_collnet(named: str, kind: str, comm: Communicator) -> bool:
    """Return whether the names include anything that such an NCCL considers possible without CollNet."""
    if named == "auto":
        return True
    allowed = Pins(named).algorithms[kind] if named else frozenset[str]()
    return bool(allowed & {"tree", "ring", "nvls" if comm.nodes == 1 else "nvls_tree"})


def _can(comm: Communicator, record: Record, algorithm: str) -> bool:
    """Return whether the tuner finds any pair within these algorithms."""
    collective = collective_of(record)
    pins = Pins("" if algorithm == "auto" else algorithm, comm.settings.pins.protocol)
    pinned = replace(comm, settings=replace(comm.settings, pins=pins))
    table = cost_table(pinned, record.collective, collective.dtype or "float32", collective.redop)
    return bool((table.bandwidth > 0).any())
