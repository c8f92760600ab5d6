"""The shipped calibrations, fitted to the published measurements.

``python -m ringside.validation.published.calibrations`` writes them. Parameters inside a node are shared by
all machines with the same nodes, parameters between nodes are the machine's own.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from ringside.sim.calibration import SHIPPED, Calibration
from ringside.sim.record import Record, digest
from ringside.topologies.machine import box_of
from ringside.validation.machines import domains
from ringside.validation.nccl.calibrate import calibrate_nccl
from ringside.validation.nccl.observed import is_observable
from ringside.validation.published import published

DATE = "2026-11-22"
"""When data were last added."""


def calibrations() -> dict[str, Calibration]:
    """Return a calibration for every machine with published rows of a known form."""
    records = usable()
    machines = sorted({record.cluster for record in records})
    return {machine: calibration(machine, of_machine(machine, records)) for machine in machines}


def usable() -> list[Record]:
    """Return the published rows that calibrations use."""
    return [record for record in published() if is_observable(record) and not is_left_out(record)]


def is_left_out(record: Record) -> bool:
    """Return whether the row is superseded: of Polaris' two libfabric settings the later counts.

    Or whether its GPUs were slower than their algorithm: 16 GB300 kept to a ring's rate where NVLS is chosen.
    """
    return any(part in record.fingerprint["id"] for part in ("_set4_", "gb300_n4_r16_slurm"))


def of_machine(machine: str, records: Sequence[Record]) -> list[Record]:
    """Return a machine's rows for calibration: its own, and one-node rows of machines with the same nodes.

    A single site with rows on one node and on several uses only its own.
    """
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


def calibration(machine: str, records: Sequence[Record]) -> Calibration:
    """Fit these rows as one machine's."""
    return Calibration(
        cluster=machine,
        topology=machine,
        date=DATE,
        sources={record.fingerprint["id"]: record.source for record in records},
        fingerprint={},
        fits=(),
        used=tuple(sorted(digest(record) for record in records)),
        nccl=calibrate_nccl(records, machine, {}),
    )


def write_all(calibrations: Mapping[str, Calibration], where: Path) -> None:
    """Write one file per machine."""
    where.mkdir(exist_ok=True)
    for machine, one in calibrations.items():
        path = where / f"{machine}.yaml"
        one.write(path)
        fitted = one.nccl or one.mpi
        print(path.name, fitted.described if fitted else "")


if __name__ == "__main__":
    write_all(calibrations(), SHIPPED)
