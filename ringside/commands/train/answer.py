"""The output of ``ringside train``: rows of steps, the memory of a GPU, and the sources of times."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ringside import console
from ringside.report.page import Page, Table
from ringside.sim.libraries.library import Library
from ringside.sim.training.ddp.scaling import ScaledStep
from ringside.sim.training.memory.peak import Peak
from ringside.sim.training.memory.room import FITS, TIGHT, MemoryFit
from ringside.topologies.units import format_duration
from ringside.validation.questions.priced import cost_text
from ringside.validation.questions.step_time import DataParallelSteps, StepTime, StepUnderLayout
from ringside.validation.questions.training import FORMULA

HEADS = (
    *(("nodes", ""), ("ranks", ""), ("cap", "(MiB)"), ("step", "(ms)"), ("samples", "(1/s)")),
    *(("compute", "(ms)"), ("slowed", "(ms)"), ("copy", "(ms)"), ("exposed", "(ms)"), ("comm", "(ms)")),
    *(("overlap", "(%)"), ("lower", "(ms)"), ("upper", "(ms)"), ("weak", "(%)"), ("strong", "(%)")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsAnswer:
    """A step, or the steps of a sweep, for output: ``best_mb`` is the recommended cap.

    ``swept`` is the text of a sweep, its parameter and its values, one a row.
    """

    steps: DataParallelSteps
    best_mb: float | None = None
    swept: tuple[str, str, list[float]] | None = None

    @property
    def verdict(self) -> str:
        """Whether the training fits into a GPU: a verdict of `ringside.sim.training.memory.room`."""
        return self.steps.fit.verdict

    @property
    def fits(self) -> bool:
        """Whether it certainly fits."""
        return self.verdict == FITS

    def print(self) -> None:
        """Write a table."""
        steps = self.steps
        grid = console.TextTable(HEADS, list(map(_cells, steps.steps)))
        console.print_answer(self._headline(), grid, rests_on=steps.rests_on, notes=self._notes)

    def _notes(self) -> list[str]:
        steps = self.steps
        return [*self._comments(), *steps.notes, *(steps.disturbed.lines() if steps.disturbed else [])]

    def _headline(self) -> str:
        if self.swept is None:
            return self.steps.headline
        _, parameter, values = self.swept
        return self._advice(parameter, values)

    def print_json(self) -> None:
        """Write JSON."""
        console.print_json("train", self.content())

    def page(self) -> Page:
        """Return the page of the step, or of a sweep's steps."""
        from ringside.report.training import draws_figure, sweep_figure, timelines_figure

        steps = self.steps
        step = steps.steps[0].step
        title = f"{step.workload} on {step.ranks} ranks"
        figures = {}
        if self.swept:
            _, parameter, values = self.swept
            title = f"{step.workload} over {parameter}"
            swept = [one.step for one in steps.steps]
            figures["The step between its bounds"] = sweep_figure(parameter, values, swept, self.best_mb)
        else:
            figures["What runs when"] = timelines_figure({title: step})
        if steps.disturbed:
            figures = {"How long draws take": draws_figure(steps.disturbed.drawn), **figures}
        notes = [
            *self._comments(),
            *steps.notes,
            *(steps.disturbed.blame() if steps.disturbed else []),
        ]
        return Page(
            title=title,
            headline=self._headline(),
            figures=figures,
            tables=[Table("Every step", HEADS, [_cells(row) for row in steps.steps])],
            notes=notes,
            raw=self.content(),
        )

    def _scaling(self) -> str:
        """Return the samples that scaling efficiencies compare: of a rank, or of all with a global batch."""
        said = "weak and strong scaling efficiency are against one rank alone"
        together = self.steps.question.global_batch
        return said if together is None else f"{said}; strong alone is of --global-batch {together}"

    def _advice(self, parameter: str, values: list[float]) -> str:
        """Return the fastest value of a sweep, and the one to choose."""
        times = {value: row.step.step_s for value, row in zip(values, self.steps.steps, strict=True)}
        quickest = min(times, key=times.__getitem__)
        shortest = f"{format_duration(times[quickest], 4)} with {parameter} {quickest:g}"
        if self.best_mb in (None, quickest):
            return f"The step is shortest, {shortest}."
        took = times[self.best_mb]
        return (
            f"Use {parameter} {self.best_mb:g}: the step takes {format_duration(took, 4)}, "
            f"{took / times[quickest] - 1:.1%} more than the shortest, {shortest}."
        )

    def content(self) -> dict[str, Any]:
        """Return the answer for JSON."""
        steps = self.steps
        libraries = [one.library for one in steps.steps]
        measured = dict.fromkeys(f"times {one.basis}" for one in libraries if one.measurements)
        content: dict[str, Any] = {
            "inputs": steps.inputs | {"sweep": self.swept[0] if self.swept else None},
            "notes": [*measured, *steps.notes],
            **steps.totals,
            "rows": steps.rows,
        }
        if self.best_mb is not None:
            content["recommended_bucket_cap_mb"] = self.best_mb
        return content

    def _comments(self) -> list[str]:
        steps, question = self.steps, self.steps.question
        first = steps.steps[0].step
        lower, upper = "'lower'", "'upper'"
        if len(steps.steps) == 1:
            figures = steps.steps[0].figures
            lower, upper = (format_duration(figures[name], 4) for name in ("lower_s", "upper_s"))
        purposes = ", ".join(f"{name} {gib(size)}" for name, size in asdict(steps.memory).items() if size)
        hook = (question.comm_hook or "").partition(":")[0]
        return [
            f"the step takes {lower} if everything overlaps, {upper} if nothing does{within(question)}",
            f"{question.strategy} of {first.workload} on {steps.where}; collectives of "
            f"{steps.steps[0].library.name}"
            f"{_caveat(steps.steps[0].library)}",
            f"{first.samples // first.ranks} samples a rank and step, "
            f"{steps.computing}, "
            f"{question.optimizer}{', ' + hook if hook else ''}",
            f"memory of a GPU {gib(steps.fit.nbytes)} of {gib(question.gpu.memory)} ({purposes}): "
            f"{fitting(steps.fit)}",
            *self._costs(),
            "step = compute + slowed (by collectives beside it) + copy (of buckets) + exposed",
            self._scaling(),
        ]

    def _costs(self) -> list[str]:
        """Return what the training costs with each step, where that is asked for."""
        names = [f"{self.swept[1]} {value:g}: " for value in self.swept[2]] if self.swept else [""]
        return [
            name + cost_text(self.steps.question, cost)
            for name, cost in zip(names, self.steps.costs, strict=True)
            if cost
        ]


