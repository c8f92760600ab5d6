"""NCCL bound to a cluster: by one of its clocks, or by the measurements of its machine."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ringside.sim.calibration import AUTO, Calibration, CalibrationError, shipped, why_not
from ringside.sim.libraries.find import Options
from ringside.sim.libraries.nccl.cluster import as_measured, communicator_of
from ringside.sim.libraries.nccl.communicator import Communicator, Settings
from ringside.sim.libraries.nccl.graph.system import System, changed_rates, listed_system
from ringside.sim.libraries.nccl.library import Calibrated, Nccl
from ringside.sim.libraries.nccl.message_times import Launch
from ringside.sim.libraries.nccl.names import ALGORITHMS
from ringside.sim.libraries.nccl.pins import Pins
from ringside.sim.libraries.nccl.releases import DEFAULT_VERSION
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
    return Nccl(
        comm, calibrated=calibrated, uncalibrated=why, launch=launch, network=options.network, before=before
    )


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
