"""Goodput of a job whose ranks are killed, measured."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from ringside.real.collective.measure import check_room
from ringside.real.elastic.job import ElasticJob
from ringside.real.elastic.measure import measure_elastic, seeded_kills
from ringside.sim.goodput.elastic import ElasticRun
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.question import Question, QuestionError, option
from ringside.topologies.units import parse_duration, parse_size

_MOST_KILLS = 100


def _intervals(text: str) -> tuple[int, ...]:
    counts = text.split(",")
    if not all(count.isascii() and count.isdecimal() and len(count) < 8 and int(count) for count in counts):
        raise QuestionError(f"invalid `interval` {text!r}; write for example 2,5,10,20,40")
    return tuple(map(int, counts))


@dataclass(frozen=True, kw_only=True)
class ElasticMeasurement(Question):
    """Goodput of a job whose ranks are killed, measured: a run for each interval between checkpoints.

    All runs have kills at the same moments. ``step`` is in seconds, ``checkpoint`` in bytes.
    """

    schema: ClassVar[str] = "measure elastic"

    ranks: int = option("Ranks on this node.", "-g", "--ranks", default=2)
    steps: int = option("Steps of a run.", default=200)
    step: float = option("Compute time of a step.", metavar="DURATION", default="100ms", parse=parse_duration)
    interval: tuple[int, ...] = option(
        "Steps between checkpoints; one run for each.",
        metavar="STEPS,...", default="2,5,10,20,40", parse=_intervals, minimum=1,
    )  # fmt: skip
    checkpoint: int = option("Size of a checkpoint.", metavar="SIZE", default="64MiB", parse=parse_size)
    kills: int = option("Ranks to kill in a run.", default=2)
    seed: int = option("Random seed of the kills.", default=0)
    timeout: float = option("Longest wait of a rank for another.", metavar="SECONDS", default=60.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ranks < 2:
            raise QuestionError(f"{self.ranks} ranks: none remains after a kill; write 2 or more")
        if not 0 <= self.kills <= _MOST_KILLS:
            raise QuestionError(f"`kills` {self.kills}; write 0 to {_MOST_KILLS}")
        if self.seed < 0:
            raise QuestionError(f"`seed` {self.seed}; write 0 or more")
        if len(set(self.interval)) < len(self.interval):
            counts = ",".join(map(str, self.interval))
            raise QuestionError(f"`interval` {counts} has a duplicate; write each once")

    def ask(
        self, *, force: bool = False, on_run: Callable[[ElasticRun], None] = lambda _: None
    ) -> "ElasticMeasurements":
        """Measure a run for each interval; call ``on_run`` with each, so that none is lost if a later fails.

        ``force`` starts any number of ranks with checkpoints of any size.
        """
        runs: list[ElasticRun] = []
        with tempfile.TemporaryDirectory(prefix="ringside-") as folder:
            jobs = [
                ElasticJob(
                    folder=f"{folder}/{interval}", steps=self.steps, interval=interval, step_s=self.step,
                    checkpoint_bytes=self.checkpoint, timeout_s=self.timeout,
                )
                for interval in self.interval
            ]  # fmt: skip
            if not force:
                check_room(self.ranks, self.checkpoint)
            for job in jobs:
                Path(job.folder).mkdir()
                moments = seeded_kills(self.kills, self.steps * self.step, self.ranks, self.seed)
                runs.append(measure_elastic(job, self.ranks, moments))
                on_run(runs[-1])
        return ElasticMeasurements(self, runs)


@dataclass(frozen=True, slots=True)
class ElasticMeasurements(AnswerOnDemand):
    """The answer: a run for each interval."""

    question: ElasticMeasurement
    runs: Sequence[ElasticRun]
    notes: Sequence[str] = ()

    @property
    def headline(self) -> str:
        """The best measured goodput."""
        best = max(self.runs, key=lambda run: run.goodput)
        kills = len(best.restarts)
        return (
            f"{best.goodput:.1%} goodput with a checkpoint every {best.interval} steps and {kills} kills is "
            f"the best of {len(self.runs)} runs: {best.steps} steps on {best.ranks} ranks in "
            f"{best.wall_s:.1f} s"
        )

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return self.question.inputs()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The runs in plain values."""
        return [{**asdict(run), "goodput": run.goodput, "redone": run.redone} for run in self.runs]
