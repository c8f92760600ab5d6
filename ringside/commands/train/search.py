"""``ringside train --search``: layouts of a budget of GPUs, the quickest first, and why others are not."""

import re
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ringside import console
from ringside.commands.train.answer import computing, gib
from ringside.commands.train.parallel import FORMULA
from ringside.errors import with_options
from ringside.report.page import Page, Table
from ringside.searched import Layouts, find_layouts
from ringside.sim.training.room import FITS, TIGHT, TOO_LARGE
from ringside.sim.training.search import IMPOSSIBLE, Found, Pruned
from ringside.sim.workload.devices import Device
from ringside.space import CHOICES
from ringside.topologies.disk import write_file
from ringside.topologies.placement import placement_told
from ringside.topologies.units import format_duration
from ringside.validation.questions.laid_out import notes
from ringside.validation.questions.step_time import StepTime

SHORT = {"micro_batch": "micro", "checkpointing": "ckpt", "sequence_parallel": "seq-par"}
"""Heads of columns where the word itself is long."""

NUMBER = re.compile(r"(?<![\w.-])\d+(?:,\d+)*(?![\w-]|\.\w)")
"""One that stands alone: those within names, as of llama3-8b and 1f1b, say what is meant."""

STOPPED = 128 + signal.SIGINT
"""The exit code of a search that was stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """The layouts found; ``fixed`` are the options of a layout that were given.

    ``unwritten`` are the picture and the trace that were asked for where there is no step to show.
    """

    question: StepTime
    found: Layouts
    fixed: Mapping[str, Any]
    unwritten: Sequence[Path] = ()

    @property
    def fits(self) -> bool:
        """Whether any layout does."""
        return bool(self.found.searched.found)

    @property
    def verdict(self) -> str:
        """What is said of the layout that comes nearest."""
        kinds = {one.kind for one in self.found.searched.pruned}
        return FITS if self.fits else TIGHT if TIGHT in kinds else TOO_LARGE

    @property
    def gpu(self) -> Device:
        """What each rank computes on."""
        return self.found.what.gpu

    def print(self) -> None:
        """Write a table of the best layouts, if there are any."""
        comments = [*self._comments(), *self.notes]
        if self._ranked:
            console.print_table(comments, *self._table())
        else:
            console.print_comments(comments)

    def page(self) -> Page:
        """Return the page of the best layouts."""
        from ringside.report.charts import beside

        first, *comments = self._comments()
        names = [f"{one.name} --batch {one.job.batch}" for one in self._ranked]
        more = [f"{gib(one.peak_nbytes)} of {gib(self.gpu.memory)}" for one in self._ranked]
        figure = {"The best layouts": beside(names, {"step": [one.step_s for one in self._ranked]}, more)}
        return Page(
            title=f"Layouts of {self.question.model} on {_gpus(self.found.budget.ranks)}",
            headline=f"{first[0].upper()}{first[1:]}.",
            figures=figure if names else {},
            tables=[Table("The best layouts", *self._table())] if names else [],
            told=[*comments, *self.notes],
            raw=self._content(),
        )

    def _table(self) -> tuple[list[tuple[str, str]], list[tuple[console.Cell, ...]]]:
        names = [name for name in CHOICES if any(self._words(one)[name] for one in self._ranked)]
        heads = [
            *(("", ""), ("step", "(ms)"), *((SHORT.get(name, name), "") for name in names)),
            *(("memory", "(GiB)"), ("margin", "(GiB)"), ("MFU", "(%)"), ("samples", "(1/s)")),
            *(("replicas", ""), ("batch", "")),
        ]
        cells = [
            (
                *(place, one.step_s * 1e3, *(_cell(self._words(one)[name]) for name in names)),
                *(one.peak_nbytes / 2**30, self.found.room.margin(one.peak_nbytes) / 2**30),
                *(_per_cent(self._mfu(one)), one.job.samples / one.step_s),
                *(one.job.mesh.degree("shard", "replicate"), one.job.batch),
            )
            for place, one in enumerate(self._ranked, 1)
        ]
        return heads, cells

    def print_json(self) -> None:
        """Write JSON."""
        console.print_json("train-search", self._content())

    def _content(self) -> dict[str, Any]:
        searched, budget = self.found.searched, self.found.budget
        return {
            "inputs": self.question.understood(self.found.what.libraries.name, self.found.what.precision)
            | {"said": dict(self.fixed)},
            "notes": self.notes,
            "budget": asdict(budget),
            "memory_bytes": {"of_gpu": self.gpu.memory, "reserve": self.found.room.reserve},
            "complete": not searched.left,
            "considered": self._considered,
            "rows": [self._row(one) for one in self._ranked],
            "pruned_by_reason": self._reasons(),
            "pruned": [_left_out(one) for one in searched.pruned],
            "left": list(searched.left),
        }

    @property
    def notes(self) -> list[str]:
        """What to know before it is believed."""
        searched = self.found.searched
        libraries = self.found.what.libraries
        found = placement_told(self.question.ranks, libraries.placement, libraries.placed)
        found += [FORMULA] if self.found.what.precision else []
        if searched.best:
            found += notes(libraries, self._ranked[0].job.mesh)
            found += searched.best.timeline.assumes
        return [*found, *(f"{path} is not written: there is no step to show" for path in self.unwritten)]

    @property
    def _ranked(self) -> list[Found]:
        return self.found.searched.found

    @property
    def _considered(self) -> int:
        searched = self.found.searched
        return len(searched.found) + len(searched.pruned) + len(searched.left)

    def _words(self, one: Found) -> dict[str, Any]:
        return asdict(self.found.words[one.name])

    def _mfu(self, one: Found) -> float | None:
        precision, flops = self.found.what.precision, one.job.parts.model_flops
        if precision is None or flops is None:
            return None
        return flops * one.job.samples / (one.job.mesh.ranks * self.gpu.peak(precision) * one.step_s)

    def _row(self, one: Found) -> dict[str, Any]:
        tokens = one.job.parts.tokens
        return {
            "options": f"{one.name} --batch {one.job.batch}",
            "words": self._words(one),
            "batch": one.job.batch,
            "step_s": one.step_s,
            "throughput": one.job.samples / one.step_s,
            "tokens_per_s": None if tokens is None else tokens * one.job.samples / one.step_s,
            "mfu": self._mfu(one),
            "memory_bytes": one.peak_nbytes,
            "margin_bytes": self.found.room.margin(one.peak_nbytes),
        }

    def _reasons(self) -> list[dict[str, Any]]:
        """How many were left out for each reason, numbers in it left out."""
        counted = Counter(_reason(one) for one in self.found.searched.pruned)
        return [{"kind": kind, "reason": reason, "layouts": count}
                for (kind, reason), count in counted.most_common()]  # fmt: skip

    def _comments(self) -> list[str]:
        budget, searched, what = self.found.budget, self.found.searched, self.found.what
        lines = [
            f"{self._considered} layouts of {self.question.model} on the {_gpus(budget.ranks)} of "
            f"{self.question.where}, {budget.samples} samples a step; collectives of {what.libraries.name}",
            computing(what.training, self.gpu, what.precision),
            f"memory of a GPU {gib(self.gpu.memory)}, {gib(self.found.room.reserve)} of it kept free",
        ]
        kinds = Counter(one.kind for one in searched.pruned)
        if self._ranked:
            best = self._ranked[0]
            took = format_duration(best.step_s, 4)
            lines.insert(0, f"the best takes {took}: {best.name} --batch {best.job.batch}")
        else:
            lines.insert(0, self._none(kinds))
        if kinds:
            counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
            lines.append(f"left out: {counts} (--json names each)")
        for one in self._reasons():
            if one["kind"] == IMPOSSIBLE:
                lines.append(f"  {one['layouts']} cannot be: {one['reason']}")
        if searched.left:
            lines.append(
                f"stopped: {len(searched.left)} layouts left that may be quicker, first {searched.left[0]}"
            )
        return lines

    def _none(self, kinds: Mapping[str, int]) -> str:
        """Why there is no layout, and what would make one."""
        if self.found.searched.left:
            return "no layout is known that fits"
        if {TIGHT, TOO_LARGE} & kinds.keys():
            more = "more GPUs, --checkpointing or a smaller --global-batch may"
            return f"no layout is known that fits; {more}"
        return "none of these layouts can be, for the reasons below; say fewer or other words of them"


def run(
    question: StepTime, fixed: Mapping[str, Any], *, top: int, plot: Path | None, trace: Path | None
) -> SearchAnswer:
    """Search, and draw the winner's step."""
    with console.simulating("searching") as bar, interruptible():
        found = find_layouts(question, fixed, top=top, tell=bar.done)
    best = found.searched.best
    if best and plot:
        from ringside.pictures.jobs.pipeline import draw_pipeline

        draw_pipeline(best, plot)
    if best and trace:
        write_file(trace, best.timeline.dumps())
    unwritten = () if best else tuple(path for path in (plot, trace) if path)
    return SearchAnswer(question=question, found=found, fixed=fixed, unwritten=unwritten)


@contextmanager
def interruptible() -> Iterator[None]:
    """Have Control-C raise KeyboardInterrupt, which a search ends with what it knows."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _reason(one: Pruned) -> tuple[str, str]:
    if one.kind != IMPOSSIBLE:
        return one.kind, one.kind
    return one.kind, NUMBER.sub("N", with_options(one.reason).partition(";")[0])


def _left_out(one: Pruned) -> dict[str, Any]:
    return {"options": one.name, "kind": one.kind, "reason": with_options(one.reason),
            "at_least_s": one.step_s, "memory_bytes": one.nbytes}  # fmt: skip


def _gpus(count: int) -> str:
    return f"{count} {'GPU' if count == 1 else 'GPUs'}"


def _per_cent(share: float | None) -> console.Cell:
    return "-" if share is None else share * 100


def _cell(value: Any) -> console.Cell:
    if value is None:
        return "-"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
