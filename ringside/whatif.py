"""What-if analysis: changes of a cluster or a question beside the original, with their limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ringside.api import train
from ringside.sim.calibration import AUTO
from ringside.sim.collective import KINDS, Collective
from ringside.sim.libraries.find import Options, default_library, find_library
from ringside.sim.libraries.library import Candidate, Library
from ringside.sim.training.step import TrainingStep
from ringside.topologies import load, machine_file
from ringside.topologies.catalogue import MAKERS, split
from ringside.topologies.catalogue import settings as figures_of
from ringside.topologies.load import recipe_in
from ringside.topologies.placement import EVEN
from ringside.topologies.recipe import count_of
from ringside.topologies.units import parse_duration, parse_rate

FELT = 0.5
"""The share of the time above which bandwidth is the limit; below it is latency."""

WAYS = ("library", "algorithm", "protocol")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A collective of ``nbytes`` bytes, or a model's training, on machines, with a library's settings."""

    what: str
    machine: str
    nodes: int | None
    nbytes: int = 0
    figures: Mapping[str, str] = field(default_factory=dict)
    library: str | None = None
    algorithm: str = "auto"
    protocol: str = "auto"
    batch: int | None = None
    ranks: int | None = None
    placement: str = EVEN

    @property
    def cluster(self) -> str:
        """The machines by name and count."""
        return self.machine if self.nodes is None else f"{self.machine}:{self.nodes}"

    @property
    def is_collective(self) -> bool:
        """Whether the question is about a collective, not a training."""
        return self.what in KINDS

    @property
    def known(self) -> dict[str, str]:
        """The machines' figures: the catalogue's, or a file's; a drawn graph has none."""
        if self.machine in MAKERS:
            return figures_of(self.machine)
        recipe = _recipe(self.machine)
        if machine_file.KEY in recipe:
            return machine_file.settings(recipe)
        figures = figures_of(recipe["maker"]) if "maker" in recipe else {}
        return {key: str(recipe.get(key, value)) for key, value in figures.items()}

    def changed(self, change: str) -> "Asked":
        """Return the question with a change such as ``nic=2x,nodes=2x``, of figures, counts or settings."""
        changed = self
        for part in change.split(","):
            key, equals, value = part.partition("=")
            if not (key and equals and value):
                raise ValueError(f"{part!r} is not a change; write nic=2x, nodes=2x or algorithm=tree")
            changed = changed._with(key, value)
        return changed

    def _with(self, key: str, value: str) -> "Asked":
        if key in WAYS:
            if not self.is_collective and key != "library":
                raise ValueError(f"{key}={value}: in training the library chooses; remove it")
            return replace(self, **{key: value})  # type: ignore[arg-type]
        if key == "nodes":
            if self.nodes is None:
                raise ValueError(f"{key}={value}: {self.machine} has no count; write --cluster NAME:COUNT")
            count = self.nodes * _factor(value) if value.endswith("x") else _number(value)
            if count != int(count) or count < 1:
                raise ValueError(f"{key}={value} makes {count:g} nodes; write a whole number")
            return replace(self, nodes=int(count))
        known = self.known
        if key not in known and (known or value.endswith("x")):
            raise ValueError(
                f"{self.machine} has no figure {key!r} to change; write one of "
                f"{', '.join([*known, 'nodes', *WAYS])}"
            )
        if value.endswith("x"):
            value = _scaled(self.figures.get(key, known[key]), _factor(value))
        return replace(self, figures={**self.figures, key: value})


@dataclass(frozen=True, slots=True)
class Changed:
    """One row: ``change`` is empty for the original question; ``share`` is the limit's of the time.

    ``busiest`` is the most utilised part, ``busy`` its utilisation by the data sheet.
    """

    change: str
    asked: Asked
    ranks: int
    time_s: float
    way: str
    limit: str
    share: float
    busiest: str = ""
    busy: float = 0.0
    throughput: float | None = None
    placed: Sequence[int] = ()
    measured: str | None = None
    """The measurements behind it; empty without any, ``None`` for one rank, which has no peers."""


def usual_changes(question: Asked) -> list[str]:
    """Return twice the network, twice the nodes, half the cards, tree instead of ring, where they apply."""
    known = question.known
    changes = [f"{rate}=2x" for rate in ("nic", "bandwidth") if rate in known][:1]
    changes += ["nodes=2x"] if question.nodes is not None else []
    changes += ["nic=0.5x"] if "nic" in known else []
    if question.is_collective:
        library, collective = _bound(replace(question, algorithm="auto", protocol="auto"))
        weighed = {one.algorithm for one in library.candidates(collective)}
        changes += [f"algorithm={name}" for name in ("ring", "tree") if name in weighed]
    return changes


