"""How far a ranking of layouts rests on a fabric whose bandwidth stays, however many nodes use it.

No table of the site's own bandwidths is at hand there. The slowest published fabric stands in: nanotron's, on
which all-reduces fell from 362 to 33 GB/s between 2 and 64 nodes (`DECAY`). Its factors are those of
dgx-h100, beside the shipped calibration.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ringside.sim.calibration import AUTO, Calibration, bare, shipped
from ringside.sim.libraries.nccl.fabric_factors import FabricFactor
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.parallel import play_parallel
from ringside.sim.training.search.search import Found
from ringside.topologies.load import parse_name
from ringside.topologies.units import format_duration
from ringside.validation.nccl.bandwidths import on_fabric
from ringside.validation.readers import text_of
from ringside.validation.readers.bandwidth_table import read_bandwidth_table

DECAY = Path(__file__).parents[1] / "published" / "training" / "ultrascale_busbw.csv"
MEASURED_ON = "dgx-h100"
"""The slowest published fabric, and the machine in its racks."""


class DecayedSteps(NamedTuple):
    """The ranked layouts' steps, in their order, on a fabric that decays.

    ``gpus`` are those of each layout where they are ranked by cost.
    """

    decayed_s: Sequence[float]
    gpus: Sequence[int] = ()

    @property
    def moved(self) -> int:
        """The number of places that another layout takes."""
        return sum(place != layout for place, layout in enumerate(self._order))

    @property
    def note(self) -> str:
        """What the order rests on, in a sentence."""
        best, kind = self._order[0] + 1, "cheapest" if self.gpus else "fastest"
        first = (
            f"number {best} is the {kind} there, and number 1" if best > 1 else "number 1 stays first, and"
        )
        return (
            "bandwidth between machines is assumed not to fall with their number; measure it by nodes "
            "(`anchor` TABLE) before you trust this order where communication decides. On a fabric as slow "
            f"as nanotron's, {self.moved} of these {len(self.decayed_s)} places change: {first} takes "
            f"{format_duration(self.decayed_s[0], 4)}"
        )

    @property
    def _order(self) -> list[int]:
        gpus = self.gpus or [1] * len(self.decayed_s)
        ranked_by = [seconds * count for seconds, count in zip(self.decayed_s, gpus, strict=True)]
        return sorted(range(len(ranked_by)), key=ranked_by.__getitem__)


@cache
def factors() -> tuple[FabricFactor, ...]:
    """Return the factors of the slowest published fabric."""
    known = shipped(MEASURED_ON)
    assert known
    return on_fabric(known, read_bandwidth_table(text_of(DECAY), DECAY), MEASURED_ON, {}).fabric


def decayed(ranked: Sequence[Found], libraries: Libraries) -> DecayedSteps | None:
    """Return the steps on a fabric that decays; None where that changes nothing or the site's is known."""
    known = libraries.calibration
    if not ranked or not libraries.entry.by_machines or len(libraries.placed) == 1:
        return None
    if isinstance(known, Calibration) and known.fabric:
        return None
    machine = parse_name(libraries.cluster).machine
    calibration = shipped(machine) if known == AUTO else known
    if not isinstance(calibration, Calibration):
        calibration = bare(machine)
    slow = Libraries(
        libraries.name, libraries.cluster, libraries.values, libraries.ranks, libraries.network,
        replace(calibration, fabric=factors()), libraries.placement,
    )  # fmt: skip
    return DecayedSteps([play_parallel(one.job, slow).step_s for one in ranked])