SURE = 0.99
"""The chance above which no figure is shown: normal tails are not known as far."""


def within(question: StepTime) -> str:
    """Return the band of four of five steps as the end of a sentence; nothing where it is unknown."""
    if question.band is None:
        return ""
    return f"; four of five such steps take {1 / question.band:.2f} to {question.band:.2f} times that"


def gib(nbytes: int) -> str:
    """Format the memory of a GPU in GiB."""
    return f"{nbytes / 2**30:.2f} GiB"


def fitting(fit: MemoryFit) -> str:
    """Return whether a training fits, with its chance, the margin, and what is beside it."""
    margin = f"{gib(abs(fit.margin))} {'left' if fit.margin >= 0 else 'too much'}"
    names = {"nccl": f"NCCL's buffers of {' and '.join(fit.nccl)}", "allocator": "the allocator some"}
    kinds = ", ".join(f"{names.get(name, name)} {gib(size)}" for name, size in fit.beside.items() if size)
    chance = shown_chance(fit.chance)
    return f"{fit.verdict} ({chance}), {margin} beside a reserve of {gib(fit.reserve)} ({kinds})"


def shown_chance(chance: float) -> str:
    """Return a chance in per cent; one beyond what labels can tell as a bound."""
    if chance > SURE:
        return f"chance over {SURE:.0%}"
    return f"chance under {1 - SURE:.0%}" if chance < 1 - SURE else f"chance {chance:.0%}"


def grid_of_peaks(what: str, peaks: Mapping[str, Peak]) -> console.TextTable:
    """Return a table of what memory is for at several peaks, by their names."""
    purposes = dict.fromkeys(purpose for one in peaks.values() for purpose in one.by_pool)
    return console.TextTable(
        [("purpose", ""), *((name, "(GiB)") for name in peaks)],
        [(name, *(one.by_pool.get(name, 0) / 2**30 for one in peaks.values())) for name in purposes],
        f"memory of a GPU at the peak of each {what}",
    )


def unfit(what: str, verdict: str) -> str:
    """Return a sentence if the training is tight or does not fit."""
    return f"{what} is tight in a GPU" if verdict == TIGHT else f"{what} does not fit into a GPU"


def _caveat(library: Library) -> str:
    """Return the source of a library's times, and the network if it is not the default."""
    doubt = ", which no measurement has calibrated" if library.has_tuner and not library.measurements else ""
    return f", {library.basis}{doubt}" if library.basis else ""


