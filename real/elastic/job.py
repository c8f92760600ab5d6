"""The job of an elastic run, which the launcher hands to every rank as a JSON file."""

from dataclasses import dataclass
from typing import ClassVar

from ringside.real.collective.job import check_timeout
from ringside.real.launch.follow import RankJob


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticJob(RankJob):
    """``steps`` steps with a checkpoint of ``checkpoint_bytes`` after every ``interval`` of them.

    A step sleeps ``step_s`` and all-reduces a sum. The checkpoint is in ``folder``.
    """

    worker: ClassVar[str] = "ringside.real.elastic.worker"

    folder: str
    steps: int = 200
    interval: int = 20
    step_s: float = 0.1
    checkpoint_bytes: int = 2**26

    def __post_init__(self) -> None:
        if not 1 <= self.interval <= self.steps <= 1_000_000:
            raise ValueError(
                f"{self.steps} steps with a checkpoint every {self.interval}; write 1 step or more, "
                "and an interval of at most the steps"
            )
        if not 0 < self.step_s <= 60:
            raise ValueError(f"steps of {self.step_s} s; write for example 100ms")
        if not 1 <= self.checkpoint_bytes <= 2**34:
            raise ValueError(f"a checkpoint of {self.checkpoint_bytes} bytes; write 1 to 16G")
        check_timeout(self.timeout_s)
