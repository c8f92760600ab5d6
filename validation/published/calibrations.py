"""The shipped calibrations, fitted to the published measurements.

``python -m ringside.validation.published.calibrations [MACHINE ...]`` writes them. Parameters inside a node
are shared by all machines with the same nodes. Parameters between nodes are the machine's own; their priors
come from other machines on the same kind of network, those of a GPU's latencies from other machines with its
generation.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ringside.sim.calibration import SHIPPED, Calibration
from ringside.sim.libraries.nccl.communicator import find_system
from ringside.sim.libraries.nccl.message_times import KINDS
from ringside.sim.libraries.nccl.send_times import SEND_KINDS
from ringside.sim.record import Record, digest
from ringside.topologies.machine import box_of, machine, machines
from ringside.validation.machines import domains
from ringside.validation.measurements import options_of
from ringside.validation.nccl.calibrate import calibrate_nccl, unmeasured_sends
from ringside.validation.nccl.fit import fit
from ringside.validation.nccl.networks import KNOWN, NOTHING, Learnt, is_of_gpu, learnt
from ringside.validation.nccl.observed import is_observable, observed
from ringside.validation.nccl.priors import Prior
from ringside.validation.published import published

DATE = "2026-11-27"
"""When data were last added."""


def calibrations(names: Sequence[str] = ()) -> dict[str, Calibration]:
    """Return a calibration for every machine with published rows of a known form, or for the ``names``.

    A machine without rows of its own is calibrated by those of machines with the same nodes, if its network
    was measured elsewhere.
    """
    records = usable()
    measured = {record.cluster for record in records}
    made = {}
    for name in names or machines():
        if rows := of_machine(name, records):
            learned = learnt_around(name, records)
            if name in measured or learned.machines:
                made[name] = calibration(name, rows, learned)
    return made


def learnt_around(name: str, records: Sequence[Record]) -> Learnt:
    """Return what is learnt for a machine from others: from those on its network, and those with its GPU."""
    records = [record for record in records if record.collective in KINDS]
    measured = {record.cluster for record in records}
    several = {record.cluster for record in records if nodes_of(record) > 1}
    network, box = machine(name).network, machine(name).inside
    on_network = [other for other in several - {name} if network and machine(other).network == network]
    capability = find_system(name).compute_capability
    with_gpu = {
        machine(other).inside: [record for record in records if record.cluster in box_of(other)]
        for other in measured
        if find_system(other).compute_capability == capability and machine(other).inside != box
    }
    between = {other: posterior(other, of_machine(other, records)) for other in sorted(on_network)}
    of_gpu = {
        other: posterior(other, rows)
        for other, all_rows in sorted(with_gpu.items())
        if (rows := [record for record in all_rows if tells_latencies(record)])
    }
    learned = KNOWN.get(network or "", NOTHING).then(learnt(between))
    return learned.then(replace(learnt(of_gpu, is_of_gpu), machines=()))


def tells_latencies(record: Record) -> bool:
    """Return whether a row tells a GPU's latencies: no network and no thread of several GPUs hides them."""
    return nodes_of(record) == 1 and options_of(record).gpus_per_thread == 1


_POSTERIORS: dict[tuple[str, ...], list[tuple[Prior, float, float]]] = {}


def posterior(machine_name: str, records: Sequence[Record]) -> list[tuple[Prior, float, float]]:
    """Return each prior of a machine with the value and the deviation in log time that the rows leave."""
    key = machine_name, *map(digest, records)
    if key not in _POSTERIORS:
        rows = observed(records, machine_name, {})
        known = KNOWN.get(machine(machine_name).network or "", NOTHING)
        fitted = fit(rows, pooled=len({row.record.site for row in rows}) > 1, network=known)
        sigmas = np.sqrt(np.diag(fitted.model.covariance)).tolist()
        values = fitted.model.values
        _POSTERIORS[key] = [
            (prior, values[prior.name], sigma) for prior, sigma in zip(fitted.priors, sigmas, strict=True)
        ]
    return _POSTERIORS[key]


def usable() -> list[Record]:
    """Return the published rows that calibrations use."""
    kinds = (*KINDS, *SEND_KINDS)
    return [record for record in published() if is_observable(record, kinds) and not is_left_out(record)]


def is_left_out(record: Record) -> bool:
    """Return whether the row is superseded: of Polaris' settings the last counts, not sockets.

    Or whether its GPUs were slower than their algorithm: 16 GB300 kept to a ring's rate where NVLS is chosen.
    """
    return setting_of(record) not in ("", "_set5_")


def setting_of(record: Record) -> str:
    """Return which setting of its machine a row has: of libfabric on Polaris, the first is sockets."""
    known = "_set1_", "_set4_", "_set5_", "gb300_n4_r16_slurm"
    return next((one for one in known if one in record.fingerprint["id"]), "")


def of_machine(machine: str, records: Sequence[Record]) -> list[Record]:
    """Return a machine's rows for calibration: its own, and one-node rows of machines with the same nodes.

    A single site with rows on one node and on several uses only its own.
    """
    return [
        record
        for kinds in (KINDS, SEND_KINDS)
        for record in _of_kinds(machine, [one for one in records if one.collective in kinds])
    ]


def _of_kinds(machine: str, records: Sequence[Record]) -> list[Record]:
    own = [record for record in records if record.cluster == machine]
    counts, sites = {nodes_of(record) for record in own}, {record.site for record in own}
    mates = () if len(sites) == 1 and len(counts) > 1 and 1 in counts else mates_of(machine)
    return own + [record for record in records if record.cluster in mates and nodes_of(record) == 1]


def nodes_of(record: Record) -> int:
    """Return the number of nodes as NCCL counts them: machines whose GPUs NVLink joins."""
    return domains(record.cluster, record.num_nodes, record.ranks)


def mates_of(machine: str) -> tuple[str, ...]:
    """Return the other machines with the same nodes."""
    return tuple(mate for mate in box_of(machine) if mate != machine)


def calibration(machine: str, records: Sequence[Record], network: Learnt = NOTHING) -> Calibration:
    """Fit these rows as one machine's, with priors learnt from its ``network``."""
    collectives = [record for record in records if record.collective in KINDS]
    nccl = calibrate_nccl(collectives, machine, {}, network=network)
    sends = [record for record in records if record.collective in SEND_KINDS]
    return Calibration(
        cluster=machine,
        topology=machine,
        date=DATE,
        sources={record.fingerprint["id"]: record.source for record in records},
        fingerprint={},
        fits=(),
        used=tuple(sorted(digest(record) for record in records)),
        nccl=nccl,
        sends=calibrate_nccl(sends, machine, {}, SEND_KINDS, nccl.facts)
        if sends
        else unmeasured_sends(machine, nccl.facts),
    )


def write_all(calibrations: Mapping[str, Calibration], where: Path) -> None:
    """Write one file per machine."""
    where.mkdir(exist_ok=True)
    for name, one in calibrations.items():
        path = where / f"{name}.yaml"
        one.write(path)
        fitted = one.nccl or one.mpi
        print(path.name, fitted.described if fitted else "")


if __name__ == "__main__":
    write_all(calibrations(sys.argv[1:]), SHIPPED)