def _cells(one: ScaledStep) -> tuple[console.Cell, ...]:
    figures = one.figures
    in_ms = ("compute_s", "contention_s", "copy_s", "exposed_s", "communication_s")
    return (
        *(one.library.nodes, figures["ranks"], "default" if one.cap_mb is None else f"{one.cap_mb:g}"),
        *(figures["step_s"] * 1e3, figures["throughput"], *(figures[name] * 1e3 for name in in_ms)),
        *(figures["overlap_efficiency"] * 100, figures["lower_s"] * 1e3, figures["upper_s"] * 1e3),
        *(one.weak * 100, one.strong * 100),
    )


@dataclass(frozen=True, kw_only=True)
class ParallelAnswer:
    """The printed answer; with ``shows_memory`` also what the memory is for, and what would save some."""

    answer: StepUnderLayout
    shows_memory: bool = False

    @property
    def verdict(self) -> str:
        """Whether the training fits into a GPU: a verdict of `ringside.sim.training.memory.room`."""
        return self.answer.fit.verdict

    @property
    def fits(self) -> bool:
        """Whether it certainly fits."""
        return self.verdict == FITS

    def print(self) -> None:
        """Write a table of the stages."""
        answer = self.answer
        grids = [console.TextTable(*self._table()), *(self._grids() if self.shows_memory else [])]
        rests_on = self._savings()[:1] if self.shows_memory else answer.rests_on
        console.print_answer(answer.headline, *grids, rests_on=rests_on, notes=self._notes)

    def _notes(self) -> list[str]:
        answer = self.answer
        disturbance = answer.disturbed.lines() if answer.disturbed else []
        savings = self._savings() if self.shows_memory else []
        return [*self._comments(), *answer.notes, *disturbance, *savings]

    def _grids(self) -> list[console.TextTable]:
        """Return tables of the memory of each stage, and of what layers keep where it is largest."""
        stages = self.answer.step.stages
        worst = max(range(len(stages)), key=lambda place: stages[place].peak.nbytes)
        kept = console.TextTable(
            [("layer", ""), ("alike", ""), ("tensors", ""), ("kept", "(MiB)")],
            [
                (one["layers"][0], len(one["layers"]), name, nbytes / 2**20)
                for one in self.answer.kept[worst]
                for name, nbytes in one["terms"].items()
            ],
            f"what a micro-batch keeps for backward in each layer of stage {worst}",
        )
        return [grid_of_peaks("stage", {f"stage {n}": one.peak for n, one in enumerate(stages)}), kept]

    def _savings(self) -> list[str]:
        return [
            f"{one['options']}: -{gib(one['saved_bytes'])}, {one['slower']:+.1%} time a sample"
            for one in self.answer.savings
        ] or ["no single change of the layout saves memory"]

    def page(self) -> Page:
        """Return the page of the step."""
        from ringside.report.training import draws_figure, roles_figure

        answer = self.answer
        _, *comments = self._comments()
        count = len(answer.step.stages)
        names = [f"stage {place}" if count > 1 else "every rank" for place in range(count)]
        figures = {"Time of each stage": roles_figure(answer.step, names, "bubble")}
        disturbance = answer.disturbed.lines() if answer.disturbed else []
        if answer.disturbed:
            figures = {"How long draws take": draws_figure(answer.disturbed.drawn), **figures}
        return Page(
            title=f"{answer.step.workload} on {answer.step.ranks} ranks",
            headline=answer.headline,
            figures=figures,
            tables=[Table("Every stage", *self._table())],
            notes=[*comments, *answer.notes, *disturbance[1:]],
            raw=self.content(),
        )

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
        console.print_json("train", self.content())

    def content(self) -> dict[str, Any]:
        """Return the answer for JSON."""
        answer = self.answer
        memory = {"kept": answer.kept, "savings": answer.savings} if self.shows_memory else {}
        first = {"inputs": answer.inputs, "notes": answer.notes, **answer.totals}
        return {**first, **memory, "rows": answer.rows}

    def _comments(self) -> list[str]:
        answer, step, question = self.answer, self.answer.step, self.answer.question
        job, layout, mesh = question.job, question.job.layout, question.job.mesh
        methods = {"context": f" by {layout.cp_method}"}
        degrees = [
            f"{name} {count}{methods.get(name, '')}" for name, count in answer.mesh.items() if count > 1
        ]
        if mesh.expert > 1:
            degrees.append(f"experts among {mesh.expert}")
        if mesh.expert_tensor != mesh.tensor:
            degrees.append(f"each expert among {mesh.expert_tensor}")
        schedule = f", {layout.schedule}" if mesh.pipeline > 1 else ""
        stages = f" with {layout.virtual} stages a rank" if layout.virtual > 1 else ""
        lines = [
            f"the step takes {format_duration(step.step_s, 4)}: {', '.join(self._rates())}{within(question)}",
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
        if answer.cost:
            lines.insert(1, cost_text(question, answer.cost))
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
