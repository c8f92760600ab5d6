"""The pace of layers, from one measured throughput."""

from dataclasses import replace

from scipy.optimize import brentq

from ringside.sim.libraries.library import Library
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.ddp.scaling import DataParallelTraining
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.simulate import simulate_parallel


def data_parallel_pace(training: DataParallelTraining, library: Library, samples_per_s: float) -> float:
    """Return the factor on layers' times with which all ranks train ``samples_per_s``, without stragglers.

    Raise ValueError if even layers of no duration would be slower.
    """
    workload, passes = training.workload(), training.ddp.accumulation
    totals = workload.totals
    step_s = workload.batch * passes * library.ranks / samples_per_s

    def missing(pace: float) -> float:
        return replace(training, pace=pace, slowdown={}).step(library).step_s - step_s

    most = 1.001 * step_s / (passes * (totals.forward_s + totals.backward_s))
    rest = missing(0.0)
    if rest >= 0:
        raise ValueError(
            f"{samples_per_s:g} samples/s on {library.ranks} ranks: copies, optimizer and collectives "
            f"alone allow {samples_per_s * step_s / (step_s + rest):.4g}; write a throughput measured "
            f"with a batch of {workload.batch} per rank"
        )
    return float(brentq(missing, 0.0, most, xtol=1e-9 * most, rtol=1e-9))


def parallel_pace(job: ParallelJob, libraries: Libraries, samples_per_s: float) -> float:
    """Return the same factor for a job under a layout.

    Raise ValueError if even layers of no duration would be slower.
    """
    step_s = job.samples / samples_per_s

    def missing(factor: float) -> float:
        return simulate_parallel(replace(job, factor=factor), libraries).step_s - step_s

    rest = missing(0.0)
    if rest >= 0:
        raise ValueError(
            f"{samples_per_s:g} samples/s on {job.mesh.ranks} ranks: copies, optimizer and collectives "
            f"alone allow {job.samples / (step_s + rest):.4g}; write a throughput measured with a batch "
            f"of {job.batch} per replica"
        )
    most = 1.0
    while missing(most) < 0:
        most *= 4
    return float(brentq(missing, 0.0, most, xtol=1e-9 * most, rtol=1e-6))
