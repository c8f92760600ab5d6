"""Fields that several questions share, each defined once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringside.sim.calibration import Calibration
from ringside.sim.collective import ITEMSIZE, REDOPS
from ringside.sim.libraries.find import LIBRARIES, Options, find_library
from ringside.sim.libraries.library import Library
from ringside.sim.network.message import NETWORKS
from ringside.sim.questions.calibrated import Anchor, anchor_option, calibration_option, scaled
from ringside.sim.questions.question import Question, argument, choices, option, settings_option
from ringside.topologies.placement import EVEN, SPREADS


def parse_paths(texts: Sequence[str]) -> tuple[Path, ...]:
    """Return each text as a path."""
    return tuple(map(Path, texts))


def files_argument(help: str, metavar: str | None = None) -> Any:
    """Define a field of one or more files."""
    return argument(help, metavar=metavar, parse=parse_paths, repeats=True)


def job_argument(**settings: Any) -> Any:
    """Define a field of the file of a job."""
    return argument(
        "A script with def main(dist), or a training script; GOAL (.goal); Chakra's traces (.0.et, or a "
        "folder); dumps of the Flight Recorder, or their folder.",
        metavar="FILE", **settings,
    )  # fmt: skip


def ranks_option() -> Any:
    """Define a field of the number of ranks."""
    return option("Number of ranks of each job.", "-g", "--ranks", default=None, minimum=1)


def placement_option() -> Any:
    """Define a field of how ranks are placed on machines."""
    return option(
        "Place -g ranks: equally many on every machine, or fill machines one by one.",
        metavar=choices(SPREADS), default=EVEN,
    )  # fmt: skip


def library_option() -> Any:
    """Define a field of a library."""
    return option(
        "Library whose choices and times to predict.",
        metavar=choices(LIBRARIES), default=None, default_text="nccl for machines with GPUs, else ideal",
    )  # fmt: skip


def network_option() -> Any:
    """Define a field of how links serve messages."""
    return option("How links serve messages: in turn, or shared.", metavar=choices(NETWORKS), default="fifo")


@dataclass(frozen=True, kw_only=True)
class OnCluster(Question):
    """A cluster, its changed settings, and the ranks in use."""

    cluster: str = option("A named cluster, or a YAML file. See ringside topo.", metavar="NAME[:COUNT]|FILE")
    settings: Mapping[str, str] = settings_option()
    ranks: int | None = option("Number of ranks.", "-g", "--ranks", default=None, default_text="all")
    placement: str = placement_option()


@dataclass(frozen=True, kw_only=True)
class ByAlgorithm(OnCluster):
    """A library whose choices and times to predict, and the algorithms that it may choose."""

    library: str | None = library_option()
    algorithm: str = option(
        "ring,tree, ^ring, ... (ringside collectives lists all), mine.py or auto; for nccl as in NCCL_ALGO.",
        metavar="NAMES", default="auto",
    )  # fmt: skip
    protocol: str = option(
        "For nccl as in NCCL_PROTO: ll, ll128, simple, ^ll; for mpi eager or rendezvous.",
        metavar="NAMES", default="auto",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ByLibrary(ByAlgorithm):
    """A library with its settings and its calibration."""

    times: str | None = option(
        "Times for nccl: its tuner's, or those of a model of its rings and trees.",
        metavar="tuner|pipeline", default=None, default_text="tuner",
    )  # fmt: skip
    network: str = network_option()
    nccl_version: str | None = option(
        "Any release from 2.8 on; the answer names a substitute.",
        metavar="X.Y", default=None, default_text="the newest known",
    )  # fmt: skip
    nccl_graph: Path | None = option(
        "NCCL_GRAPH_DUMP_FILE, or an NCCL_DEBUG log with TUNING.", metavar="FILE", default=None
    )
    collnet: bool = option(
        "The network's switches add (NCCL_COLLNET_ENABLE=1 with a SHARP plugin).", default=False
    )
    calibration: str | Calibration | None = calibration_option()
    anchor: Anchor | None = anchor_option()

    @property
    def options(self) -> Options:
        """The library's options."""
        return Options(
            self.algorithm, self.protocol, self.nccl_version, self.nccl_graph, self.times, self.network,
            self.placement, collnet=self.collnet,
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
        return scaled(self.calibration, self.anchor, self.cluster, self.settings)


@dataclass(frozen=True, kw_only=True)
class OfType(Question):
    """The element type and the reduction."""

    dtype: str = option(f"Element type: {', '.join(ITEMSIZE)}.", metavar="TYPE", default="float32")
    redop: str = option(f"One of {', '.join(REDOPS)}.", metavar="REDUCTION", default="sum")
