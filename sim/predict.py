"""From a collective on a topology to a time: the library says how it is carried out, an engine how long."""

from dataclasses import replace

from ringside.sim.calibration import Calibration
from ringside.sim.collective import Collective
from ringside.sim.libraries.find import Options, find_library
from ringside.sim.libraries.library import Prediction, answer
from ringside.topologies import Topology
from ringside.topologies.placement import EVEN


def predict(
    collective: Collective,
    graph: Topology,
    *,
    library: str | None = None,
    algorithm: str = "auto",
    protocol: str = "auto",
    engine: str = "auto",
    network: str = "fifo",
    placement: str = EVEN,
    calibration: "Calibration | str | None" = "auto",
    traced: bool = False,
) -> Prediction:
    """How long ``collective`` takes on a topology, or on as many of its ranks as the collective has.

    A collective that says nothing of its elements is of float32, as the commands' are. Without a
    ``library`` it is NCCL on a topology that tells its GPUs (NVIDIA's), else ``ideal``. ``algorithm``
    ``auto`` is the library's own choice; the ideal library's is the quickest. NCCL takes for ``algorithm``
    and ``protocol`` what NCCL_ALGO and NCCL_PROTO do. ``network`` is ``fifo``, links that serve one message
    after another, or ``fair``, links that messages share. ``placement`` is ``even``, as many ranks on every
    machine, or ``packed``, one machine full after another. ``calibration`` ``auto`` is what is shipped of a
    machine that NCCL was measured on, ``None`` the library's bare belief.
    """
    if collective.dtype is None and collective.itemsize == 1:
        collective = replace(collective, dtype="float32")
    options = Options(algorithm, protocol, network=network, placement=placement)
    found = find_library(library, graph, ranks=collective.ranks, options=options, calibration=calibration)
    return answer(found, collective, engine, traced=traced)
