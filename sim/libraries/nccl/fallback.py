"""The algorithm that runs if NCCL_ALGO names only algorithms that are not supported.

The newest NCCL refuses that (`ringside.sim.libraries.nccl.pins`). Older releases (src/graph/tuning.cc, the
ones that know NVLSTree and not PAT) skip names that they do not know. Where CollNet is not supported, which
NVLS over several nodes needs too, and nothing else remains, they allow trees and rings again; a collective
without any algorithm uses the ring. MareNostrum 5's published runs show it: with CollNet, NVLS or PAT
requested they take the time of the tuner's choice of tree and ring, with NVLSTree that of the ring.
"""

from collections.abc import Mapping
from dataclasses import replace

from ringside.sim.collective import Collective
from ringside.sim.libraries.find import Options
from ringside.sim.libraries.nccl.bind import nccl_settings
from ringside.sim.libraries.nccl.cluster import communicator_of
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.names import ALGORITHMS, FUNCTIONS
from ringside.sim.libraries.nccl.pins import Pins
from ringside.sim.libraries.nccl.tuner import cost_table


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
