"""MPI bound to a cluster: its measurements, if any, and what was changed since."""

import logging
from collections.abc import Mapping
from typing import Any

from ringside.sim.calibration import AUTO, Calibration, CalibrationError, shipped
from ringside.sim.libraries.find import Options, named
from ringside.sim.libraries.mpi.library import Mpi, algorithms, build
from ringside.topologies import Topology, load
from ringside.topologies.graph import name_of
from ringside.topologies.recipe import original, recipe_of, with_settings

__all__ = ["algorithms", "bind", "build"]

log = logging.getLogger(__name__)


def bind(
    cluster: "str | Topology",
    values: Mapping[str, Any],
    ranks: int | None,
    options: Options,
    calibration: "Calibration | str | None",
) -> Mpi:
    """MPI as its machine was measured, or with usual figures."""
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
        before = with_settings(graph, calibration.settings_on(named(cluster)))
        if before is not graph:
            called += f", scaled by what the model says of {_told(graph, before)}"
        measured = calibration.mpi.model, called
    log.info("calibration: %s", measured[1] if measured else "none")

    def on(graph: Topology, before: "Mpi | None" = None) -> Mpi:
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
