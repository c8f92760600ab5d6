"""A training on a device, at its pace: what ``train`` simulates, as a command and as a function."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ringside.sim.libraries.library import Library
from ringside.sim.program.groups import process_group
from ringside.sim.training.ddp.job import Costs
from ringside.sim.training.ddp.scaling import OPERATOR_S, SPREAD, at_pace, contention
from ringside.sim.training.memory import find_optimizer
from ringside.sim.workload.devices import Device
from ringside.sim.workload.workload import Workload
from ringside.validation.questions.training import Training, peak_s, sized_workload


@dataclass(frozen=True, slots=True)
class Trained:
    """A training on a device: ``sized`` is the workload of a rank's batch, None for the one asked for.

    ``precision`` is what products are computed in, None where layers are timed. ``costs_on`` are the
    overheads on the ranks of a library.
    """

    sized: Callable[[int | None], Workload]
    precision: str | None
    costs_on: Callable[[Library], Costs]


def beyond_peak(measured: tuple[float, int], share: float, gpu: Device, precision: str) -> str:
    """Return the error for a throughput that is ``share`` times the GPUs' peak."""
    samples_per_s, ranks = measured
    return (
        f"{samples_per_s:g} samples/s on {counted(ranks)} is {share:.3g} times what {gpu.name} has at its "
        f"peak in {precision}; write what was measured, or another `precision` or `device`"
    )


def counted(ranks: int) -> str:
    """So many ranks, in words."""
    return f"{ranks} rank" if ranks == 1 else f"{ranks} ranks"


def trained(training: Training, gpu: Device, library: Callable[[int], Library]) -> Trained:
    """Return the training at its pace; ``library`` binds the ranks of a measured throughput."""
    sized, precision = sized_workload(training, gpu)
    work = sized(None)
    usual_spread = 0.0 if precision is None else SPREAD
    costs = Costs(
        memory_bandwidth=gpu.streaming, slowdown=training.slowdown,
        spread=usual_spread if training.spread is None else training.spread,
        operator_s=OPERATOR_S,
        optimizer_s=find_optimizer(training.optimizer).time_s(work, gpu.streaming),
    )  # fmt: skip

    def costs_on(found: Library) -> Costs:
        if found.ranks == 1:
            return replace(costs.alone, slowdown=costs.slowdown)
        usual = contention(found, gpu) if training.contention is None else training.contention
        return replace(costs, contention=usual)

    if training.throughput is not None:
        from ringside.validation.pace import pace

        samples_per_s, ranks = training.throughput
        if precision is not None:
            share = samples_per_s / ranks * peak_s(training, gpu, precision)
            if share > 1:
                raise ValueError(beyond_peak(training.throughput, share, gpu, precision))
        found = library(ranks)
        alike = replace(costs_on(found), slowdown={})
        factor = pace(work, process_group(found), samples_per_s, training.ddp, alike)
        return Trained(lambda batch: at_pace(sized(batch), factor), precision, costs_on)
    return Trained(sized, precision, costs_on)
