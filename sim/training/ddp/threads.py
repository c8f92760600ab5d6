"""PowerSGD in the threads of Gloo: a waiting thread carries no collective.

The hook continues where its first all-reduce has ended: in the thread of ProcessGroupGloo that carried it.
That thread launches the next two and waits for them, so other threads must carry these. If all threads wait,
nothing moves any more: with two threads, when a bucket is launched before the one in front of it has launched
its third all-reduce. On NCCL only streams wait.
"""

from collections.abc import Sequence

from ringside.sim.training.ddp.plan import StepPlan
from ringside.sim.training.ddp.sharing import Chain


class HangError(ValueError):
    """A training step that never ends; the message says why."""


def free_workers(job: StepPlan, workers: int) -> int:
    """Return the number of collectives that run at once: with PowerSGD one of several threads waits."""
    return workers - 1 if job.ddp.compresses and workers > 1 else workers


def check_threads(job: StepPlan, chains: Sequence[Chain], ends: Sequence[float], workers: int) -> None:
    """Raise `HangError` where every thread of a rank waits; ``ends`` are of its operations."""
    if not job.ddp.compresses or workers == 1:
        return
    waiting: list[float] = []
    for number, chain in enumerate(chains):
        launch = _moment(ends, chain.launched[0].launch)
        waiting = [*(moment for moment in waiting if moment > launch), _moment(ends, chain.asked)]
        if len(waiting) >= workers:
            raise HangError(
                f"{job.workload.name}: PowerSGD hangs at bucket {number}, launched while those before it "
                f"still need a thread: each has one of Gloo's {workers} wait, and none is left to go on; "
                "write a larger `bucket_cap_mb`, up to one bucket for all, or `library` nccl"
            )


def _moment(ends: Sequence[float], place: int | None) -> float:
    return 0.0 if place is None else ends[place]
