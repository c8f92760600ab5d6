"""Rehearse a script on an emulated network."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ringside.real.collective.links import EmulatedCluster
from ringside.real.launch.follow import Row
from ringside.real.record.rehearsal.job import RehearsalJob


@dataclass(frozen=True, slots=True)
class MeasuredScript:
    """The timed steps of a rehearsal: by step the seconds of each rank."""

    steps: tuple[tuple[float, ...], ...]
    fingerprint: dict[str, str]

    @property
    def step_s(self) -> float:
        """The median over steps of the slowest rank's seconds."""
        return median(map(max, self.steps))

    @property
    def spread(self) -> float:
        """The range from the fastest step to the slowest, over the median."""
        seconds = [max(step) for step in self.steps]
        return (max(seconds) - min(seconds)) / self.step_s


def rehearse(job: RehearsalJob, cluster: EmulatedCluster, placement: Sequence[int]) -> MeasuredScript:
    """Run the script with rank r on host ``placement[r]``.

    Raise `ringside.real.launch.follow.MeasureError` where a rank dies or hangs, after all have been killed.
    """
    steps: list[tuple[float, ...]] = []
    fingerprint: dict[str, str] = {}

    def keep(row: Row) -> None:
        fingerprint.update(row["fingerprint"])
        steps.append(tuple(row["ranks"]))

    cluster.run(job, placement, keep)
    return MeasuredScript(tuple(steps), {**fingerprint, **cluster.settings(placement)})
