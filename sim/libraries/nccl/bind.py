"""NCCL bound to a cluster: by one of its clocks, or by the measurements of its machine.

If NCCL_ALGO names only algorithms that are not supported, the newest NCCL refuses that
(`ringside.sim.libraries.nccl.pins`). Older releases (src/graph/tuning.cc, the ones that know NVLSTree and not
PAT) skip names that they do not know. Where CollNet is not supported, which NVLS over several nodes needs
too, and nothing else remains, they allow trees and rings again; a collective without any algorithm uses the
ring. MareNostrum 5's published runs show it: with CollNet, NVLS or PAT requested they take the time of the
tuner's choice of tree and ring, with NVLSTree that of the ring.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ringside.sim.calibration import AUTO, Calibration, CalibrationError, shipped, why_not
from ringside.sim.collective import Collective
from ringside.sim.libraries.find import Options
from ringside.sim.libraries.nccl.at_site import NcclOnFabric
from ringside.sim.libraries.nccl.cluster import as_measured, communicator_of
from ringside.sim.libraries.nccl.communicator import Communicator, Settings
from ringside.sim.libraries.nccl.graph.system import System, changed_rates, listed_system
from ringside.sim.libraries.nccl.library import Calibrated, Nccl
from ringside.sim.libraries.nccl.message_times import Launch
from ringside.sim.libraries.nccl.names import ALGORITHMS, FUNCTIONS
from ringside.sim.libraries.nccl.pins import Pins
from ringside.sim.libraries.nccl.releases import DEFAULT_VERSION
from ringside.sim.libraries.nccl.tuner import cost_table
from ringside.topologies import Topology
from ringside.topologies.placement import EVEN

log = logging.getLogger(__name__)


algorithms = (*ALGORITHMS, "auto")


def nccl_settings(options: Options) -> Settings:
    """Return a user's options as settings of NCCL's model."""
    algorithm, protocol = ("" if text == "auto" else text for text in (options.algorithm, options.protocol))
    return Settings(
        options.nccl_version or DEFAULT_VERSION,
        Pins(algorithm, protocol),
        nvls=options.nvls,
        collnet=options.collnet,
    )


def bind(
    cluster: "str | Topology",
    values: Mapping[str, Any],
    ranks: int | None,
    options: Options,
    calibration: "Calibration | str | None",
) -> Nccl:
    """Return NCCL with the tuner's or modelled times, or calibrated."""
    settings, packed = nccl_settings(options), options.placement != EVEN
    comm = communicator_of(cluster, values, ranks, settings, options.nccl_graph, packed=packed)
    if options.times is not None:
        return Nccl(comm, clock=options.times, network=options.network)
    before, calibrated, why = _calibrated(comm, cluster, values, options, calibration)
    log.info("calibration: %s", calibrated.name if calibrated else why or "none")
    launch = Launch(options.gpus_per_thread, options.threads_per_process, options.torch)
    fabric = calibration.fabric if isinstance(calibration, Calibration) else ()
    bound = (NcclOnFabric if fabric else Nccl)(
        comm, calibrated=calibrated, uncalibrated=why, launch=launch, network=options.network, before=before
    )
    if isinstance(bound, NcclOnFabric):
        bound.factors = fabric
    return bound


def _calibrated(
    comm: Communicator | None,
    cluster: "str | Topology",
    values: Mapping[str, Any],
    options: Options,
    calibration: "Calibration | str | None",
) -> tuple[Communicator | None, Calibrated | None, str]:
    """Return the measured communicator and its calibrated times, or the reason for their absence."""
    if comm is None or calibration is None:
        return None, None, ""
    fitted = calibration.settings_on(cluster) if isinstance(calibration, Calibration) else {}
    before = as_measured(comm, cluster, values, fitted, options.nccl_graph)
    if isinstance(calibration, str):
        if calibration != AUTO:
            raise ValueError(f"calibration {calibration!r}; read it first, or write {AUTO}")
        known, why = _shipped_of(before.system)
        if known is None:
            return None, None, why
        calibration = known
    if calibration.nccl is None and calibration.sends is None:
        if calibration.fabric:
            return None, None, ""
        raise CalibrationError(
            f"the calibration of {calibration.cluster} has no NCCL model of a machine; write "
            "--calibration none, or the library that it was fitted to"
        )
    scaled = ""
    if before is not comm:
        scaled = f", scaled by the tuner's ratio for {changed_rates(comm.system, before.system)}"
    nccl, sends = (
        Calibrated(one.model, one.described + scaled) if one else None
        for one in (calibration.nccl, calibration.sends)
    )
    return before, replace(nccl or Calibrated(None, ""), sends=sends, calibration=calibration), ""


def _shipped_of(system: System) -> tuple[Calibration | None, str]:
    """Return the shipped calibration of a machine, or the reason for its absence."""
    calibration = shipped(system.name)
    if calibration is None:
        return None, why_not(system.name)
    if system != listed_system(system.name):
        return None, f"these are not the figures of the {system.name} that was measured"
    return calibration, ""


def fallback(collective: Collective, cluster: str, values: Mapping[str, str], options: Options) -> str:
    """Return the NCCL_ALGO of the algorithm that runs: that of the options if it is possible."""
    named = _without_unknown(options.algorithm)
    if collective.kind not in FUNCTIONS:  # sends and receives have no choice
        return named or "auto"
    settings = nccl_settings(replace(options, algorithm="auto"))
    comm = communicator_of(cluster, values, collective.ranks, settings)
    if comm is None:
        return named or "auto"
    tries = [named] if named else []
    if not comm.collnet and not _beside_collnet(named, collective.kind, comm):
        tries.append("tree,ring")
    return next((one for one in (*tries, "ring") if _can(comm, collective, one)), options.algorithm)


def _without_unknown(text: str) -> str:
    """Remove names that NCCL never had from a plain list; a list with functions stays as it is."""
    if set(text) & set(":;"):
        return text
    names = {name.replace("_", "") for name in ALGORITHMS}
    tokens = text.removeprefix("^").split(",")
    kept = ",".join(token for token in tokens if token.lower().replace("_", "") in names)
    if text.startswith("^"):
        return f"^{kept}" if kept else "auto"
    return kept


def _beside_collnet(named: str, kind: str, comm: Communicator) -> bool:
    """Return whether the names include an algorithm that such an NCCL considers possible without CollNet."""
    if named == "auto":
        return True
    allowed = Pins(named).algorithms[kind] if named else frozenset[str]()
    return bool(allowed & {"tree", "ring", "nvls" if comm.nodes == 1 else "nvls_tree"})


def _can(comm: Communicator, collective: Collective, algorithm: str) -> bool:
    """Return whether the tuner finds any pair within these algorithms."""
    pins = Pins("" if algorithm == "auto" else algorithm, comm.settings.pins.protocol)
    pinned = replace(comm, settings=replace(comm.settings, pins=pins))
    table = cost_table(pinned, collective.kind, collective.dtype or "float32", collective.redop)
    return bool((table.bandwidth > 0).any())
