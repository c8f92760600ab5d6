"""Fields that questions about measurements share, and what is read for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ringside.sim.calibration import Calibration
from ringside.sim.questions.calibrated import calibration_option
from ringside.sim.questions.question import Question, argument, option
from ringside.sim.record import Record
from ringside.topologies import parse_settings
from ringside.validation.fallback import as_run, fell_back
from ringside.validation.machines import infer_machine, other_gpus
from ringside.validation.readers import read_all


def parse_paths(texts: Sequence[str]) -> tuple[Path, ...]:
    """Return texts as paths."""
    return tuple(map(Path, texts))


def files(help: str, metavar: str | None = None) -> Any:
    """Define a field of one or more files."""
    return argument(help, metavar=metavar, parse=parse_paths, repeats=True)


@dataclass(frozen=True, kw_only=True)
class OfRecords(Question):
    """Measurements, and the cluster that they were made on."""

    files: Sequence[Path] = files("Records, nccl-tests text or JSON, or published measurements.")
    cluster: str | None = option(
        "A named cluster, or a YAML file. See ringside topo.",
        metavar="NAME[:COUNT]|FILE", default=None, default_text="inferred from the files",
    )  # fmt: skip
    settings: Mapping[str, str] = option(
        "Change a figure or fabric: nic=25GB/s, latency=5us, fabric=torus; repeat for more.",
        "--set", "--settings", metavar="KEY=VALUE", factory=dict, parse=parse_settings, repeats=True,
    )  # fmt: skip

    def measured(self) -> "Measured":
        """Return what the files hold; raise `ringside.sim.record.RecordError` for files without records."""
        reading = read_all(self.files)
        if self.cluster is None:
            cluster, source = infer_machine(reading.records)
            others: Sequence[str] = ()
        else:
            cluster, source = self.cluster, "as given"
            others = other_gpus(reading.records, self.cluster)
        warning = f"measured on {', '.join(others)}, which {cluster} does not have" if others else ""
        return Measured(
            reading.records, cluster, source, self.settings, reading.skipped, reading.notes, warning
        )


@dataclass(frozen=True, kw_only=True)
class ByCalibration(OfRecords):
    """Measurements, and the calibration that they are compared with."""

    calibration: str | Calibration | None = calibration_option()


@dataclass(frozen=True)
class Measured:
    """Records and the cluster that they were made on.

    ``source`` says where the cluster's name is from. ``skipped`` counts rows without a usable time,
    ``reading_notes`` says what else the files leave out, ``warning`` that the GPUs are others.
    """

    records: Sequence[Record]
    cluster: str
    source: str
    settings: Mapping[str, str]
    skipped: int
    reading_notes: Sequence[str]
    warning: str

    @cached_property
    def ran(self) -> list[Record]:
        """The records with what NCCL used where it could not do as told."""
        return as_run(self.records, self.cluster, self.settings)

    def fallbacks(self, done: str) -> list[str]:
        """Return where NCCL could not do as told, a sentence each; ``done`` says what was done with rows."""
        return fell_back(self.records, self.ran, self.cluster, done)
