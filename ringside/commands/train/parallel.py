"""``ringside train`` under a layout: one step of all ranks, stage by stage, and whether it fits."""

from dataclasses import dataclass
from typing import Any

from ringside import console
from ringside.commands.train.answer import fitting, gib, unfit
from ringside.report.page import Page, Table, shown_number
from ringside.sim.training.memory import FITS
from ringside.topologies.units import format_duration
from ringside.validation.questions.step_time import StepUnderLayout
from ringside.validation.questions.training import FORMULA


@dataclass(frozen=True, kw_only=True)
class ParallelAnswer:
    """The printed answer."""

    answer: StepUnderLayout

    @property
    def verdict(self) -> str:
        """Whether the training fits into a GPU: a verdict of `ringside.sim.training.memory`."""
        return self.answer.fit.verdict

    @property
    def fits(self) -> bool:
        """Whether it certainly fits."""
        return self.verdict == FITS

    def print(self) -> None:
        """Write a table of the stages."""
        disturbance = self.answer.disturbed.lines() if self.answer.disturbed else []
        console.print_table([*self._comments(), *self.answer.notes, *disturbance], *self._table())

    def page(self) -> Page:
        """Return the page of the step."""
        from ringside.report.charts import stacked
        from ringside.report.training import draws_figure

        answer = self.answer
        _, *comments = self._comments()
        stages = answer.step.stages
        figures = {
            "Time of each stage": stacked(
                [f"stage {place}" if len(stages) > 1 else "every rank" for place in range(len(stages))],
                {
                    "compute": [stage.busy_s for stage in stages],
                    **{f"{name}, exposed": [stage.exposed_by_s.get(name, 0.0) for stage in stages]
                       for name in answer.step.exposed_by_s},
                    "bubble": [stage.bubble_s for stage in stages],
                },
            )
        }  # fmt: skip
        disturbance = answer.disturbed.lines() if answer.disturbed else []
        if answer.disturbed:
            figures = {"How long draws take": draws_figure(answer.disturbed.drawn), **figures}
        headline = self._headline() if answer.disturbed is None else answer.disturbed.headline("the step")
        return Page(
            title=f"{answer.step.workload} on {answer.step.ranks} ranks",
            headline=headline if self.fits else f"{headline} {unfit('It', self.verdict)}.",
            figures=figures,
            tables=[Table("Every stage", *self._table())],
            notes=[*comments, *answer.notes, *disturbance[1:]],
            raw=self._content(),
        )

    def _headline(self) -> str:
        answer = self.answer
        step, mfu = answer.step, answer.mfu
        rates = [f"{shown_number(step.throughput)} samples/s"]
        if step.tokens_per_s is not None:
            rates.append(f"{shown_number(step.tokens_per_s)} tokens/s")
        if mfu is not None:
            rates.append(f"MFU {mfu:.1%}")
        return f"The step takes {format_duration(step.step_s, 4)}: {', '.join(rates)}."

    def _table(self) -> tuple[list[tuple[str, str]], list[tuple[console.Cell, ...]]]:
        dimensions = list(self.answer.step.exposed_by_s)
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
                *(stage.bubble_s / self.answer.step.step_s * 100, stage.peak.nbytes / 2**30),
                *(len(stage.layers), stage.ranks, stage.bubble_s * 1e3),
                *(stage.contention_s * 1e3, stage.copy_s * 1e3),
            )
            for place, stage in enumerate(self.answer.step.stages)
        ]
        return heads, cells

    def print_json(self) -> None:
        """Write JSON."""
        console.print_json("train", self._content())

    def _content(self) -> dict[str, Any]:
        answer = self.answer
        return {"inputs": answer.inputs, "notes": answer.notes, **answer.totals, "rows": answer.rows}

    def _comments(self) -> list[str]:
        answer, step, question = self.answer, self.answer.step, self.answer.question
        job, layout, mesh = question.job, question.job.layout, question.job.mesh
        methods = {"context": f" by {layout.cp_method}"}
        degrees = [
            f"{name} {count}{methods.get(name, '')}" for name, count in answer.mesh.items() if count > 1
        ]
        if mesh.expert > 1:
            degrees.append(f"experts among {mesh.expert}")
        schedule = f", {layout.schedule}" if mesh.pipeline > 1 else ""
        stages = f" with {layout.virtual} stages a rank" if layout.virtual > 1 else ""
        lines = [
            f"the step takes {format_duration(step.step_s, 4)}: {', '.join(self._rates())}",
            f"{layout.strategy} of {step.workload} on {answer.where}: "
            f"{' x '.join(degrees) or 'one rank'}{schedule}{stages}; collectives of "
            f"{question.libraries.name}",
            f"{step.samples} samples a step, {job.batch} of a replica in {step.micro_batches} micro-batches "
            f"of {layout.micro_batch}; checkpointing {layout.checkpointing}",
            answer.computing,
            f"bubble {step.bubble_share:.1%} of the step"
            + "".join(f", {name} {seconds / step.step_s:.1%}" for name, seconds in step.exposed_by_s.items()),
            self._memory(),
        ]
        return lines if answer.mfu is None else [*lines, FORMULA]

    def _rates(self) -> list[str]:
        step, mfu, hfu = self.answer.step, self.answer.mfu, self.answer.hfu
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
        answer, question = self.answer, self.answer.question
        worst = max(answer.step.stages, key=lambda stage: stage.peak.nbytes)
        sizes = ", ".join(f"{name} {gib(size)}" for name, size in worst.peak.by_pool.items() if size)
        when = worst.peak.operation or "all the time"
        text = (
            f"memory of a GPU {gib(worst.peak.nbytes)} of {gib(question.gpu.memory)} ({sizes}) on rank "
            f"{worst.rank}, at {format_duration(worst.peak.moment_s, 3)}, {when}: "
            f"{fitting(answer.fit)}"
        )
        if self.fits:
            return text
        if answer.would_fit is None:
            return f"{text}; two changes of the layout do not make it fit"
        return f"{text}; with {answer.would_fit[0]} it would take about {gib(answer.would_fit[1])}"
