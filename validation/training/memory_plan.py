"""The small jobs whose peaks of memory are predicted and measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from ringside.real.training.job import SmallDecoder, SmallGpt
from ringside.real.training.memory import MemoryJob, measure_alone, measure_together
from ringside.validation.emulated.training import Check
from ringside.validation.training.memory import ComparedPeaks, compare_peak

MEDIAN, WORST = 0.005, 0.02
"""The limits of the absolute relative errors of peaks."""


@dataclass(frozen=True, slots=True)
class MemoryCase:
    """A job with a name."""

    name: str
    job: MemoryJob


_LLAMA = SmallDecoder(
    layers=4, hidden=256, inner=704, heads=8, key_value_heads=4, sequence=128, vocabulary=2048, batch=2
)
_GPT = SmallGpt(layers=4, hidden=256, inner=1024, heads=8, sequence=128, vocabulary=2048, batch=2)
_DEEP = replace(_LLAMA, layers=8, vocabulary=512)
_WORDY = replace(_LLAMA, vocabulary=8192)


def _cases(of: str, **shared: Any) -> tuple[MemoryCase, ...]:
    """Return cases of a strategy: each a name, and what it changes of those that all share."""
    changes: Mapping[str, Any] = shared.pop("changes")
    return tuple(
        MemoryCase(f"{of} {name}".strip(), MemoryJob(**{"model": _LLAMA, **shared, **change}))
        for name, change in changes.items()
    )


CASES = (
    *_cases(
        "fsdp", shard=4,
        changes={
            "": {}, "gpt": {"model": _GPT}, "deep": {"model": _DEEP}, "wordy": {"model": _WORDY},
            "accumulating": {"micro_batches": 2}, "no_sync": {"micro_batches": 2, "no_sync": True},
            "bfloat16": {"model": _DEEP, "param_dtype": "bfloat16"},
            "replicated": {"shard": 2, "replicate": 2}, "on 8 ranks": {"shard": 8, "model": _GPT},
        },
    ),
    *_cases(
        "ddp", strategy="ddp", replicate=4,
        changes={
            "": {}, "gpt": {"model": _GPT}, "deep": {"model": _DEEP}, "wordy": {"model": _WORDY},
            "accumulating": {"micro_batches": 2}, "no_sync": {"micro_batches": 2, "no_sync": True},
        },
    ),
    *_cases(
        "tensor", tensor=2,
        changes={
            "": {}, "deep": {"model": _DEEP}, "on 4 ranks": {"tensor": 4},
            "sequence": {"sequence_parallel": True},
            "sequence deep": {"sequence_parallel": True, "model": _DEEP},
            "fsdp": {"shard": 2}, "sequence fsdp": {"shard": 2, "sequence_parallel": True},
        },
    ),
    *_cases(
        "pipeline", pipeline=2, micro_batches=4,
        changes={
            "1f1b": {}, "1f1b gpt": {"model": _GPT}, "1f1b deep": {"model": _DEEP},
            "gpipe": {"schedule": "gpipe"},
            "interleaved": {"schedule": "interleaved1f1b", "virtual": 2},
            "looped bfs": {"schedule": "looped_bfs", "virtual": 2},
            "fsdp": {"shard": 2}, "tensor": {"tensor": 2},
        },
    ),
)  # fmt: skip
"""The validated cases."""

SHORT = tuple(case for case in CASES if case.name in ("fsdp", "fsdp gpt", "ddp", "tensor sequence"))


def judge(cases: Sequence[MemoryCase], on_judged: Callable[[MemoryCase, ComparedPeaks], None]) -> None:
    """Predict and measure each case: the first rank, of a pipeline a rank of each stage.

    Raise `ringside.real.launch.follow.MeasureError` if a measurement fails.
    """
    alone = measure_alone([case.job for case in cases if case.job.pipeline == 1])
    for case in cases:
        job = case.job
        if job.pipeline == 1:
            peaks = {0: next(alone)}
        else:
            each = job.mesh.ranks // job.pipeline
            peaks = dict(list(enumerate(measure_together(job)))[::each])
        on_judged(case, ComparedPeaks(tuple(compare_peak(job, rank, peaks[rank]) for rank in peaks)))


def checks(judged: Sequence[ComparedPeaks]) -> tuple[Check, ...]:
    """Return the figures that have a tolerance."""
    errors = [abs(one.error) for peaks in judged for one in peaks.ranks]
    return (
        Check("median error of peaks", median(errors), MEDIAN),
        Check("worst error of peaks", max(errors), WORST),
    )
