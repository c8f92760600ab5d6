"""A training step under a layout, simulated on a cluster: one rank per stage represents all of its ranks."""

from collections.abc import Iterable
from dataclasses import dataclass

from ringside.sim.disturbance.disturbance import Draw
from ringside.sim.effort import consider_operations
from ringside.sim.libraries.laws import check_time
from ringside.sim.program.jobs import PlacedProgram, play
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.simulate import Simulation
from ringside.sim.program.timeline import timeline
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.memory import Peak, peak
from ringside.sim.training.program import Writing
from ringside.sim.training.rank_model import seconds_of
from ringside.sim.training.step import ParallelStep, StageTime, stage_time


@dataclass(frozen=True, slots=True)
class Played:
    """A step that has been played, one rank per stage; `step` summarises it."""

    job: ParallelJob
    writing: Writing
    simulation: Simulation

    @property
    def step_s(self) -> float:
        """The end of the last operation."""
        return self.simulation.makespan_s

    @property
    def peaks(self) -> tuple[Peak, ...]:
        """The peak of each played rank."""
        simulation = self.simulation
        return tuple(
            peak(
                self.writing.step(rank).held, simulation.operations[index], simulation.begin[index],
                simulation.end[index],
            )
            for index, rank in enumerate(simulation.played)
        )  # fmt: skip

    def step(self) -> ParallelStep:
        """Return the step, stage by stage.

        Raise `ringside.sim.libraries.laws.LawError` if it breaks a bound.
        """
        job, simulation, step_s = self.job, self.simulation, self.step_s
        stages = []
        for index, (rank, most) in enumerate(zip(simulation.played, self.peaks, strict=True)):
            step = self.writing.step(rank)
            names = tuple(layer.name for stage in step.stages for layer in job.layers(stage))
            stages.append(stage_time(simulation, index, job.mesh, names, most))
            _check(job, step.stages, stages[-1], step_s)
        model, samples, flops = job.model, job.samples, job.model.model_flops
        tokens = None if model.tokens is None else model.tokens * samples
        exposed = {
            name: sum(stage.exposed_by_s.get(name, 0.0) for stage in stages) / len(stages)
            for name in dict.fromkeys(name for stage in stages for name in stage.exposed_by_s)
        }
        return ParallelStep(
            workload=model.name,
            sample=model.sample,
            ranks=job.mesh.ranks,
            samples=samples,
            tokens=tokens,
            step_s=step_s,
            throughput=samples / step_s,
            tokens_per_s=None if tokens is None else tokens / step_s,
            gpu_hours_per_1e9_tokens=tokens and job.mesh.ranks * step_s / 3600 * 1e9 / tokens,
            bubble_share=sum(stage.bubble_s for stage in stages) / len(stages) / step_s,
            exposed_s=sum(exposed.values()),
            exposed_by_s=exposed,
            peak_nbytes=max(stage.peak.nbytes for stage in stages),
            micro_batches=job.micro_batches,
            model_flops=flops and flops * samples,
            hardware_flops=flops and (flops + model.recomputed_flops) * samples,
            stages=tuple(stages),
            timeline=timeline(simulation),
        )


def play_parallel(job: ParallelJob, libraries: Libraries) -> Played:
    """Play one optimizer step; rank r of the mesh is rank r of the cluster."""
    passed = sum(_operations(layer) for layer in job.model.layers)
    consider_operations(job.micro_batches * passed)
    writing = Writing(job)
    placed = PlacedProgram(writing.program(), tuple(range(job.mesh.ranks)), job.roles)
    (simulation,) = play([placed], libraries, job.costs.contention)
    return Played(job, writing, simulation)


def simulate_parallel(job: ParallelJob, libraries: Libraries) -> ParallelStep:
    """Simulate one optimizer step; rank r of the mesh is rank r of the cluster.

    Raise `ringside.sim.libraries.laws.LawError` if the answer breaks a bound.
    """
    return play_parallel(job, libraries).step()


def simulate_parallel_disturbed(job: ParallelJob, libraries: Libraries, draw: Draw) -> Simulation:
    """Simulate one draw of a disturbed step: every rank has its own pace and is simulated."""
    program = Writing(job).program()
    passed = sum(_operations(layer) for layer in job.model.layers)
    consider_operations(job.micro_batches * passed * program.ranks)
    placed = PlacedProgram(draw.program(program), tuple(range(program.ranks)))
    (simulation,) = play([placed], libraries, job.costs.contention, draw.disturbance.late)
    return simulation


def _operations(layer: RankLayer) -> int:
    """Return roughly the number of operations of a micro-batch in a layer, each exchange with a wait."""
    return 2 * (len(layer.forward) + len(layer.recomputed) + len(layer.backward))


def _check(job: ParallelJob, stages: Iterable[int], stage: StageTime, step_s: float) -> None:
    """Raise LawError for a step shorter than the compute or the communication of one of its stages."""
    a_pass = sum(seconds_of(layer) for number in stages for layer in job.layers(number))
    bounds = {
        "compute": job.micro_batches * a_pass,
        "busiest communicator": max(stage.communication_by_s.values(), default=0.0),
    }
    check_time(f"a step of {job.model.name}", step_s, bounds)
