"""``ringside train`` under a layout: one step of all ranks, stage by stage, and whether it fits."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ringside import console
from ringside.commands.train.answer import computing, fitting, gib, room, unfit
from ringside.commands.train.disturbed import disturbed_layout
from ringside.disturbed import QUANTILES, Disturbed
from ringside.report.page import Page, Table, shown_number
from ringside.sim.training.advice import advice
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layout import Layout
from ringside.sim.training.memory import FITS, Room, room_of
from ringside.sim.training.mesh import DIMENSIONS
from ringside.sim.training.simulate import simulate_parallel
from ringside.sim.workload.devices import Device
from ringside.topologies.disk import write_file
from ringside.topologies.units import format_duration
from ringside.validation.questions.laid_out import LaidOut
from ringside.validation.questions.step_time import FORMULA, LaidOutStep, StepTime, peak_of

OPTIONS = {
    "strategy": "--strategy", "tensor": "--tp", "context": "--cp", "pipeline": "--pp", "shard": "--shard",
    "virtual": "--virtual", "micro_batch": "--micro-batch", "checkpointing": "--checkpointing",
    "sequence_parallel": "--sequence-parallel", "no_sync": "--no-sync",
    "overlap_grad_reduce": "--overlap-grad-reduce", "overlap_param_gather": "--overlap-param-gather",
    "expert": "--ep",
}  # fmt: skip
"""The options by what they set in a `Layout`."""


@dataclass(frozen=True, kw_only=True)
class ParallelAnswer(LaidOutStep):
    """The answer as it is shown."""

    disturbed: Disturbed | None = None

    @property
    def what(self) -> LaidOut:
        """The training under its layout."""
        return self.question.laid_out

    @property
    def job(self) -> ParallelJob:
        """The same as a job."""
        return self.question.job

    @property
    def room(self) -> Room:
        """The memory of a GPU."""
        return room_of(self.gpu, self.question.reserve)

    @property
    def gpu(self) -> Device:
        """What each rank computes on."""
        return self.question.gpu

    @property
    def verdict(self) -> str:
        """Whether a GPU holds what it must, of `ringside.sim.training.memory`."""
        return self.room.verdict(self.step.peak_nbytes)

    @property
    def fits(self) -> bool:
        """Whether it surely does."""
        return self.verdict == FITS

    @cached_property
    def would_fit(self) -> tuple[str, int] | None:
        """Options that would make it fit, and bytes of the peak then; None where it fits or none is known."""
        found = None if self.fits else advice(self.job.layout, self.what.job, self.room.usable)
        return found and (_said(self.job.layout, found[0]), found[1])

    @property
    def utilization(self) -> tuple[float | None, float | None]:
        """MFU and HFU, where FLOPs and the peak are known."""
        if self.what.precision is None:
            return None, None
        return self.step.utilization(self.gpu.peak(self.what.precision))

    def print(self) -> None:
        """Write a table of the stages."""
        told = self.disturbed.lines() if self.disturbed else []
        console.print_table([*self._comments(), *self.notes, *told], *self._table())

    def page(self) -> Page:
        """Return the page of the step."""
        from ringside.report.charts import stacked
        from ringside.report.training import draws_figure

        _, *comments = self._comments()
        stages = self.step.stages
        figures = {
            "What each stage does with the step": stacked(
                [f"stage {place}" if len(stages) > 1 else "every rank" for place in range(len(stages))],
                {
                    "compute": [stage.busy_s for stage in stages],
                    **{f"{name}, exposed": [stage.exposed_by_s.get(name, 0.0) for stage in stages]
                       for name in self.step.exposed_by_s},
                    "bubble": [stage.bubble_s for stage in stages],
                },
            )
        }  # fmt: skip
        told = self.disturbed.lines() if self.disturbed else []
        if self.disturbed:
            figures = {"How long draws take": draws_figure(self.disturbed.drawn, QUANTILES), **figures}
        said = self._headline() if self.disturbed is None else self.disturbed.headline("the step")
        return Page(
            title=f"{self.step.workload} on {self.step.ranks} ranks",
            headline=said if self.fits else f"{said} {unfit('It', self.verdict)}.",
            figures=figures,
            tables=[Table("Every stage", *self._table())],
            told=[*comments, *self.notes, *told[1:]],
            raw=self._content(),
        )

    def _headline(self) -> str:
        step, (mfu, _) = self.step, self.utilization
        rates = [f"{shown_number(step.throughput)} samples/s"]
        if step.tokens_per_s is not None:
            rates.append(f"{shown_number(step.tokens_per_s)} tokens/s")
        if mfu is not None:
            rates.append(f"MFU {mfu:.1%}")
        return f"The step takes {format_duration(step.step_s, 4)}: {', '.join(rates)}."

    def _table(self) -> tuple[list[tuple[str, str]], list[tuple[console.Cell, ...]]]:
        dimensions = list(self.step.exposed_by_s)
        heads = [
            *(("stage", ""), ("rank", ""), ("compute", "(ms)")),
            *((name, "(ms)") for name in dimensions),
            *(("bubble", "(%)"), ("peak", "(GiB)"), ("layers", ""), ("alike", ""), ("bubble", "(ms)")),
            *(("slowed", "(ms)"), ("copy", "(ms)")),
        ]
        cells: list[tuple[console.Cell, ...]] = [
            (
                *(place, stage.rank, stage.compute_s * 1e3),
                *(stage.exposed_by_s.get(name, 0.0) * 1e3 for name in dimensions),
                *(stage.bubble_s / self.step.step_s * 100, stage.peak.nbytes / 2**30),
                *(len(stage.layers), stage.ranks, stage.bubble_s * 1e3),
                *(stage.contention_s * 1e3, stage.copy_s * 1e3),
            )
            for place, stage in enumerate(self.step.stages)
        ]
        return heads, cells

    def print_json(self) -> None:
        """Write JSON."""
        console.print_json("train", self._content())

    def _content(self) -> dict[str, Any]:
        step, mesh = self.step, self.job.mesh
        mfu, hfu = self.utilization
        worst = max(step.stages, key=lambda stage: stage.peak.nbytes)
        content = {
            "inputs": self.inputs,
            "notes": self.notes,
            "mesh": {name: mesh.degree(name) for name in DIMENSIONS},
            "micro_batches": step.micro_batches,
            "ranks": step.ranks,
            "samples": step.samples,
            "tokens": step.tokens,
            "step_s": step.step_s,
            "throughput": step.throughput,
            "tokens_per_s": step.tokens_per_s,
            "mfu": mfu,
            "hfu": hfu,
            "gpu_hours_per_1e9_tokens": step.gpu_hours_per_1e9_tokens,
            "bubble_share": step.bubble_share,
            "exposed_s": step.exposed_s,
            "exposed_by_s": step.exposed_by_s,
            "memory_bytes": {**peak_of(worst), **room(self.room, worst.peak.nbytes), "rank": worst.rank},
            "fits": self.fits,
            "verdict": self.verdict,
            "would_fit": self.would_fit and {"options": self.would_fit[0], "total": self.would_fit[1]},
            "rows": self.rows,
        }
        return content | ({"disturbed": self.disturbed.content()} if self.disturbed else {})

    def _comments(self) -> list[str]:
        step, job = self.step, self.job
        said = {"context": f" by {job.layout.context_method}"}
        degrees = [f"{name} {count}{said.get(name, '')}" for name in DIMENSIONS
                   if (count := job.mesh.degree(name)) > 1]  # fmt: skip
        if job.mesh.expert > 1:
            degrees.append(f"experts among {job.mesh.expert}")
        schedule = f", {job.layout.schedule}" if job.mesh.pipeline > 1 else ""
        stages = f" with {job.layout.virtual} stages a rank" if job.layout.virtual > 1 else ""
        lines = [
            f"the step takes {format_duration(step.step_s, 4)}: {', '.join(self._rates())}",
            f"{job.layout.strategy} of {step.workload} on {self.question.where}: "
            f"{' x '.join(degrees) or 'one rank'}{schedule}{stages}; collectives of "
            f"{self.what.libraries.name}",
            f"{step.samples} samples a step, {job.batch} of a replica in {step.micro_batches} micro-batches "
            f"of {job.layout.micro_batch}; checkpointing {job.layout.checkpointing}",
            computing(self.what.training, self.gpu, self.what.precision),
            f"bubble {step.bubble_share:.1%} of the step"
            + "".join(f", {name} {seconds / step.step_s:.1%}" for name, seconds in step.exposed_by_s.items()),
            self._memory(),
        ]
        return [*lines, FORMULA] if self.utilization[0] is not None else lines

    def _rates(self) -> list[str]:
        step = self.step
        mfu, hfu = self.utilization
        rates = [f"{step.throughput:.4g} samples/s"]
        if step.tokens_per_s is not None:
            rates += [
                f"{step.tokens_per_s:.4g} tokens/s",
                f"{step.gpu_hours_per_1e9_tokens:.4g} GPU-hours for 1e9",
            ]
        if mfu is not None and hfu is not None:
            rates += [f"MFU {mfu:.1%}", *([f"HFU {hfu:.1%}"] if hfu != mfu else [])]
        return rates

    def _memory(self) -> str:
        worst = max(self.step.stages, key=lambda stage: stage.peak.nbytes)
        parts = ", ".join(f"{name} {gib(size)}" for name, size in worst.peak.pools.items() if size)
        when = worst.peak.operation or "all the time"
        text = (
            f"memory of a GPU {gib(worst.peak.nbytes)} of {gib(self.gpu.memory)} ({parts}) on rank "
            f"{worst.rank}, at {format_duration(worst.peak.moment_s, 3)}, {when}: "
            f"{fitting(self.room, worst.peak.nbytes)}"
        )
        if self.fits:
            return text
        if self.would_fit is None:
            return f"{text}; two changes of the layout do not make it fit"
        return f"{text}; with {self.would_fit[0]} it would take about {gib(self.would_fit[1])}"


def run(question: StepTime, *, plot: Path | None, trace: Path | None) -> ParallelAnswer:
    """Simulate the step."""
    disturbances = question.disturbances
    disturbance = disturbances.disturbance
    libraries, job = question.libraries, question.job
    with console.simulating("simulating", 1) as bar:
        step = simulate_parallel(job, libraries)
        bar.done(f"simulated {step.ranks} ranks")
    answer = ParallelAnswer(question=question, step=step)
    if disturbance:
        found = disturbed_layout(disturbances, disturbance, job, libraries, step.step_s)
        found.write(f"{step.workload} on {step.ranks} ranks, disturbed", plot, trace)
        return replace(answer, disturbed=found)
    if plot:
        from ringside.pictures.jobs.pipeline import draw_pipeline

        draw_pipeline(step, plot)
    if trace:
        write_file(trace, step.timeline.dumps())
    return answer


def _said(before: Layout, after: Layout) -> str:
    """Return the options that turn one layout into another."""
    changed = [
        (option, getattr(after, name))
        for name, option in OPTIONS.items()
        if getattr(after, name) != getattr(before, name) and getattr(after, name) is not None
    ]
    words = {True: "{}", False: "without {}"}
    return " ".join(
        words[value].format(option) if isinstance(value, bool) else f"{option} {value}"
        for option, value in changed
    )