def ask(question: Asked, changes: Sequence[str]) -> list[Changed]:
    """Answer the question and each change of it, all with the same kind of times.

    These are measured ones if all have them, otherwise the library's own estimates.
    """
    questions = [("", question), *((change, question.changed(change)) for change in changes)]

    def answers(calibration: str | None) -> list[Changed]:
        return [
            (_collective if one.is_collective else _training)(change, one, calibration)
            for change, one in questions
        ]

    changed = answers(AUTO)
    clocks = {bool(one.measured) for one in changed if one.measured is not None}
    return changed if len(clocks) < 2 else answers(None)


def _bound(question: Asked, calibration: str | None = None) -> tuple[Library, Collective]:
    options = Options(question.algorithm, question.protocol, placement=question.placement)
    library = find_library(
        question.library, question.cluster, question.figures, ranks=question.ranks, options=options,
        calibration=calibration,
    )  # fmt: skip
    return library, Collective(question.what, library.ranks, question.nbytes, dtype="float32")


def _collective(change: str, question: Asked, calibration: str | None) -> Changed:
    library, collective = _bound(question, calibration)
    candidate = library.choose(collective)
    estimate = library.time(collective, candidate)
    limit, share = _limit(library, collective, candidate, estimate.time_s)
    needs = library.busy(collective, candidate)
    part = max(needs, key=lambda one: needs[one], default="")
    way = estimate.algorithm if candidate.protocol == "auto" else f"{estimate.algorithm}/{candidate.protocol}"
    return Changed(
        change, question, library.ranks, estimate.time_s, way, limit, share, part,
        min(needs[part] / estimate.time_s, 1.0) if part and estimate.time_s else 0.0, placed=library.placed,
        measured=_measured(library) if estimate.engine == "measured" or library.ranks == 1 else "",
    )  # fmt: skip


def _limit(
    library: Library, collective: Collective, candidate: Candidate, time_s: float
) -> tuple[str, float]:
    """Return what limits a collective, and its share of the time.

    Twice the bytes take twice the time if bandwidth is the only cost, and equal time if latency is.
    """
    if not time_s:
        return "nothing", 0.0
    twice = replace(collective, nbytes=2 * collective.nbytes)
    # a candidate of NCCL's holds the time of its own size, so look it up again
    same = (one for one in library.candidates(twice) if one.name == candidate.name)
    doubled = library.time(twice, next(same, candidate)).time_s
    grows = min(max(doubled / time_s - 1, 0.0), 1.0)
    return ("latency", 1 - grows) if grows < FELT else ("bandwidth", grows)


def _training(change: str, question: Asked, calibration: str | None) -> Changed:
    name = question.library or default_library(question.cluster)
    step = train(
        question.what, question.cluster, settings=question.figures, library=name, batch=question.batch,
        ranks=question.ranks, placement=question.placement, calibration=calibration,
    )  # fmt: skip
    assert isinstance(step, TrainingStep)
    limit, share = _limit_of(step)
    library = find_library(
        name, question.cluster, question.figures, ranks=question.ranks,
        options=Options(placement=question.placement), calibration=calibration,
    )  # fmt: skip
    return Changed(
        change, question, step.ranks, step.step_s, name, limit, share, throughput=step.throughput,
        placed=library.placed, measured=_measured(library),
    )  # fmt: skip


def _measured(library: Library) -> str | None:
    """Name the measurements behind a library's times; None for one rank."""
    return None if library.ranks == 1 else library.measurements


def _limit_of(step: TrainingStep) -> tuple[str, float]:
    parts = {"compute": step.compute_s, "exposed communication": step.exposed_s, "copies": step.copy_s}
    word, seconds = max(parts.items(), key=lambda one: one[1])
    return word, seconds / step.step_s


def asked_of(cluster: str, figures: Mapping[str, str], **words: Any) -> Asked:
    """Return the question of a cluster and options."""
    machine, nodes = split(cluster)
    if nodes is None and "nodes" not in figures:
        # a file counts its machines itself
        nodes = count_of(_recipe(machine))
    return Asked(machine=machine, nodes=nodes, figures=figures, **words)


def _recipe(machine: str) -> Mapping[str, Any]:
    """Return a file's recipe of its machines; empty for a name, or for a drawn graph."""
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
