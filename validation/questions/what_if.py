"""How changes of a cluster or an option affect a collective or a training step, and what limits each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ringside.sim.calibration import AUTO
from ringside.sim.collective import KINDS, Collective
from ringside.sim.libraries.find import Options, find_library
from ringside.sim.libraries.library import Candidate, Library
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.fields import ByAlgorithm
from ringside.sim.questions.question import QuestionError, argument, from_text, option
from ringside.sim.recorded.step import RecordedStep
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.training.memory.room import FITS, TIGHT, MemoryFit
from ringside.sim.training.step import ParallelStep
from ringside.topologies import load, machine_file
from ringside.topologies.catalogue import MAKERS, split
from ringside.topologies.catalogue import settings as figures_of
from ringside.topologies.fabrics.refitting import check_of_fabric, figures_of_fabric
from ringside.topologies.file import count_of
from ringside.topologies.load import recipe_in
from ringside.topologies.placement import placement_notes, ranks_text
from ringside.topologies.units import format_duration, parse_duration, parse_rate, parse_size
from ringside.validation.questions.step_time import StepTime

BANDWIDTH_SHARE = 0.5
"""The share of the time above which bandwidth is the limit; below it is latency."""

OF_COLLECTIVES = ("size", "algorithm", "protocol")
OF_TRAININGS = ("batch", "device", "precision", "stack")
CHANGEABLE = ("library", "ranks", "placement", *OF_COLLECTIVES, *OF_TRAININGS)
"""Fields that a change may set, besides the cluster's figures and its count."""

ESTIMATED = "all by the library's own estimate, uncalibrated"
RESCALED = "changed rates scale this by the library's own model"

SEEN = 5e-4
"""Loss that one digit of a per cent shows."""

WORTH = 1.005
"""A change that is less than this much faster does not help."""


