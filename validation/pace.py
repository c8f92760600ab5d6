"""The pace of layers, from one measured throughput."""

from dataclasses import replace
from math import ceil

from scipy.optimize import brentq

from ringside.sim.libraries.library import Library
from ringside.sim.program.libraries import Libraries
from ringside.sim.recorded.step import RecordedTraining
from ringside.sim.training.ddp.scaling import DataParallelTraining
from ringside.sim.training.layout import Layout
from ringside.sim.training.parallel import ParallelTraining, simulate_parallel
from ringside.sim.workload.workload import TimedModel
from ringside.topologies.catalogue import split


def data_parallel_pace(training: DataParallelTraining, library: Library, samples_per_s: float) -> float:
    """Return the factor on layers' times with which all ranks train ``samples_per_s``, without stragglers.

    Raise ValueError above the GPUs' peak, or if even layers of no duration would be slower.
    """
    model = training.model
    if not isinstance(model, TimedModel):
        _check_possible(training, samples_per_s, library.ranks, samples_per_s / library.ranks * model.peak_s)
    workload, passes = training.workload(), training.ddp.accumulation
    totals = workload.totals
    step_s = workload.batch * passes * library.ranks / samples_per_s

    def missing(pace: float) -> float:
        return replace(training, pace=pace, slowdown={}).step(library).step_s - step_s

    most = 1.001 * step_s / (passes * (totals.forward_s + totals.backward_s))
    rest = missing(0.0)
    if rest >= 0:
        raise ValueError(_too_fast(samples_per_s, library.ranks, step_s, rest, f"{workload.batch} per rank"))
    return float(brentq(missing, 0.0, most, xtol=1e-9 * most, rtol=1e-9))


def parallel_pace(training: ParallelTraining, layout: Layout, samples_per_s: float, ranks: int) -> float:
    """Return the same factor for a training under a layout, measured on a number of such ranks."""
    there = replace(training, libraries=_of_ranks(training.libraries, ranks))
    job = there.job(layout)
    step_s = job.samples / samples_per_s

    def missing(factor: float) -> float:
        return simulate_parallel(replace(job, factor=factor), there.libraries).step_s - step_s

    rest = missing(0.0)
    if rest >= 0:
        raise ValueError(_too_fast(samples_per_s, job.mesh.ranks, step_s, rest, f"{job.batch} per replica"))
    most = 1.0
    while missing(most) < 0:
        most *= 4
    factor = float(brentq(missing, 0.0, most, xtol=1e-9 * most, rtol=1e-6))
    step = simulate_parallel(replace(job, factor=factor), there.libraries)
    _, share = there.utilization(step)
    _check_possible(training.training, samples_per_s, step.ranks, share or 0.0)
    return factor


def recorded_pace(training: RecordedTraining, samples_per_s: float, ranks: int) -> float:
    """Return the same factor for a recorded job, measured on its own ranks."""
    job = training.job
    if job.samples is None:
        raise ValueError("`measured` needs samples, and the recording has none; record it with --samples")
    if ranks != job.ranks:
        raise ValueError(
            f"`measured` on {ranks} ranks, and the job was recorded on {job.ranks}; write a throughput of "
            "as many"
        )
    step_s, samples = job.samples / samples_per_s, job.samples

    def missing(factor: float) -> float:
        return replace(training, factor=training.factor * factor).step().step_s - step_s

    rest = missing(0.0)
    if rest >= 0:
        raise ValueError(_too_fast(samples_per_s, ranks, step_s, rest, f"{samples} of all ranks"))
    most = 1.0
    while missing(most) < 0:
        most *= 4
    return float(brentq(missing, 0.0, most, xtol=1e-9 * most, rtol=1e-6))


def _check_possible(training: DataParallelTraining, samples_per_s: float, ranks: int, share: float) -> None:
    """Raise ValueError for a throughput above the GPUs' peak; ``share`` is its ratio to the peak."""
    if share > 1:
        of_ranks = f"{ranks} rank" if ranks == 1 else f"{ranks} ranks"
        raise ValueError(
            f"{samples_per_s:g} samples/s on {of_ranks} is {share:.3g} times the peak of {training.gpu.name} "
            f"in {training.model.precision}; write a measured throughput, or another `precision` or `device`"
        )


def _too_fast(samples_per_s: float, ranks: int, step_s: float, rest: float, batch: str) -> str:
    return (
        f"{samples_per_s:g} samples/s on {ranks} ranks: copies, optimizer and collectives alone "
        f"allow {samples_per_s * step_s / (step_s + rest):.4g}; write a throughput measured with a batch "
        f"of {batch}"
    )


def _of_ranks(libraries: Libraries, ranks: int) -> Libraries:
    """Return the library on a number of ranks of the same machines, filled one after another."""
    if ranks == libraries.ranks:
        return libraries
    name, _ = split(libraries.cluster)
    return Libraries(
        libraries.name, f"{name}:{ceil(ranks / libraries.machine)}", libraries.values, ranks,
        libraries.network, libraries.calibration, libraries.placement,
    )  # fmt: skip
