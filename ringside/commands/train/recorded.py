"""The output of ``ringside train`` for a recorded step: a row for each role of ranks."""

from dataclasses import dataclass
from typing import Any

from ringside import console
from ringside.commands.train.answer import fitting, gib, grid_of_peaks
from ringside.report.page import Page, Table, shown_number
from ringside.sim.training.memory.room import FITS
from ringside.topologies.units import format_duration
from ringside.validation.questions.priced import cost_text
from ringside.validation.questions.recorded import StepOfRecording


@dataclass(frozen=True, kw_only=True)
class RecordedAnswer:
    """The printed answer; with ``shows_memory`` also what the memory is for."""

    answer: StepOfRecording
    shows_memory: bool = False

    @property
    def verdict(self) -> str:
        """Whether the training fits into a GPU; it does where the GPU is unknown."""
        return FITS if self.answer.fit is None else self.answer.fit.verdict

    @property
    def fits(self) -> bool:
        """Whether it certainly fits."""
        return self.verdict == FITS

    def print(self) -> None:
        """Write a table of the roles."""
        answer, grids = self.answer, [console.TextTable(*self._table())]
        if self.shows_memory:
            peaks = {f"rank {stage.rank}": stage.peak for stage in answer.step.stages}
            grids.append(grid_of_peaks("role", peaks))
        disturbance = answer.disturbed.lines() if answer.disturbed else []
        console.print_answer(
            answer.headline, *grids, rests_on=answer.rests_on,
            notes=lambda: [*self._comments(), *answer.notes, *disturbance],
        )  # fmt: skip

    def print_json(self) -> None:
        """Write JSON."""
        console.print_json("train", self.content())

    def page(self) -> Page:
        """Return the page of the step."""
        from ringside.report.training import draws_figure, roles_figure

        answer = self.answer
        _, *comments = self._comments()
        names = [f"rank {stage.rank}" for stage in answer.step.stages]
        figures = {"Time of each role": roles_figure(answer.step, names, "waiting")}
        disturbance = answer.disturbed.lines() if answer.disturbed else []
        if answer.disturbed:
            figures = {"How long draws take": draws_figure(answer.disturbed.drawn), **figures}
        return Page(
            title=f"{answer.step.workload} on {answer.step.ranks} ranks",
            headline=answer.headline,
            figures=figures,
            tables=[Table("Every role", *self._table())],
            notes=[*comments, *answer.notes, *disturbance[1:]],
            raw=self.content(),
        )

    def headline(self) -> str:
        """Return the answer in a sentence."""
        first, *_ = self._comments()
        return f"{first[0].upper()}{first[1:]}."

    def content(self) -> dict[str, Any]:
        """Return the answer for JSON."""
        answer = self.answer
        return {"inputs": answer.inputs, "notes": answer.notes, **answer.totals, "rows": answer.rows}

    def _comments(self) -> list[str]:
        answer, step, question = self.answer, self.answer.step, self.answer.question
        samples = "" if step.throughput is None else f": {shown_number(step.throughput)} samples/s"
        counted = "samples unknown" if step.samples is None else f"{step.samples} samples a step"
        exposed = [f"{name} {seconds / step.step_s:.1%}" for name, seconds in step.exposed_by_s.items()]
        return [
            f"the step takes {format_duration(step.step_s, 4)}{samples}",
            *([cost_text(question, answer.cost)] if answer.cost else []),
            f"{step.workload} as recorded on {answer.where}: {step.ranks} ranks, {counted}; collectives of "
            f"{question.libraries.name}",
            answer.computing,
            ", ".join([f"waiting {step.bubble_share:.1%} of the step", *exposed]),
            self._memory(),
        ]

    def _memory(self) -> str:
        answer = self.answer
        worst = max(answer.step.stages, key=lambda stage: stage.peak.nbytes)
        peak = worst.peak
        sizes = ", ".join(f"{name} {gib(size)}" for name, size in peak.by_pool.items() if size)
        when = peak.operation or "all the time"
        of = "" if answer.fit is None else f" of {gib(answer.fit.memory)}"
        text = (
            f"memory of a GPU {gib(peak.nbytes)}{of} ({sizes}) on rank {worst.rank}, at "
            f"{format_duration(peak.moment_s, 3)}, {when}"
        )
        return text if answer.fit is None else f"{text}: {fitting(answer.fit)}"

    def _table(self) -> tuple[list[tuple[str, str]], list[tuple[console.Cell, ...]]]:
        step = self.answer.step
        groups = list(step.exposed_by_s)
        heads = [
            *(("rank", ""), ("alike", ""), ("compute", "(ms)")),
            *((name, "(ms)") for name in groups),
            *(("waiting", "(ms)"), ("peak", "(GiB)"), ("slowed", "(ms)"), ("comm", "(ms)")),
        ]
        cells: list[tuple[console.Cell, ...]] = [
            (
                *(stage.rank, stage.ranks, stage.compute_s * 1e3),
                *(stage.exposed_by_s.get(name, 0.0) * 1e3 for name in groups),
                *(stage.bubble_s * 1e3, stage.peak.nbytes / 2**30),
                *(stage.contention_s * 1e3, stage.communication_s * 1e3),
            )
            for stage in step.stages
        ]
        return heads, cells