@dataclass(frozen=True, kw_only=True)
class WhatIf(ByAlgorithm):
    """The effect of each of ``changes`` on a collective's time or on a model's training step.

    A change is ``nic=2x,nodes=2x``: figures of the cluster, its count, or fields of the question.
    """

    schema: ClassVar[str] = "whatif"

    what: str = argument("all_reduce, ..., or a model: resnet50, ...", metavar="COLLECTIVE|MODEL")
    changes: Sequence[str] = option(
        "nic=2x, nodes=2x, algorithm=tree, ...; repeat for more.",
        "--try", "--changes", metavar="KEY=VALUE,...", default=(), parse=tuple, repeats=True,
        default_text="network, nodes and algorithm",
    )  # fmt: skip
    size: int = option("Size of a collective.", metavar="SIZE", default="64M", parse=parse_size, minimum=0)
    batch: int | None = option("Training: samples per rank.", default=None, default_text="32 or the file's")
    device: str | None = option(
        "Training: the GPU.", metavar="GPU", default=None, default_text="the cluster's"
    )
    precision: str | None = option(
        "Training: type of products.", default=None, default_text="as the model usually is"
    )
    stack: str | None = option(
        "Training: software whose kernels run.", metavar="NAME", default=None, default_text="eager"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        others, kind = (OF_TRAININGS, "trainings") if self.is_collective else (OF_COLLECTIVES, "collectives")
        if lost := self.changed(*others):
            raise QuestionError(f"`{lost[0]}` is an option of {kind}, and {self.what} is not one; remove it")

    @property
    def is_collective(self) -> bool:
        """Whether the question is about a collective, not a training."""
        return self.what in KINDS

    def ask(self) -> "Variants":
        """Answer the question as it is and with each change, all with the same kind of times.

        These are measured ones if all have them, otherwise the library's own estimates.
        """
        machine, nodes = self._machines
        original = self if nodes is None else replace(self, cluster=f"{machine}:{nodes}")
        changes = tuple(self.changes) or original._usual_changes()
        questions = [("", original), *((change, original._changed_by(change)) for change in changes)]
        variants = [one._answer(change, AUTO) for change, one in questions]
        if len({bool(one.measured) for one in variants if one.measured is not None}) > 1:
            variants = [one._answer(change, None) for change, one in questions]
        return Variants(replace(self, changes=changes), variants)

    @cached_property
    def _machines(self) -> tuple[str, int | None]:
        """The machines' name or file, and their count."""
        machine, nodes = split(self.cluster)
        if nodes is None and "nodes" not in self.settings:
            nodes = count_of(_recipe(machine))  # a file counts its machines itself
        return machine, nodes

    def _figures(self) -> dict[str, str]:
        """Return the figures of the machines, and those of a fabric that is set."""
        return {**self._figures_of_machines(), **figures_of_fabric(self.settings)}

    def _figures_of_machines(self) -> dict[str, str]:
        """Return the catalogue's figures, or a file's; a file's own graph has none."""
        machine, _ = self._machines
        if machine in MAKERS:
            return figures_of(machine)
        recipe = _recipe(machine)
        if machine_file.KEY in recipe:
            return machine_file.settings(recipe)
        figures = figures_of(recipe["maker"]) if "maker" in recipe else {}
        return {key: str(recipe.get(key, value)) for key, value in figures.items()}

    def _usual_changes(self) -> tuple[str, ...]:
        """Return twice the network, twice the nodes, half the cards, tree instead of ring, where possible."""
        figures = self._figures()
        changes = [f"{rate}=2x" for rate in ("nic", "bandwidth") if rate in figures][:1]
        changes += ["nodes=2x"] if self._machines[1] is not None else []
        changes += ["nic=0.5x"] if "nic" in figures else []
        if self.is_collective:
            library, collective = replace(self, algorithm="auto", protocol="auto")._bound(None)
            algorithms = {one.algorithm for one in library.candidates(collective)}
            changes += [f"algorithm={name}" for name in ("ring", "tree") if name in algorithms]
        return tuple(changes)

    def _changed_by(self, change: str) -> "WhatIf":
        changed = self
        for part in change.split(","):
            key, equals, value = part.partition("=")
            if not (key and equals and value):
                raise ValueError(f"{part!r} is not a change; write nic=2x, nodes=2x or algorithm=tree")
            changed = changed._with(key, value)
        return changed

    def _with(self, key: str, value: str) -> "WhatIf":
        if key in CHANGEABLE:
            if not self.is_collective and key in ("algorithm", "protocol"):
                raise ValueError(f"{key}={value}: in training the library chooses it; remove it")
            return replace(self, **{key: from_text(type(self), key, value)})
        machine, nodes = self._machines
        if key == "nodes":
            if nodes is None:
                raise ValueError(f"{key}={value}: {machine} has no count; write --cluster NAME:COUNT")
            count = nodes * _factor(value) if value.endswith("x") else _number(value)
            if count != int(count) or count < 1:
                raise ValueError(f"{key}={value} makes {count:g} nodes; write a whole number")
            return replace(self, cluster=f"{machine}:{int(count)}")
        figures = self._figures()
        if key not in (*figures, "fabric") and (figures or value.endswith("x")):
            check_of_fabric(machine, [key])
            raise ValueError(
                f"{machine} has no figure {key!r} to change; write one of "
                f"{', '.join([*figures, 'nodes', *CHANGEABLE])}"
            )
        if figures.get(key, "")[:1].isdecimal() and not any(letter.isdecimal() for letter in value):
            raise ValueError(
                f"{key}={value}: {value!r} is neither a factor nor a value; write for example {key}=0.5x, "
                f"{key}=2x or {key}={figures[key]}"
            )
        if value.endswith("x"):
            value = _scaled(self.settings.get(key, figures.get(key, value)), _factor(value))
        return replace(self, settings={**self.settings, key: value})

    def _answer(self, change: str, calibration: str | None) -> "Variant":
        return (
            self._collective(change, calibration) if self.is_collective else self._step(change, calibration)
        )

    def _bound(self, calibration: str | None) -> tuple[Library, Collective]:
        options = Options(self.algorithm, self.protocol, placement=self.placement)
        library = find_library(
            self.library, self.cluster, self.settings, ranks=self.ranks, options=options,
            calibration=calibration,
        )  # fmt: skip
        return library, Collective(self.what, library.ranks, self.size, dtype="float32")

    def _collective(self, change: str, calibration: str | None) -> "Variant":
        library, collective = self._bound(calibration)
        candidate = library.choose(collective)
        estimate = library.time(collective, candidate)
        limit, share = _limit(library, collective, candidate, estimate.time_s)
        loads = library.busy(collective, candidate)
        busiest = max(loads, key=lambda one: loads[one], default="")
        protocol = "" if candidate.protocol == "auto" else f"/{candidate.protocol}"
        return Variant(
            change, self, library, estimate.time_s, f"{estimate.algorithm}{protocol}", limit, share, busiest,
            min(loads[busiest] / estimate.time_s, 1.0) if busiest and estimate.time_s else 0.0,
            is_measured=estimate.engine == "measured",
        )  # fmt: skip

    def _training(self, calibration: str | None) -> StepTime:
        return StepTime(
            model=self.what, cluster=self.cluster, settings=self.settings, library=self.library or "auto",
            ranks=self.ranks, placement=self.placement, calibration=calibration,
            **{name: getattr(self, name) for name in OF_TRAININGS},
        )  # fmt: skip

    def _step(self, change: str, calibration: str | None) -> "Variant":
        question = self._training(calibration)
        step, library = question.step(), question.bound()
        assert not isinstance(step, ParallelStep)
        seconds = _seconds(step)
        limit = max(seconds, key=seconds.__getitem__)
        share = seconds[limit] / step.step_s
        return Variant(
            change, self, library, step.step_s, library.name, limit, share, throughput=step.throughput,
            fit=question.fit(step),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Variant:
    """One row: ``change`` is empty for the original question; ``share`` is the limit's of the time.

    ``busiest`` is the most utilised part, ``busy`` its utilisation by the data sheet.
    """

    change: str
    question: WhatIf
    library: Library
    time_s: float
    way: str
    limit: str
    share: float
    busiest: str = ""
    busy: float = 0.0
    throughput: float | None = None
    fit: MemoryFit | None = None
    is_measured: bool = True

    @property
    def measured(self) -> str | None:
        """The measurements behind the time; empty without any, None for one rank, which has no peers."""
        if self.library.ranks == 1:
            return None
        return self.library.measurements if self.is_measured else ""


@dataclass(frozen=True)
class Variants(AnswerOnDemand):
    """The answer: the original question first, then a variant for each change."""

    question: WhatIf
    variants: Sequence[Variant]

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs."""
        return self.question.inputs()

    @property
    def headline(self) -> str:
        """What helps most, and what limits it."""
        first, *changed = self.variants
        question = self.question
        what = question.what if question.is_collective else f"a step of {question.what}"
        what += f" on {question.cluster}"
        took = f"{format_duration(first.time_s, 4)}, {first.share:.0%} {first.limit}"
        if not changed:
            return f"{what} takes {took}"
        best = min(changed, key=lambda one: one.time_s)
        gain = first.time_s / best.time_s if best.time_s else 1.0
        if gain < WORTH:
            worst = max(changed, key=lambda one: one.time_s)
            loss = worst.time_s / first.time_s - 1 if first.time_s else 0.0
            costs = f", {worst.change} costs {loss:.1%}" if loss > SEEN else ""
            return f"no change helps{costs}: {what} takes {took}"
        return (
            f"{best.change} helps most: {gain:.3g}x as fast, {what} takes {format_duration(best.time_s, 4)} "
            f"instead of {format_duration(first.time_s, 4)}, then {best.share:.0%} {best.limit}"
        )

    @property
    def grounds(self) -> str:
        """The source of all times."""
        return self.basis

    @property
    def doubts(self) -> Sequence[str]:
        """That a training needs more memory than a GPU has."""
        fit = self.variants[0].fit
        if fit is None or fit.verdict == FITS:
            return ()
        verdict = "is tight in" if fit.verdict == TIGHT else "DOES NOT FIT into"
        return (f"the training {verdict} a GPU",)

    @property
    def basis(self) -> str:
        """The source of all times, and the changes whose number of nodes has another."""
        measured = [one for one in self.variants if one.measured]
        if not measured:
            return ESTIMATED
        first = measured[0].library
        others = [one.change for one in measured if one.library.extrapolates != first.extrapolates]
        if not others:
            return f"all {first.basis}; {RESCALED}"
        how = "as measured" if first.extrapolates else "extrapolated"
        return f"{first.basis}; {' and '.join(others)} {how}; {RESCALED}"

    @property
    def notes(self) -> list[str]:
        """The placement of ranks and the source of times, a sentence each."""
        placed = self.variants[0].library.placed
        return [*placement_notes(self.question.ranks, self.question.placement, placed), self.basis]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each variant; ``times`` is relative to the original, None relative to no time."""
        return [self._row(one) for one in self.variants]

    def _row(self, one: Variant) -> dict[str, Any]:
        first = self.variants[0]
        times = one.time_s / first.time_s if first.time_s else None if one.time_s else 1.0
        row = {
            "change": one.change, "cluster": one.question.cluster, "settings": dict(one.question.settings),
            "ranks": one.library.ranks, "placed": ranks_text(one.library.placed), "time_s": one.time_s,
            "times": times, "by": one.way, "limit": one.limit, "share": one.share, "busiest": one.busiest,
            "busy": one.busy,
        }  # fmt: skip
        return row if one.throughput is None else {**row, "throughput": one.throughput}


def _seconds(step: TrainingStep | RecordedStep) -> dict[str, float]:
    """Return the parts of a step; of a recorded one those of the role that computes most."""
    if isinstance(step, TrainingStep):
        return {"compute": step.compute_s, "exposed communication": step.exposed_s, "copies": step.copy_s}
    most = max(step.stages, key=lambda stage: stage.busy_s)
    return {"compute": most.busy_s, "exposed communication": most.exposed_s, "waiting": most.bubble_s}


def _limit(
    library: Library, collective: Collective, candidate: Candidate, time_s: float
) -> tuple[str, float]:
    """Return the limit of a collective, and its share of the time.

    Twice the bytes take twice the time if bandwidth is the only cost, and equal time if latency is.
    """
    if not time_s:
        return "nothing", 0.0
    twice = replace(collective, nbytes=2 * collective.nbytes)
    # a candidate of NCCL's holds the time of its own size, so look it up again
    same = (one for one in library.candidates(twice) if one.name == candidate.name)
    doubled = library.time(twice, next(same, candidate)).time_s
    grows = min(max(doubled / time_s - 1, 0.0), 1.0)
    return ("latency", 1 - grows) if grows < BANDWIDTH_SHARE else ("bandwidth", grows)


def _recipe(machine: str) -> Mapping[str, Any]:
    """Return a file's recipe of its machines; empty for a name, or for a file's own graph."""
    return recipe_in(load(machine)) if Path(machine).is_file() else {}


def _scaled(figure: str, factor: float) -> str:
    """Scale a rate, a duration or a number."""
    for unit, read in (("B/s", parse_rate), ("s", parse_duration), ("", float)):
        try:
            return f"{read(figure) * factor:.17g}{unit}"
        except ValueError:
            pass
    raise ValueError(f"{figure!r} cannot be scaled; write the value itself")


def _factor(text: str) -> float:
    factor = _number(text.removesuffix("x"))
    if not factor > 0:
        raise ValueError(f"{text!r} is not a factor; write for example 2x or 0.5x")
    return factor


def _number(text: str) -> float:
    try:
        value = float(text) if text.isascii() else float("nan")
    except ValueError:
        value = float("nan")
    if not 0 <= value <= 1e12:
        raise ValueError(f"{text!r} is not a number; write for example 2x, 0.5x or 16")
    return value
