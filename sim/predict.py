"""From a collective on a topology to a time: the library says how it is carried out, an engine how long."""

from collections.abc import Sequence
from dataclasses import dataclass

from sim.calibration import Calibration
from sim.collective import KINDS, Collective
from sim.engine.laws import check_band, check_monotone
from sim.engine.timeline import Timeline
from sim.libraries.find import Options, find_library
from sim.libraries.library import Library, check_engine
from topologies import Topology


@dataclass(frozen=True, slots=True)
class Prediction:
    """How long one collective takes, and how it is carried out to take so long.

    Between ``time_lo_s`` and ``time_hi_s`` lay nine of ten rows that a schedule's parameters were fitted to,
    and lie four of five by NCCL's measured model; both equal ``time_s`` where nothing was calibrated.
    ``caveat`` is what to know before it is believed.
    ``network`` is how links served messages, where a schedule was played or stands behind the closed form.
    ``channels`` and ``belief_us``, what the library itself believes in microseconds, are NCCL's.
    """

    collective: Collective
    algorithm: str
    protocol: str
    engine: str
    time_s: float
    time_lo_s: float
    time_hi_s: float
    timeline: Timeline | None = None
    caveat: str = ""
    channels: int = 1
    belief_us: float | None = None
    network: str = "fifo"

    def __post_init__(self) -> None:
        what = f"{self.algorithm} {self.collective.kind} of {self.collective.nbytes} B"
        check_band(what, self.time_lo_s, self.time_s, self.time_hi_s)

    @property
    def algbw(self) -> float:
        """Algorithm bandwidth in bytes/s, as nccl-tests defines it."""
        return self.collective.nbytes / self.time_s if self.time_s else 0.0

    @property
    def busbw(self) -> float:
        """Bus bandwidth in bytes/s, as nccl-tests defines it."""
        return self.algbw * KINDS[self.collective.kind].busbw_factor(self.collective.ranks)


def predict(
    collective: Collective,
    graph: Topology,
    *,
    library: str | None = None,
    algorithm: str = "auto",
    protocol: str = "auto",
    engine: str = "auto",
    network: str = "fifo",
    calibration: "Calibration | str | None" = "auto",
    traced: bool = False,
) -> Prediction:
    """How long ``collective`` takes on the topology's first ranks.

    Without a ``library`` it is NCCL on what was read from a file of NCCL's or nvidia-smi's, else ``ideal``.
    ``algorithm`` ``auto`` is the library's own choice; the ideal library's is the quickest. NCCL takes
    a topology that tells what GPUs its machines have, and for ``algorithm`` and ``protocol`` what NCCL_ALGO
    and NCCL_PROTO do. ``network`` is ``fifo``, links that serve one message after another, or ``fair``, links
    that messages share. ``calibration`` ``auto`` is what is shipped of a machine that NCCL was measured on,
    ``None`` the library's bare belief.
    """
    options = Options(algorithm, protocol, network=network)
    found = find_library(library, graph, ranks=collective.ranks, options=options, calibration=calibration)
    return answer(found, collective, engine, traced=traced)


def answer(
    library: Library, collective: Collective, engine: str = "auto", *, traced: bool = False
) -> Prediction:
    """What a library takes of its own accord, within its settings, and how long that takes."""
    check_engine(engine)
    candidate = library.choose(collective)
    found = library.time(collective, candidate, engine, traced=traced)
    return Prediction(
        collective, found.algorithm, candidate.protocol, found.engine, found.time_s, found.time_lo_s,
        found.time_hi_s, found.timeline, found.caveat, found.channels, candidate.belief_us, library.network,
    )  # fmt: skip


def check_growth(predictions: Sequence[Prediction]) -> None:
    """Refuse times of one way that fall while the size grows; holds for schedules, not for a tuner."""
    ways: dict[tuple[str, str, str], list[Prediction]] = {}
    for p in predictions:
        ways.setdefault((p.algorithm, p.protocol, p.engine), []).append(p)
    for way, found in ways.items():
        check_monotone("/".join(way), [p.collective.nbytes for p in found], [p.time_s for p in found])
