"""Predicted steps of DistributedDataParallel against measured ones."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ringside.sim.training.ddp.simulate import predict
from ringside.sim.training.ddp.step import DdpRecord, TrainingStep


@dataclass(frozen=True, slots=True)
class ComparedSteps:
    """Measured steps and their prediction; errors are predicted over measured, minus one."""

    record: DdpRecord
    predicted: TrainingStep

    @property
    def step_error(self) -> float:
        """The error of the step time, against the measured median."""
        return self.predicted.step_s / self.measured_s - 1

    @property
    def finish_errors(self) -> list[float]:
        """The error of each bucket's finish, against the measured median."""
        finishes = [[bucket.finish_s for bucket in step.buckets] for step in self.record.steps]
        predicted = [bucket.finish_s for bucket in self.predicted.buckets]
        return [
            one / other - 1
            for one, other in zip(predicted, np.median(finishes, axis=0).tolist(), strict=True)
        ]

    @property
    def measured_s(self) -> float:
        """The median of the measured steps, which is one of them."""
        return self.record.median.step_s

    @property
    def spread(self) -> float:
        """Half the range from the fastest measured step to the slowest, over the median."""
        times = [step.step_s for step in self.record.steps]
        return (max(times) - min(times)) / (2 * self.measured_s)


def compare_steps(record: DdpRecord) -> ComparedSteps:
    """Compare a measured run with its prediction."""
    return ComparedSteps(record, predict(record))


def row_of(name: str, one: ComparedSteps) -> dict[str, Any]:
    """Return a comparison in plain values."""
    return {
        "file": name,
        "ranks": one.record.ranks,
        "steps": len(one.record.steps),
        "measured_s": one.measured_s,
        "spread": one.spread,
        "predicted_s": one.predicted.step_s,
        "error": one.step_error,
        "finish_errors": one.finish_errors,
        "predicted_buckets": [asdict(bucket) for bucket in one.predicted.buckets],
        "measured_buckets": [asdict(bucket) for bucket in one.record.median.buckets],
    }
