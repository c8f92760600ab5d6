"""The job of a real run, which the launcher hands to every rank as a JSON file."""

from dataclasses import dataclass
from typing import ClassVar

from ringside.real.collective.job import check_repeats, check_timeout
from ringside.real.launch.follow import RankJob

COMPUTE = ("sleep", "matmul")
"""The stand-ins for compute: sleep, which takes no core, or matrix products for the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramJob(RankJob):
    """A script with ``main(dist)``, run ``iterations`` times after ``warmup`` untimed ones.

    ``eager`` as in `ringside.sim.program.record.recorder`.
    """

    worker: ClassVar[str] = "ringside.real.program.worker"

    script: str
    backend: str = "gloo"
    eager: bool = False
    compute: str = "sleep"
    iterations: int = 5
    warmup: int = 1

    def __post_init__(self) -> None:
        if self.compute not in COMPUTE:
            raise ValueError(f"{self.compute!r} is not a way to compute; write {' or '.join(COMPUTE)}")
        check_repeats(self.iterations, self.warmup)
        check_timeout(self.timeout_s)
