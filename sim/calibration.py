"""Calibration files, and the values of ``--calibration``.

A file holds parameters for each way of carrying out a collective, and provenance. Ringside ships NCCL's, one
per machine with published measurements.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from ringside.sim.parameters import Parameters, check_within
from ringside.topologies import strict_yaml
from ringside.topologies.disk import regular, write_file
from ringside.topologies.graph import Topology, name_of
from ringside.topologies.load import parse_name
from ringside.topologies.machine import box_of, nvidia_machines
from ringside.topologies.names import one_of
from ringside.topologies.strict_yaml import complaints

if TYPE_CHECKING:  # textbook questions must not import NCCL's modules
    from ringside.sim.libraries.mpi.measured import StoredMpi
    from ringside.sim.libraries.nccl.fabric_factors import FabricFactor
    from ringside.sim.libraries.nccl.stored import Stored

log = logging.getLogger(__name__)

VERSION = 2
READABLE = (1, 2)
"""2 (2026-11) adds NCCL's measured model."""

OPTIONAL = ("sends", "mpi", "settings", "fabric")
"""Fields that a file omits if they are empty."""

AUTO, NONE, FAMILY = "auto", "none", "family:"
"""Values of ``--calibration``: the machine's own; uncalibrated; another machine's."""

SHIPPED = Path(__file__).parent / "libraries" / "nccl" / "shipped"
SHIPPED_MPI = Path(__file__).parent / "libraries" / "mpi" / "shipped"
"""Folders of the shipped calibrations, one file per machine: NCCL's and MPI's."""


