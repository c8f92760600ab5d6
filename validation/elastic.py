"""Predict elastic runs from other runs of their kind: their restarts, steps and checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ringside.sim.goodput.elastic import ElasticRun
from ringside.sim.goodput.job import Cause, Checkpoints, LongJob, Restart
from ringside.sim.goodput.study import (
    BADPUT,
    PRODUCTIVE,
    RECOVERY,
    RESTORE,
    SAVE,
    START,
    WASTED,
    Life,
    Strike,
    live,
)

KILL = Cause("kill", 0.0)


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run, and the life predicted from other runs of its kind with the same kills."""

    run: ElasticRun
    life: Life

    @property
    def predicted(self) -> float:
        """The predicted goodput."""
        return self.life.spent_s[PRODUCTIVE] / self.life.wall_s

    @property
    def error(self) -> float:
        """Predicted minus measured goodput, both shares of the time."""
        return self.predicted - self.run.goodput

    @property
    def predicted_shares(self) -> dict[str, float]:
        """The predicted time by class, as shares."""
        return {name: self.life.spent_s[name] / self.life.wall_s for name in (PRODUCTIVE, *BADPUT)}

    @property
    def measured_shares(self) -> dict[str, float]:
        """The measured time by class, as shares; time outside all stages is wasted progress."""
        run = self.run
        spent = dict.fromkeys((PRODUCTIVE, *BADPUT), 0.0)
        spent[PRODUCTIVE] = run.kept_s
        spent[SAVE] = sum(run.saves_s)
        spent[START] = run.first_start_s + sum(
            one.process_s + one.import_s + one.init_s for one in run.restarts
        )
        spent[RECOVERY] = sum(one.detect_s + one.stop_s + one.rendezvous_s for one in run.restarts)
        spent[RESTORE] = sum(one.load_s for one in run.restarts)
        spent[WASTED] = max(0.0, run.wall_s - sum(spent.values()))
        return {name: seconds / run.wall_s for name, seconds in spent.items()}


def compare_runs(runs: Sequence[ElasticRun]) -> list[ComparedRun]:
    """Predict each run from all the others; raise ValueError without two runs and a kill."""
    if len(runs) < 2:
        raise ValueError(f"{len(runs)} elastic runs: each is predicted from others; measure two or more")
    return [ComparedRun(run, predict_run(run, [other for other in runs if other is not run])) for run in runs]


def predict_run(run: ElasticRun, others: Sequence[ElasticRun]) -> Life:
    """Return the life of a job with the times of ``others`` and the run's own kills."""
    restarts = [restart for other in others for restart in other.restarts]
    if not restarts:
        raise ValueError(
            "none of the other runs was killed, so the time of a restart is unknown; measure runs with kills"
        )
    step_s = fmean(step for other in others for step in other.steps_s)
    job = LongJob(
        nodes=1,
        causes=(KILL,),
        work_s=run.steps * step_s,
        checkpoints=Checkpoints(write_s=fmean(save for other in others for save in other.saves_s)),
        restart=Restart(
            detect_s=fmean(one.detect_s for one in restarts),
            stop_s=fmean(one.stop_s for one in restarts),
            rendezvous_s=fmean(one.rendezvous_s for one in restarts),
            start_s=fmean(one.process_s + one.import_s + one.init_s for one in restarts),
            load_s=fmean(one.load_s for one in restarts),
        ),
    )
    until_training = [job.restart.start_s, *[job.restart.whole_s(KILL)] * len(run.kills)]
    strikes = [
        Strike(quiet_s + after_s, KILL)
        for quiet_s, (after_s, _) in zip(until_training, run.kills, strict=False)
    ]
    return live(job, run.interval * step_s, strikes)
