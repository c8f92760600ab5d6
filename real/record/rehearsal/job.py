"""The rehearsal of a script, which the launcher hands to every rank as a JSON file."""

from dataclasses import dataclass
from typing import ClassVar

from ringside.real.collective.job import check_repeats, check_timeout
from ringside.real.launch.follow import RankJob
from ringside.sim.recorded.job import Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalJob(RankJob):
    """``iterations`` steps of a script with its arguments, after ``warmup`` untimed ones.

    ``prices`` are the seconds that operators sleep; others, which only an untimed step may have, take none.
    """

    worker: ClassVar[str] = "ringside.real.record.rehearsal.worker"

    script: str
    arguments: tuple[str, ...] = ()
    prices: tuple[tuple[Operator, float], ...] = ()
    iterations: int = 5
    warmup: int = 2

    def __post_init__(self) -> None:
        check_repeats(self.iterations, self.warmup)
        check_timeout(self.timeout_s)
