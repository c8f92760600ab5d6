"""Fields that several questions share, each defined once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ringside.sim.calibration import (
    AUTO,
    FAMILY,
    NONE,
    Calibration,
    CalibrationError,
    find_calibration,
    shipped,
    why_not,
)
from ringside.sim.collective import ITEMSIZE, REDOPS
from ringside.sim.libraries.find import LIBRARIES, Options, find_library
from ringside.sim.libraries.library import Library
from ringside.sim.network.message import NETWORKS
from ringside.sim.questions.anchor import Anchor
from ringside.sim.questions.question import Question, QuestionError, option
from ringside.topologies.catalogue import parse_settings, split
from ringside.topologies.load import in_catalogue
from ringside.topologies.placement import EVEN, SPREADS
from ringside.topologies.units import format_size, parse_size


def _parse_sizes(text: str) -> tuple[int, ...]:
    return tuple(map(parse_size, text.split(",")))


def choices(names: Iterable[str]) -> str:
    """Return a metavar that lists what may be written."""
    return "|".join(names)


@dataclass(frozen=True, kw_only=True)
class OnCluster(Question):
    """Where: a cluster, what is changed on it, and the ranks in use."""

    cluster: str = option("A named cluster, or a YAML file. See ringside topo.", metavar="NAME[:COUNT]|FILE")
    settings: Mapping[str, str] = option(
        "Change a figure or fabric: nic=25GB/s, latency=5us, fabric=torus; repeat for more.",
        "--set", "--settings", metavar="KEY=VALUE", factory=dict, parse=parse_settings, repeats=True,
    )  # fmt: skip
    ranks: int | None = option("Ranks in all.", "-g", "--ranks", default=None, default_text="all")
    placement: str = option(
        "Where -g ranks stand: as many on every machine, or one machine full after another.",
        metavar=choices(SPREADS), default=EVEN,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ByLibrary(OnCluster):
    """By whose choices and times: a library, its settings, and the measurements that it goes by."""

    library: str | None = option(
        "Whose choices and times.",
        metavar=choices(LIBRARIES), default=None, default_text="nccl for machines with GPUs, else ideal",
    )  # fmt: skip
    algorithm: str = option(
        "ring,tree, ^ring, ... (ringside collectives lists all) or auto; for nccl what NCCL_ALGO takes.",
        metavar="NAMES", default="auto",
    )  # fmt: skip
    protocol: str = option(
        "For nccl what NCCL_PROTO takes: ll, ll128, simple, ^ll; for mpi eager or rendezvous.",
        metavar="NAMES", default="auto",
    )  # fmt: skip
    times: str | None = option(
        "For nccl: its tuner's, or those of a model of its rings and trees.",
        metavar="tuner|pipeline", default=None, default_text="tuner",
    )  # fmt: skip
    network: str = option(
        "How links serve messages: in turn, or shared.", metavar=choices(NETWORKS), default="fifo"
    )
    nccl_version: str | None = option(
        "Any release from 2.8 on; the answer says which one stands for another.",
        metavar="X.Y", default=None, default_text="the newest known",
    )  # fmt: skip
    nccl_graph: Path | None = option(
        "NCCL_GRAPH_DUMP_FILE, or an NCCL_DEBUG log with TUNING.", metavar="FILE", default=None
    )
    calibration: str | Calibration | None = option(
        "Measurements to go by: what is shipped of the machine, none, another's, or your own.",
        metavar=choices((AUTO, NONE, f"{FAMILY}NAME", "FILE")), default=AUTO,
    )  # fmt: skip
    anchor: Anchor | None = option(
        "Rows of your own site that scale the calibration.", metavar="LOG", default=None, parse="anchor"
    )

    @property
    def options(self) -> Options:
        """What the library is told."""
        return Options(
            self.algorithm, self.protocol, self.nccl_version, self.nccl_graph, self.times, self.network,
            self.placement,
        )  # fmt: skip

    def bound(self) -> Library:
        """Return the library on the cluster, calibrated."""
        return self.bound_to(self.cluster, self.settings, self.read_calibration())

    def bound_to(
        self, cluster: str, settings: Mapping[str, str], calibration: Calibration | str | None
    ) -> Library:
        """Return the library on another cluster, with other settings or another calibration."""
        return find_library(
            self.library, cluster, settings, ranks=self.ranks, options=self.options, calibration=calibration
        )

    def read_calibration(self) -> Calibration | str | None:
        """Return the calibration, scaled by the anchor's rows where there is one."""
        text = self.calibration
        calibration = text
        if isinstance(text, str) and text != AUTO:
            calibration = find_calibration(text, self.cluster)
        if self.anchor is None:
            return calibration
        machine = in_catalogue(self.cluster)
        known = shipped(machine) if calibration == AUTO else calibration
        if not isinstance(known, Calibration):
            raise CalibrationError(
                f"nothing to scale by {self.anchor.path}: {why_not(machine)}; write --calibration"
            )
        return self.anchor.scale(known, split(self.cluster)[0], self.settings)


@dataclass(frozen=True, kw_only=True)
class OfType(Question):
    """Of which elements: their type, and how they are reduced."""

    dtype: str = option(f"Of one element: {', '.join(ITEMSIZE)}.", metavar="TYPE", default="float32")
    redop: str = option(f"One of {', '.join(REDOPS)}.", metavar="REDUCTION", default="sum")


@dataclass(frozen=True, kw_only=True)
class BySize(Question):
    """Of which sizes: those listed, or a series from ``begin`` to ``end`` bytes by ``factor``.

    ``sizes`` are they, in bytes.
    """

    begin: int = option("Smallest size.", "-b", "--begin", metavar="SIZE", default="8", parse=parse_size)
    end: int = option("Largest size.", "-e", "--end", metavar="SIZE", default="128M", parse=parse_size)
    factor: int = option(
        "From one size to the next, 2 or more.", "-f", "--factor", metavar="FACTOR", default=2, minimum=2
    )
    size: tuple[int, ...] | None = option(
        "One size, or several, in place of -b, -e and -f.",
        metavar="SIZE,...", default=None, parse=_parse_sizes,
    )  # fmt: skip
    sizes: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.size is not None and self.changed("begin", "end", "factor"):
            raise QuestionError(
                "`size` lists sizes, `begin`, `end` and `factor` make a series; leave one or the other out"
            )
        if self.begin > self.end:
            raise QuestionError(
                f"`begin` {format_size(self.begin)} is more than `end` {format_size(self.end)}; "
                "write the smaller size first"
            )
        if self.begin == 0:
            raise QuestionError("`begin` 0 grows to nothing; write `begin` 1 or more, or `size` 0")
        sizes = self._series() if self.size is None else list(self.size)
        object.__setattr__(self, "sizes", sizes)

    def _series(self) -> list[int]:
        sizes = [self.begin]
        while sizes[-1] * self.factor <= self.end:
            sizes.append(sizes[-1] * self.factor)
        return sizes