class CalibrationError(ValueError):
    """A calibration that cannot be read or does not apply; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Parameters fitted to the records of one library, algorithm and protocol.

    ``interval`` gives each free parameter's 5th and 95th percentile over bootstrap fits; ``fixed`` says why a
    parameter was not free. ``band`` spans measured over predicted time for nine of ten rows. ``median_error``
    and ``p90_error`` are absolute relative errors over the ``rows`` fitted; ``worst`` names the worst row.
    """

    library: str
    algorithm: str
    protocol: str
    parameters: Parameters
    interval: dict[str, tuple[float, float]]
    fixed: dict[str, str]
    band: tuple[float, float]
    rows: int
    median_error: float
    p90_error: float
    worst: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in ("rows", "median_error", "p90_error"):
            check_within(name, getattr(self, name))
        for name, ends in {"band": self.band, **self.interval}.items():
            for end in ends:
                check_within(name, end)
            if ends[0] > ends[1]:
                raise ValueError(f"{name} is from {ends[0]} to {ends[1]}; write the lower end first")
        if not self.band[0] <= 1 <= self.band[1]:
            raise ValueError(f"band is from {self.band[0]} to {self.band[1]}; write ends on both sides of 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """All fits of one cluster. ``used`` holds the digests of the records that determined any parameter.

    ``settings`` are the measured cluster's; under other settings times are scaled
    (`ringside.sim.libraries.scaling`). ``nccl`` was fitted to NCCL on machines that its model knows,
    ``sends`` to its sends and receives, ``mpi`` to MPI, ``fits`` to everything else. ``fabric`` are factors
    of NCCL's times at a site by number of nodes.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    cluster: str
    topology: str
    date: str
    sources: dict[str, str]
    fingerprint: dict[str, str]
    fits: tuple[Fit, ...]
    used: tuple[str, ...] = field(repr=False)
    nccl: "Stored | None" = None
    sends: "Stored | None" = None
    mpi: "StoredMpi | None" = None
    settings: dict[str, str] = field(default_factory=dict)
    fabric: "tuple[FabricFactor, ...]" = ()

    def __post_init__(self) -> None:
        ways = [f"{fit.library}/{fit.algorithm}/{fit.protocol}" for fit in self.fits]
        repeated = [way for way, times in Counter(ways).items() if times > 1]
        if repeated:
            raise ValueError(f"{repeated[0]} is fitted twice; remove one of them")

    def __str__(self) -> str:
        return f"calibration of {self.cluster}"

    def settings_on(self, cluster: "str | Topology") -> dict[str, str]:
        """Return the measured settings if they apply to the cluster of this name; otherwise its defaults."""
        name = cluster if isinstance(cluster, str) else name_of(cluster)
        return self.settings if parse_name(self.topology).machine == parse_name(name).machine else {}

    def fit_for(self, library: str, algorithm: str, protocol: str) -> Fit | None:
        """Return the fit of exactly this way of carrying out a collective."""
        for fit in self.fits:
            if (fit.library, fit.algorithm, fit.protocol) == (library, algorithm, protocol):
                return fit
        return None

    def content(self) -> dict[str, Any]:
        """Return the file's content."""
        facts = {key: value for key, value in asdict(self).items() if key not in OPTIONAL or value}
        return {"calibration": VERSION, **_plain(facts)}

    def write(self, path: Path) -> None:
        """Write the YAML file atomically."""
        content = self.content()
        write_file(path, yaml.dump(content, Dumper=_Dumper, sort_keys=False, width=110))


def read(path: Path) -> Calibration:
    """Return the calibration in a YAML file; raise `CalibrationError` with all that is wrong with it."""
    try:
        content = strict_yaml.loads(regular(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CalibrationError(f"{path}: cannot be read: {' '.join(str(error).split())}") from None
    return _calibration(content, path)


def read_own(path: Path) -> Calibration:
    """Read a generated calibration file: as `read`, in a fifteenth of the time."""
    return _calibration(yaml.load(path.read_text(encoding="utf-8"), _Loader), path)


def find_calibration(given: "Calibration | str | None", cluster: str) -> "Calibration | str | None":
    """Resolve ``--calibration``; ``auto`` stays, as each library interprets it.

    A file's calibration must be of the cluster's machine if NCCL's model covers both.
    """
    if given in (NONE, AUTO) or not isinstance(given, str):
        return None if given == NONE else given
    text = given
    if text.startswith(FAMILY):
        return family(text)
    if not Path(text).exists():
        known = one_of((AUTO, NONE), text, also=f", {FAMILY}NAME, or an existing file")
        raise CalibrationError(f"{text}: no such file; write {known}")
    calibration = read(Path(text))
    log.info("calibration of %s, of %s, read from %s", calibration.cluster, calibration.date, text)
    if calibration.nccl:
        fitted, machine = calibration.nccl.machine, parse_name(cluster).machine
        if fitted != machine and {fitted, machine} <= set(nvidia_machines()):
            raise CalibrationError(
                f"{text} is a calibration of {fitted}, not of {machine}; write --cluster {fitted}"
            )
    return calibration


def measured_machines() -> list[str]:
    """Return the machines with a shipped calibration."""
    return sorted(shipped_files())


def shipped_files() -> dict[str, Path]:
    """Return the shipped calibrations, by machine."""
    return {path.stem: path for where in (SHIPPED, SHIPPED_MPI) for path in where.glob("*.yaml")}


@cache
def shipped(machine: str) -> Calibration | None:
    """Return the shipped calibration of a machine, ``None`` if there is none."""
    path = shipped_files().get(machine)
    log.info("shipped calibration of %s: %s", machine, path or "nothing")
    return read_own(path) if path else None


def bare(machine: str) -> Calibration:
    """Return a calibration without fits, for what a site alone knows of a machine."""
    return Calibration(
        cluster=machine, topology=machine, date="", sources={}, fingerprint={}, fits=(), used=()
    )


def why_not(machine: str) -> str:
    """Return why a machine has no calibration, and the machine with the most similar one."""
    near = [mate for mate in box_of(machine) if mate in measured_machines()]
    hint = f"; {FAMILY}{near[0]} has the same box" if near else ""
    return f"no measurement of {machine} is shipped{hint}"


def family(text: str) -> Calibration:
    """Resolve ``family:NAME``."""
    name = text.removeprefix(FAMILY)
    calibration = shipped(name)
    if calibration is None:
        raise CalibrationError(
            f"no calibration of {name!r} is shipped; write {one_of(measured_machines(), name)}"
        )
    return calibration


def _calibration(content: Any, path: Path) -> Calibration:
    # types in the annotations of `Calibration`
    from ringside.sim.libraries.mpi.measured import StoredMpi
    from ringside.sim.libraries.nccl.fabric_factors import FabricFactor
    from ringside.sim.libraries.nccl.stored import Stored

    if not isinstance(content, dict) or content.pop("calibration", None) not in READABLE:
        raise CalibrationError(f"{path}: not a calibration of version {VERSION}; make one with calibrate")
    try:
        return TypeAdapter(Calibration).validate_python(content)
    except ValidationError as error:
        allowed = [
            entry.name
            for kind in (Calibration, Fit, Parameters, Stored, StoredMpi, FabricFactor)
            for entry in fields(kind)
        ]
        raise CalibrationError(complaints(error, str(path), list(dict.fromkeys(allowed)))) from None


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # PyYAML may have been built without libyaml


class _Dumper(yaml.SafeDumper):
    """Dumper that writes tables as lines."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar(
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    ),
)


def _plain(value: Any) -> Any:
    """Convert tuples, which YAML would tag, to lists."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner) for inner in value]
    return value
