"""From a collective on a topology to a time: the library chooses how to carry it out, an engine times it."""

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
    """Predict the time of ``collective`` on a topology, or on its first ranks.

    A collective without a dtype is of float32, as in the commands. The default ``library`` is NCCL on a
    topology with known GPUs (NVIDIA's), else ``ideal``. ``algorithm`` ``auto`` is the library's own choice;
    the ideal library's is the fastest. NCCL accepts for ``algorithm`` and ``protocol`` the values of
    NCCL_ALGO and NCCL_PROTO. ``network`` is ``fifo``, links that serve one message after another, or
    ``fair``, links that messages share. ``placement`` is ``even``, equal ranks per machine, or ``packed``,
    one machine full after another. ``calibration`` ``auto`` is the shipped one of a measured machine,
    ``None`` the uncalibrated library.
    """
    if collective.dtype is None and collective.itemsize == 1:
        collective = replace(collective, dtype="float32")
    options = Options(algorithm, protocol, network=network, placement=placement)
    model = find_library(library, graph, ranks=collective.ranks, options=options, calibration=calibration)
    return answer(model, collective, engine, traced=traced)
