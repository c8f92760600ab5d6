"""The one place that makes a library from options.

NCCL's modules are imported only for NCCL.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringside.sim.calibration import AUTO, Calibration, CalibrationError, shipped, why_not
from ringside.sim.libraries.library import Library
from ringside.sim.network.message import check_network
from ringside.topologies import Topology, load
from ringside.topologies.catalogue import split
from ringside.topologies.graph import name_of
from ringside.topologies.placement import EVEN, check_spread
from ringside.topologies.recipe import original, recipe_of, with_settings
from ringside.topologies.words import one_of

if TYPE_CHECKING:
    from ringside.sim.libraries.mpi.library import Mpi
    from ringside.sim.libraries.nccl.communicator import Communicator, Settings
    from ringside.sim.libraries.nccl.graph.system import System
    from ringside.sim.libraries.nccl.library import Calibrated, Nccl

log = logging.getLogger(__name__)

LIBRARIES = ("ideal", "gloo", "nccl", "mpi")
PICKABLE = ("nccl", "ideal", "mpi")
"""Libraries that have several ways to carry out a collective."""


@dataclass(frozen=True, slots=True)
class Options:
    """A user's options for a library: ``algorithm``, ``network``, ``placement``; the others are NCCL's.

    MPI has a ``protocol`` too: one of `ringside.sim.libraries.mpi.form.PROTOCOLS`.
    For NCCL ``algorithm`` and ``protocol`` are values of NCCL_ALGO and NCCL_PROTO, ``nccl_graph`` is a
    graph file or a log, and ``times`` is one of `ringside.sim.libraries.nccl.library.CLOCKS`. ``placement``,
    one of `ringside.topologies.placement.SPREADS`, places ranks that are fewer than the cluster
    has.
    """

    algorithm: str = "auto"
    protocol: str = "auto"
    nccl_version: str | None = None
    nccl_graph: Path | None = None
    times: str | None = None
    network: str = "fifo"
    placement: str = EVEN

    def settings(self) -> "Settings":
        """Return them as settings of NCCL's model."""
        from ringside.sim.libraries.nccl.communicator import Settings
        from ringside.sim.libraries.nccl.pins import Pins
        from ringside.sim.libraries.nccl.releases import DEFAULT_VERSION

        algorithm, protocol = ("" if text == "auto" else text for text in (self.algorithm, self.protocol))
        return Settings(self.nccl_version or DEFAULT_VERSION, Pins(algorithm, protocol))


def check_pickable(name: str) -> None:
    """Raise ValueError for a library with a single way, where the fastest is to be picked."""
    if name not in PICKABLE:
        raise ValueError(f"nothing to pick in {name!r}; write {', '.join(PICKABLE[:-1])} or {PICKABLE[-1]}")


def default_library(cluster: "str | Topology", options: Options | None = None) -> str:
    """Return the library to use by default.

    NCCL on machines with equally many NVIDIA GPUs each, whether given by name, file or
    topology; and with a graph file on any cluster. Otherwise the textbook's.
    """
    if options and options.nccl_graph:
        return "nccl"
    from ringside.sim.libraries.nccl.cluster import is_machine

    return "nccl" if is_machine(cluster) else "ideal"


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
        why = "a graph file of NCCL's" if options.nccl_graph else "machines with GPUs of NVIDIA's"
        log.info("library %s: %s", name, why if name == "nccl" else "no machines that NCCL's model knows")
    if name not in LIBRARIES:
        raise ValueError(f"{name!r} is no known library; write {one_of(LIBRARIES, name)}")
    if ranks is not None and ranks < 1:
        raise ValueError(f"-g {ranks}; write 1 rank or more")
    check_network(options.network)
    check_spread(options.placement)
    if name == "nccl":
        return _nccl(cluster, values or {}, ranks, options, calibration)
    _refuse_nccls(name, options)
    if name == "mpi":
        return _mpi(cluster, values or {}, ranks, options, calibration)
    calibration = None if calibration == AUTO else calibration
    if isinstance(calibration, str):
        raise ValueError(f"calibration {calibration!r}; read it first, or write {AUTO}")
    graph = load(cluster, values, ranks=ranks) if isinstance(cluster, str) else cluster
    if name == "gloo":
        from ringside.sim.libraries.gloo import Gloo

        return Gloo(
            graph, ranks, algorithm=options.algorithm, calibration=calibration, network=options.network,
            placement=options.placement,
        )  # fmt: skip
    from ringside.sim.libraries.ideal import Ideal

    return Ideal(
        graph, ranks, algorithm=options.algorithm, calibration=calibration, network=options.network,
        placement=options.placement,
    )  # fmt: skip


def shipped_for(cluster: str, values: Mapping[str, Any]) -> tuple[Calibration | None, str]:
    """Return NCCL's ``auto`` calibration on a cluster: its machine's measurements, or why there are none."""
    from ringside.sim.libraries.nccl.cluster import is_machine, system_in_use

    if not is_machine(cluster):
        return None, why_not(split(cluster)[0])
    return _shipped_of(system_in_use(cluster, values, {}))


def as_nccl(library: Library) -> "Nccl | None":
    """Return the library if it is NCCL, which has more methods than others."""
    if library.name != "nccl":
        return None
    from ringside.sim.libraries.nccl.library import Nccl

    assert isinstance(library, Nccl)
    return library


