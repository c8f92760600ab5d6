"""The one place that makes a library from options.

NCCL's modules are imported only for NCCL.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from ringside.sim.calibration import AUTO, Calibration
from ringside.sim.libraries import rules
from ringside.sim.libraries.library import Library
from ringside.sim.libraries.rules import Rules
from ringside.sim.network.message import NETWORKS
from ringside.topologies import Topology
from ringside.topologies.names import one_of
from ringside.topologies.placement import EVEN, NUMBERED, SPREADS

log = logging.getLogger(__name__)

COMMON = ("algorithm", "network", "placement")
"""Options that every library accepts."""

CHOICES = {"network": NETWORKS, "placement": SPREADS}
"""The allowed values of options of every library; callers may also use `NUMBERED` placement."""


@dataclass(frozen=True, slots=True)
class Options:
    """A user's options for a library: ``algorithm``, ``network``, ``placement``; the others are NCCL's.

    MPI has a ``protocol`` too: one of `ringside.sim.libraries.mpi.form.PROTOCOLS`.
    For NCCL ``algorithm`` and ``protocol`` are values of NCCL_ALGO and NCCL_PROTO, ``nccl_graph`` is a
    graph file or a log, and ``times`` is one of `ringside.sim.libraries.nccl.library.CLOCKS`. ``placement``,
    one of `ringside.topologies.placement.SPREADS`, places ranks that are fewer than the cluster
    has. One process of NCCL's drives ``threads_per_process`` threads of ``gpus_per_thread`` GPUs each.
    ``torch`` scripts time single calls.
    ``collnet`` and ``nvls`` are NCCL_COLLNET_ENABLE, with a plugin that can do it, and NCCL_NVLS_ENABLE.
    """

    algorithm: str = "auto"
    protocol: str = "auto"
    nccl_version: str | None = None
    nccl_graph: Path | None = None
    times: str | None = None
    network: str = "fifo"
    placement: str = EVEN
    gpus_per_thread: int = 1
    threads_per_process: int = 1
    torch: bool = False
    collnet: bool = False
    nvls: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryEntry:
    """An entry of the table of libraries, and the path of its module, which is imported on first use.

    The module has ``bind``, with the parameters of `find_library`, and ``algorithms``, the values of
    ``--algorithm``. Its ``build(collective, algorithm)`` returns a schedule independent of machines, ``None``
    if there is only a closed form; ``beside(collective, algorithm, placed)`` does so if it ``overlaps``.

    ``title`` is its name in sentences. ``options`` are those of `Options` that it accepts besides `COMMON`.
    ``rules`` are those of its programs, if it can run programs; ``on_cpu``: its ranks compute on CPUs.
    ``picks``: it has several candidates for a collective; ``by_default``: it chooses by rules of its own.
    ``knows``: whether its model covers a cluster's machines, for which it is then the default library; it is
    bound to a number of machines (``by_machines``) and not to a graph. ``overlaps``: its schedules may be
    simulated concurrently in a training.
    """

    path: str
    title: str
    options: tuple[str, ...] = ()
    rules: Rules | None = None
    on_cpu: bool = False
    picks: bool = True
    by_default: bool = True
    knows: "Callable[[str | Topology], bool] | None" = None
    overlaps: bool = False
    by_machines: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_machines", self.knows is not None)

    @property
    def module(self) -> ModuleType:
        """The module."""
        return import_module(self.path)


def _has_nvidia(cluster: "str | Topology") -> bool:
    from ringside.sim.libraries.nccl.cluster import is_machine

    return is_machine(cluster)


LIBRARIES = {
    "ideal": LibraryEntry(
        path="ringside.sim.libraries.ideal", title="the textbook", rules=rules.GLOO, by_default=False,
        overlaps=True,
    ),
    "gloo": LibraryEntry(
        path="ringside.sim.libraries.gloo", title="Gloo", rules=rules.GLOO, on_cpu=True, picks=False,
        overlaps=True,
    ),
    "nccl": LibraryEntry(
        path="ringside.sim.libraries.nccl.bind", title="NCCL", rules=rules.NCCL, knows=_has_nvidia,
        options=(
            *("protocol", "nccl_version", "nccl_graph", "times", "gpus_per_thread", "threads_per_process"),
            *("torch", "collnet", "nvls"),
        ),
    ),
    "mpi": LibraryEntry(path="ringside.sim.libraries.mpi.library", title="Open MPI", options=("protocol",)),
}  # fmt: skip
"""The libraries, by their names on the command line."""


def check_pickable(name: str) -> None:
    """Raise ValueError for a library without a choice of algorithms."""
    if name not in LIBRARIES or not LIBRARIES[name].picks:
        *others, last = (known for known, entry in LIBRARIES.items() if entry.picks)
        raise ValueError(f"nothing to pick in {name!r}; write {', '.join(others)} or {last}")


def default_library(cluster: "str | Topology", options: Options | None = None) -> str:
    """Return the library to use by default.

    NCCL on machines with equally many NVIDIA GPUs each, whether given by name, file or
    topology; and with a graph file on any cluster. Otherwise the textbook's.
    """
    if options and options.nccl_graph:
        return "nccl"
    return next((name for name in LIBRARIES if models(name, cluster)), "ideal")


def models(name: str, cluster: "str | Topology") -> bool:
    """Return whether a library, in the table or not, has a model of the cluster's machines."""
    knows = LIBRARIES[name].knows if name in LIBRARIES else None
    return knows is not None and knows(cluster)


def find_library(
    name: str | None,
    cluster: "str | Topology",
    values: Mapping[str, Any] | None = None,
    *,
    ranks: int | None = None,
    options: Options | None = None,
    calibration: "Calibration | str | None" = AUTO,
) -> Library:
    """Return the library of that name on a cluster, by name or as a topology, for its first ``ranks`` ranks.

    ``values`` change the named cluster's figures. Without a name it is the cluster's default, see
    `default_library`. ``calibration`` is a `Calibration`, ``None`` for the library's own estimate, or
    ``auto``: the one shipped for the machine.
    """
    options = options or Options()
    if name is None:
        name = default_library(cluster, options)
        by_machines = LIBRARIES[name].by_machines
        why = "a graph file of NCCL's" if options.nccl_graph else "machines with GPUs of NVIDIA's"
        log.info("library %s: %s", name, why if by_machines else "no machines that NCCL's model knows")
    if name not in LIBRARIES:
        raise ValueError(f"unknown library {name!r}; write {one_of(LIBRARIES, name)}")
    if ranks is not None and ranks < 1:
        raise ValueError(f"-g {ranks}; write 1 rank or more")
    _check_options(name, options)
    library: Library = LIBRARIES[name].module.bind(cluster, values or {}, ranks, options, calibration)
    return library


def _check_options(name: str, options: Options) -> None:
    """Raise ValueError for options that the library does not accept, and for values that none accepts."""
    for option, allowed in CHOICES.items():
        if (value := getattr(options, option)) not in (*allowed, NUMBERED):
            raise ValueError(f"unknown {option} {value!r}; write {one_of(allowed, value)}")
    known = {*COMMON, *LIBRARIES[name].options}
    given = [one.name for one in fields(Options) if getattr(options, one.name) != one.default]
    if unknown := ", ".join(f"--{one.replace('_', '-')}" for one in given if one not in known):
        raise ValueError(f"{name} does not take {unknown}; remove it, or write --library nccl")
