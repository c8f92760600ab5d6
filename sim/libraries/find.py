"""From words to a library: every door goes through here.

NCCL's rooms are opened for who asks for NCCL.
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
    from ringside.sim.libraries.scheduled import Scheduled

log = logging.getLogger(__name__)

LIBRARIES = ("ideal", "gloo", "nccl", "mpi")
PICKABLE = ("nccl", "ideal", "mpi")
"""Libraries that have several ways to carry out a collective."""


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may say to a library: all but ``algorithm``, ``network`` and ``placement`` is NCCL's alone.

    MPI too has a ``protocol``: one of `ringside.sim.libraries.mpi.form.PROTOCOLS`.
    For NCCL ``algorithm`` and ``protocol`` are what NCCL_ALGO and NCCL_PROTO take, ``nccl_graph`` is a
    graph file or a log, and ``times`` is one of `ringside.sim.libraries.nccl.library.CLOCKS`. ``placement``,
    one of `ringside.topologies.placement.SPREADS`, says where ranks stand that are fewer than the cluster
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
        """As NCCL's model takes them."""
        from ringside.sim.libraries.nccl.communicator import Settings
        from ringside.sim.libraries.nccl.pins import Pins
        from ringside.sim.libraries.nccl.releases import DEFAULT_VERSION

        algorithm, protocol = ("" if text == "auto" else text for text in (self.algorithm, self.protocol))
        return Settings(self.nccl_version or DEFAULT_VERSION, Pins(algorithm, protocol))


def check_pickable(name: str) -> None:
    """Refuse a library with one way, by name, where the quickest is asked for."""
    if name not in PICKABLE:
        raise ValueError(f"nothing to pick in {name!r}; write {', '.join(PICKABLE[:-1])} or {PICKABLE[-1]}")


def default_library(cluster: "str | Topology", options: Options | None = None) -> str:
    """Which library is meant where none is named.

    NCCL on machines with as many GPUs of NVIDIA's each, by whatever tells them: a name, a file, a
    topology; and by a graph file beside any cluster. Else the textbook's.
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
    """The library of that name on a cluster, by name or as a topology, for its first ``ranks`` ranks.

    ``values`` change the named cluster's figures. Without a name it is the cluster's own, see
    `default_library`. ``calibration`` is one that was read, ``None`` for the library's bare belief, or
    ``auto``: what is shipped of the machine.
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
    fitted_on = with_settings(graph, calibration.settings_on(_name(cluster))) if calibration else graph
    change = _told(graph, fitted_on) if fitted_on is not graph else ""
    return _scheduled(name)(
        graph, ranks, algorithm=options.algorithm, calibration=calibration, network=options.network,
        placement=options.placement, fitted_on=fitted_on, change=change,
    )  # fmt: skip


def _scheduled(name: str) -> "type[Scheduled]":
    if name == "gloo":
        from ringside.sim.libraries.gloo import Gloo

        return Gloo
    from ringside.sim.libraries.ideal import Ideal

    return Ideal


def shipped_for(cluster: str, values: Mapping[str, Any]) -> tuple[Calibration | None, str]:
    """What ``auto`` is to NCCL on a cluster: measurements of its very machine, or why there are none."""
    from ringside.sim.libraries.nccl.cluster import is_machine, system_in_use

    if not is_machine(cluster):
        return None, why_not(split(cluster)[0])
    return _shipped_of(system_in_use(cluster, values, {}))


def as_nccl(library: Library) -> "Nccl | None":
    """The library if it is NCCL, of which more can be asked than of every library."""
    if library.name != "nccl":
        return None
    from ringside.sim.libraries.nccl.library import Nccl

    assert isinstance(library, Nccl)
    return library


def as_mpi(library: Library) -> "Mpi | None":
    """The library if it is MPI, which says on what its times rest."""
    if library.name != "mpi":
        return None
    from ringside.sim.libraries.mpi.library import Mpi

    assert isinstance(library, Mpi)
    return library


def _refuse_nccls(name: str, options: Options) -> None:
    """Refuse what only NCCL understands."""
    given = {
        "--protocol": options.protocol != "auto" and name != "mpi",
        "--nccl-version": options.nccl_version is not None,
        "--nccl-graph": options.nccl_graph is not None,
        "--times": options.times is not None,
    }
    found = ", ".join(option for option, is_given in given.items() if is_given)
    if found:
        raise ValueError(f"{name} knows no {found}; leave it out, or write --library nccl")


def _mpi(
    cluster: "str | Topology",
    values: Mapping[str, Any],
    ranks: int | None,
    options: Options,
    calibration: "Calibration | str | None",
) -> "Mpi":
    """MPI as its machine was measured, or with usual figures."""
    from ringside.sim.libraries.mpi.library import Mpi

    graph = load(cluster, values, ranks=ranks) if isinstance(cluster, str) else cluster
    if calibration == AUTO:
        found = None if original(graph) is None else shipped(name_of(graph))
        calibration = found if found and found.mpi else None
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
    """The settings that are not as before, in words."""
    now, was = recipe_of(graph), recipe_of(before)
    said = [f"{key} {value}" for key, value in now.items() if was.get(key) != value]
    return ", ".join([*said, *(f"its own {key}" for key in was if key not in now)])


def _name(cluster: "str | Topology") -> str:
    return cluster if isinstance(cluster, str) else name_of(cluster)


def _nccl(
    cluster: "str | Topology",
    values: Mapping[str, Any],
    ranks: int | None,
    options: Options,
    calibration: "Calibration | str | None",
) -> "Nccl":
    """NCCL by one of its clocks, or as calibrated."""
    from ringside.sim.libraries.nccl.cluster import communicator_of
    from ringside.sim.libraries.nccl.library import Nccl

    settings, packed = options.settings(), options.placement != EVEN
    comm = communicator_of(cluster, values, ranks, settings, options.nccl_graph, packed=packed)
    if options.times is not None:
        return Nccl(comm, clock=options.times, network=options.network)
    before, found, why = _calibrated(comm, cluster, values, options, calibration)
    log.info("calibration: %s", found.name if found else why or "none")
    return Nccl(comm, calibrated=found, uncalibrated=why, network=options.network, before=before)


def _calibrated(
    comm: "Communicator | None",
    cluster: "str | Topology",
    values: Mapping[str, Any],
    options: Options,
    calibration: "Calibration | str | None",
) -> "tuple[Communicator | None, Calibrated | None, str]":
    """The communicator that was measured, and what answers in place of NCCL's belief, or why nothing does."""
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
        found, why = _shipped_of(before.system)
        if found is None:
            return None, None, why
        calibration = found
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
    """What is shipped of a machine, or why nothing is."""
    from ringside.sim.libraries.nccl.graph.systems import SYSTEMS

    found = shipped(system.name)
    if found is None:
        return None, why_not(system.name)
    if system != SYSTEMS.get(system.name):
        return None, f"these are not the figures of the {system.name} that was measured"
    return found, ""