def as_mpi(library: Library) -> "Mpi | None":
    """Return the library if it is MPI, which knows the basis of its times."""
    if library.name != "mpi":
        return None
    from ringside.sim.libraries.mpi.library import Mpi

    assert isinstance(library, Mpi)
    return library


def _refuse_nccls(name: str, options: Options) -> None:
    """Raise ValueError for options that only NCCL has."""
    given = {
        "--protocol": options.protocol != "auto" and name != "mpi",
        "--nccl-version": options.nccl_version is not None,
        "--nccl-graph": options.nccl_graph is not None,
        "--times": options.times is not None,
    }
    names = ", ".join(option for option, is_given in given.items() if is_given)
    if names:
        raise ValueError(f"{name} knows no {names}; leave it out, or write --library nccl")


def _mpi(
    cluster: "str | Topology",
    values: Mapping[str, Any],
    ranks: int | None,
    options: Options,
    calibration: "Calibration | str | None",
) -> "Mpi":
    """Return MPI as measured on its machine, or with default figures."""
    from ringside.sim.libraries.mpi.library import Mpi

    graph = load(cluster, values, ranks=ranks) if isinstance(cluster, str) else cluster
    if calibration == AUTO:
        stored = None if original(graph) is None else shipped(name_of(graph))
        calibration = stored if stored and stored.mpi else None
    if isinstance(calibration, str):
        raise ValueError(f"calibration {calibration!r}; read it first, or write {AUTO}")
    if calibration and calibration.mpi is None:
        raise CalibrationError(
            f"the calibration of {calibration.cluster} has nothing of MPI; write --calibration none, or the "
            "library that it was fitted to"
        )
    measured, before = None, graph
    if calibration and calibration.mpi:
        called = calibration.mpi.described
        before = with_settings(graph, calibration.settings_on(_name(cluster)))
        if before is not graph:
            called += f", scaled by what the model says of {_told(graph, before)}"
        measured = calibration.mpi.model, called
    log.info("calibration: %s", measured[1] if measured else "none")

    def on(graph: Topology, before: "Mpi | None" = None) -> "Mpi":
        return Mpi(
            graph, ranks, algorithm=options.algorithm, protocol=options.protocol, measured=measured,
            network=options.network, placement=options.placement, before=before,
        )  # fmt: skip

    return on(graph, None if before is graph else on(before))


def _told(graph: Topology, before: Topology) -> str:
    """Describe the settings that have changed."""
    now, was = recipe_of(graph), recipe_of(before)
    changes = [f"{key} {value}" for key, value in now.items() if was.get(key) != value]
    return ", ".join([*changes, *(f"its own {key}" for key in was if key not in now)])


def _name(cluster: "str | Topology") -> str:
    return cluster if isinstance(cluster, str) else name_of(cluster)


def _nccl(
    cluster: "str | Topology",
    values: Mapping[str, Any],
    ranks: int | None,
    options: Options,
    calibration: "Calibration | str | None",
) -> "Nccl":
    """Return NCCL by one of its clocks, or as calibrated."""
    from ringside.sim.libraries.nccl.cluster import communicator_of
    from ringside.sim.libraries.nccl.library import Nccl

    settings, packed = options.settings(), options.placement != EVEN
    comm = communicator_of(cluster, values, ranks, settings, options.nccl_graph, packed=packed)
    if options.times is not None:
        return Nccl(comm, clock=options.times, network=options.network)
    before, calibrated, why = _calibrated(comm, cluster, values, options, calibration)
    log.info("calibration: %s", calibrated.name if calibrated else why or "none")
    return Nccl(comm, calibrated=calibrated, uncalibrated=why, network=options.network, before=before)


def _calibrated(
    comm: "Communicator | None",
    cluster: "str | Topology",
    values: Mapping[str, Any],
    options: Options,
    calibration: "Calibration | str | None",
) -> "tuple[Communicator | None, Calibrated | None, str]":
    """Return the measured communicator, and what replaces NCCL's estimate, or why nothing does."""
    from ringside.sim.libraries.nccl.cluster import as_measured
    from ringside.sim.libraries.nccl.library import Calibrated
    from ringside.sim.libraries.nccl.rescaled import told

    if comm is None or calibration is None:
        return None, None, ""
    fitted = calibration.settings_on(_name(cluster)) if isinstance(calibration, Calibration) else {}
    before = as_measured(comm, cluster, values, fitted, options.nccl_graph)
    if isinstance(calibration, str):
        if calibration != AUTO:
            raise ValueError(f"calibration {calibration!r}; read it first, or write {AUTO}")
        calibrated, why = _shipped_of(before.system)
        if calibrated is None:
            return None, None, why
        calibration = calibrated
    if calibration.nccl is None:
        raise CalibrationError(
            f"the calibration of {calibration.cluster} has nothing of NCCL on a machine of its model; "
            "write --calibration none, or the library that it was fitted to"
        )
    called = calibration.nccl.described
    if before is not comm:
        called += f", scaled by what the tuner says of {told(comm.system, before.system)}"
    return before, Calibrated(calibration.nccl.model, called), ""


def _shipped_of(system: "System") -> tuple[Calibration | None, str]:
    """Return the measurements shipped for a machine, or why there are none."""
    from ringside.sim.libraries.nccl.graph.systems import SYSTEMS

    stored = shipped(system.name)
    if stored is None:
        return None, why_not(system.name)
    if system != SYSTEMS.get(system.name):
        return None, f"these are not the figures of the {system.name} that was measured"
    return stored, ""
