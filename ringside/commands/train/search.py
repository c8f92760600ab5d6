"""``ringside train --search``: layouts of a budget of GPUs, fastest first, and why others are left out."""

import re
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from ringside import console
from ringside.commands.train.answer import gib
from ringside.errors import with_options
from ringside.report.page import Page, Table
from ringside.sim.goodput.cost import Cost
from ringside.sim.training.search.search import IMPOSSIBLE, Pruned
from ringside.topologies.disk import write_file
from ringside.validation.questions.layout_search import LayoutSearch, RankedLayouts
from ringside.validation.training.layout_choices import CHOICES

SHORT = {"micro_batch": "micro", "checkpointing": "ckpt", "sequence_parallel": "seq-par"}
"""Short heads of columns."""

NUMBER = re.compile(r"(?<![\w.-])\d+(?:,\d+)*(?![\w-]|\.\w)")
"""A number on its own; numbers within names, as in llama3-8b and 1f1b, are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """The printed ranked layouts; ``unwritten`` files have no step to show, ``stopped_by`` is a signal."""

    ranked: RankedLayouts
    unwritten: Sequence[Path] = ()
    stopped_by: int | None = None

    @property
    def fits(self) -> bool:
        """Whether any layout fits."""
        return bool(self.ranked.ranked)

    @property
    def verdict(self) -> str:
        """The best verdict of all layouts."""
        return self.ranked.verdict

    @property
    def notes(self) -> list[str]:
        """The answer's notes, and the files that were not written."""
        missing = [f"{path} is not written: there is no step to show" for path in self.unwritten]
        return [*map(with_options, self.ranked.notes), *missing]

    def print(self) -> None:
        """Write a table of the best layouts, if there are any."""
        grids = [console.TextTable(*self._table())] if self.fits else []
        notes = [*self._comments(), *self.notes]
        rests_on = self.ranked.rests_on if self.fits else self._reasons_in_words()
        console.print_answer(self.ranked.headline, *grids, rests_on=rests_on, notes=notes)

    def page(self) -> Page:
        """Return the page of the best layouts."""
        from ringside.report.charts import beside

        answer, gpu = self.ranked, self.ranked.question.gpu
        comments = self._comments()
        names = [row["options"] for row in answer.rows]
        more = [f"{gib(row['memory_bytes'])} of {gib(gpu.memory)}" for row in answer.rows]
        figure = {"The best layouts": beside(names, {"step": [row["step_s"] for row in answer.rows]}, more)}
        return Page(
            title=f"Layouts of {answer.question.model} on {_gpus(answer.budget.ranks)}",
            headline=answer.headline,
            figures=figure if names else {},
            tables=[Table("The best layouts", *self._table())] if names else [],
            notes=[*comments, *self.notes],
            raw=self._content(),
        )

    def _table(self) -> tuple[list[tuple[str, str]], list[tuple[console.Cell, ...]]]:
        answer = self.ranked
        unit = "" if None in answer.costs else "(GPU-h)" if answer.question.price is None else "($)"
        names = [name for name in CHOICES if any(row["layout"][name] for row in answer.rows)]
        heads = [
            *(("", ""), *((("GPUs", ""), ("days", ""), ("cost", unit)) if unit else ())),
            *(("step", "(ms)"), *((SHORT.get(name, name), "") for name in names)),
            *(("memory", "(GiB)"), ("margin", "(GiB)"), ("MFU", "(%)"), ("samples", "(1/s)")),
            *(("replicas", ""), ("batch", ""), ("chance", "(%)")),
        ]
        cells = [
            (
                *(place, *((cost.gpus, cost.days, _amount(cost)) if cost else ())),
                *(row["step_s"] * 1e3, *(_cell(row["layout"][name]) for name in names)),
                *(row["memory_bytes"] / 2**30, row["margin_bytes"] / 2**30),
                *("-" if row["mfu"] is None else row["mfu"] * 100, row["throughput"]),
                *(answer.budget.samples // row["batch"], row["batch"], row["chance"] * 100),
            )
            for place, (row, cost) in enumerate(zip(answer.rows, answer.costs, strict=True), 1)
        ]
        return heads, cells

    def print_json(self) -> None:
        """Write JSON."""
        console.print_json("train-search", self._content())

    def _content(self) -> dict[str, Any]:
        answer = self.ranked
        return {
            "inputs": answer.inputs,
            "notes": self.notes,
            "budget": asdict(answer.budget),
            "memory_bytes": {"of_gpu": answer.question.gpu.memory},
            "complete": not answer.result.left,
            "considered": answer.considered,
            "rows": answer.rows,
            "pruned_by_reason": self._reasons(),
            "pruned": [_left_out(one) for one in answer.pruned],
            "left": list(answer.result.left),
        }

    def _reasons(self) -> list[dict[str, Any]]:
        """Count the layouts left out for each reason, without the numbers in it."""
        counted = Counter(_reason(one) for one in self.ranked.pruned)
        return [{"kind": kind, "reason": reason, "layouts": count}
                for (kind, reason), count in counted.most_common()]  # fmt: skip

    def _comments(self) -> list[str]:
        answer, question = self.ranked, self.ranked.question
        kinds = Counter(one.kind for one in answer.pruned)
        fewer = ", its half, and so on" if question.by == "cost" else ""
        lines = [
            f"{answer.considered} layouts of {question.model} on the {_gpus(answer.budget.ranks)} of "
            f"{question.where}{fewer}, {answer.budget.samples} samples a step; collectives of "
            f"{question.libraries.name}",
            question.computing,
            f"memory of a GPU {gib(question.gpu.memory)}; margin: left of it beside a layout's own reserve",
        ]
        if kinds:
            counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
            lines.append(f"left out: {counts} (--json names each)")
        for one in self._reasons():
            if one["kind"] == IMPOSSIBLE:
                lines.append(f"  {one['layouts']} invalid: {one['reason']}")
        if left := answer.result.left:
            lines.append(f"stopped: {len(left)} remaining layouts may be faster, first {left[0]}")
        return lines

    def _reasons_in_words(self) -> list[str]:
        """Return the commonest reasons why layouts are left out, in two lines."""
        reasons = [f"{one['layouts']} {one['kind']}: {one['reason']}" for one in self._reasons()]
        return [*reasons[:1], *filter(None, ["; ".join(reasons[1:3])])]


def run(question: LayoutSearch, *, plot: Path | None, trace: Path | None) -> SearchAnswer:
    """Search, and draw the fastest layout's step."""
    with console.simulating("searching") as bar, interruptible() as signals:
        ranked = question.ask(on_progress=bar.done)
    best = ranked.best
    if best and plot:
        from ringside.pictures.jobs.pipeline import draw_pipeline

        draw_pipeline(best, plot)
    if best and trace:
        write_file(trace, best.timeline.dumps())
    unwritten = () if best else tuple(filter(None, (plot, trace)))
    return SearchAnswer(ranked=ranked, unwritten=unwritten, stopped_by=next(iter(signals), None))


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Make Control-C and SIGTERM raise KeyboardInterrupt, which ends a search with its result so far.

    The list is of the signals that came.
    """
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield came
    except KeyboardInterrupt:  # outside the search: there is no result
        _restore(before)
        signal.raise_signal(came[0])
    finally:
        _restore(before)


def _restore(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _reason(one: Pruned) -> tuple[str, str]:
    if one.kind != IMPOSSIBLE:
        return one.kind, one.kind
    return one.kind, NUMBER.sub("N", with_options(one.reason).partition(";")[0])


def _left_out(one: Pruned) -> dict[str, Any]:
    return {"options": one.name, "kind": one.kind, "reason": with_options(one.reason),
            "at_least_s": one.step_s, "memory_bytes": one.nbytes}  # fmt: skip


def _amount(cost: Cost) -> str:
    """Return dollars, or GPU-hours without a price."""
    return f"{cost.gpu_hours if cost.dollars is None else cost.dollars:.4g}"


def _gpus(count: int) -> str:
    return f"{count} {'GPU' if count == 1 else 'GPUs'}"


def _cell(value: Any) -> console.Cell:
    if value is None:
        return "-"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
