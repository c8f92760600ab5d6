"""What if a cluster or a question were another: changes beside the question as it is, with their limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ringside.api import train
from ringside.sim.calibration import AUTO
from ringside.sim.collective import KINDS, Collective
from ringside.sim.engine.bounds import busy
from ringside.sim.libraries.find import Options, as_mpi, as_nccl, default_library, find_library
from ringside.sim.libraries.library import Candidate, Library
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.training.step import TrainingStep
from ringside.topologies import load
from ringside.topologies.catalogue import MAKERS, split
from ringside.topologies.catalogue import settings as figures_of
from ringside.topologies.load import recipe_in
from ringside.topologies.machines import described
from ringside.topologies.placement import EVEN
from ringside.topologies.recipe import count_of
from ringside.topologies.units import parse_duration, parse_rate

FELT = 0.5
"""The share of the time from which on bytes are what limits; below it is latency."""

WAYS = ("library", "algorithm", "protocol")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A collective of so many bytes, or a model's training, on machines, by a library's way."""

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
        """Whether a collective is asked about, and no training."""
        return self.what in KINDS

    @property
    def known(self) -> dict[str, str]:
        """The machines' figures: the catalogue's, or those that a file says; a drawing by hand has none."""
        if self.machine in MAKERS:
            return figures_of(self.machine)
        recipe = _recipe(self.machine)
        if described.KEY in recipe:
            return described.settings(recipe)
        figures = figures_of(recipe["maker"]) if "maker" in recipe else {}
        return {key: str(recipe.get(key, value)) for key, value in figures.items()}

    def changed(self, change: str) -> "Asked":
        """The same with ``nic=2x,nodes=2x``: factors or values of figures, counts and ways."""
        found = self
        for part in change.split(","):
            key, equals, value = part.partition("=")
            if not (key and equals and value):
                raise ValueError(f"{part!r} is no change; write nic=2x, nodes=2x or algorithm=tree")
            found = found._with(key, value)
        return found

    def _with(self, key: str, value: str) -> "Asked":
        if key in WAYS:
            if not self.is_collective and key != "library":
                raise ValueError(f"{key}={value}: in training the library chooses; leave it out")
            return replace(self, **{key: value})  # type: ignore[arg-type]
        if key == "nodes":
            if self.nodes is None:
                raise ValueError(f"{key}={value}: {self.machine} has no count; write --cluster NAME:COUNT")
            count = self.nodes * _factor(value) if value.endswith("x") else _number(value)
            if count != int(count) or count < 1:
                raise ValueError(f"{key}={value} makes {count:g} of them; write a whole number")
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
    """One row: ``change`` is empty for the question as it is; ``share`` is the limit's of the time.

    ``busiest`` is what carries bytes for the longest, by the data sheet for the share ``busy`` of the time.
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
    """On which measurements it rests; empty where on none, ``None`` of one rank, which waits for nobody."""


def usual_changes(asked: Asked) -> list[str]:
    """Twice the network, twice the nodes, half the cards, tree in place of ring: those that it has."""
    known = asked.known
    found = [f"{rate}=2x" for rate in ("nic", "bandwidth") if rate in known][:1]
    found += ["nodes=2x"] if asked.nodes is not None else []
    found += ["nic=0.5x"] if "nic" in known else []
    if asked.is_collective:
        library, collective = _bound(replace(asked, algorithm="auto", protocol="auto"))
        weighed = {one.algorithm for one in library.candidates(collective)}
        found += [f"algorithm={name}" for name in ("ring", "tree") if name in weighed]
    return found


def ask(asked: Asked, changes: Sequence[str]) -> list[Changed]:
    """The question as it is, and each change of it, all on one clock.

    That is the measured one where it knows them all, otherwise the library's own reckoning.
    """
    questions = [("", asked), *((change, asked.changed(change)) for change in changes)]

    def answers(calibration: str | None) -> list[Changed]:
        return [
            (_collective if one.is_collective else _training)(change, one, calibration)
            for change, one in questions
        ]

    found = answers(AUTO)
    clocks = {bool(one.measured) for one in found if one.measured is not None}
    return found if len(clocks) < 2 else answers(None)


def _bound(asked: Asked, calibration: str | None = None) -> tuple[Library, Collective]:
    options = Options(asked.algorithm, asked.protocol, placement=asked.placement)
    library = find_library(
        asked.library, asked.cluster, asked.figures, ranks=asked.ranks, options=options,
        calibration=calibration,
    )  # fmt: skip
    return library, Collective(asked.what, library.ranks, asked.nbytes, dtype="float32")


def _collective(change: str, asked: Asked, calibration: str | None) -> Changed:
    library, collective = _bound(asked, calibration)
    candidate = library.choose(collective)
    found = library.time(collective, candidate)
    limit, share = _limit(library, collective, candidate, found.time_s)
    needs = _needs(library, collective, candidate)
    part = max(needs, key=lambda one: needs[one], default="")
    way = found.algorithm if candidate.protocol == "auto" else f"{found.algorithm}/{candidate.protocol}"
    return Changed(
        change, asked, library.ranks, found.time_s, way, limit, share, part,
        min(needs[part] / found.time_s, 1.0) if part and found.time_s else 0.0, placed=library.placed,
        measured=_measured(library) if found.engine == "measured" or library.ranks == 1 else "",
    )  # fmt: skip


def _limit(
    library: Library, collective: Collective, candidate: Candidate, time_s: float
) -> tuple[str, float]:
    """What a collective is bound by, and for which share of its time.

    Twice the bytes take twice the time where bytes are all that it costs, and no more where none are.
    """
    if not time_s:
        return "nothing", 0.0
    twice = replace(collective, nbytes=2 * collective.nbytes)
    # a candidate of NCCL's knows what it takes of its own bytes, so the same is looked for again
    same = (one for one in library.candidates(twice) if one.name == candidate.name)
    doubled = library.time(twice, next(same, candidate)).time_s
    grows = min(max(doubled / time_s - 1, 0.0), 1.0)
    return ("latency", 1 - grows) if grows < FELT else ("bandwidth", grows)


def _needs(library: Library, collective: Collective, candidate: Candidate) -> dict[str, float]:
    """For how many seconds what carries bytes is busy, by name."""
    if isinstance(library, Scheduled):
        plan = library.schedule(collective, candidate)
        links = busy(plan, library.graph, library.routes)
        return {f"{a}->{b}": seconds for (a, b), seconds in links.items()}
    nccl = as_nccl(library)
    return dict(nccl.busy(collective, candidate)) if nccl else {}


def _training(change: str, asked: Asked, calibration: str | None) -> Changed:
    name = asked.library or default_library(asked.cluster)
    step = train(
        asked.what, asked.cluster, settings=asked.figures, library=name, batch=asked.batch,
        ranks=asked.ranks, placement=asked.placement, calibration=calibration,
    )  # fmt: skip
    limit, share = _limit_of(step)
    library = find_library(
        name, asked.cluster, asked.figures, ranks=asked.ranks, options=Options(placement=asked.placement),
        calibration=calibration,
    )  # fmt: skip
    return Changed(
        change, asked, step.ranks, step.step_s, name, limit, share, throughput=step.throughput,
        placed=library.placed, measured=_measured(library),
    )  # fmt: skip


def _measured(library: Library) -> str | None:
    """On which measurements a library's times rest."""
    if library.ranks == 1:
        return None
    if nccl := as_nccl(library):
        return nccl.calibrated.name if nccl.calibrated else ""
    mpi = as_mpi(library)
    return mpi.measured[1] if mpi and mpi.measured else ""


def _limit_of(step: TrainingStep) -> tuple[str, float]:
    parts = {"compute": step.compute_s, "exposed communication": step.exposed_s, "copies": step.copy_s}
    word, seconds = max(parts.items(), key=lambda one: one[1])
    return word, seconds / step.step_s


def asked_of(cluster: str, figures: Mapping[str, str], **words: Any) -> Asked:
    """The question of a cluster's words."""
    machine, nodes = split(cluster)
    if nodes is None and "nodes" not in figures:
        # a file counts its machines itself
        nodes = count_of(_recipe(machine))
    return Asked(machine=machine, nodes=nodes, figures=figures, **words)


def _recipe(machine: str) -> Mapping[str, Any]:
    """What a file says of its machines; nothing of a name, or where a hand has drawn them."""
    return recipe_in(load(machine)) if Path(machine).is_file() else {}


def _scaled(figure: str, factor: float) -> str:
    """A rate, a duration or a number, so many times as large."""
    for unit, read in (("B/s", parse_rate), ("s", parse_duration), ("", float)):
        try:
            return f"{read(figure) * factor:.17g}{unit}"
        except ValueError:
            pass
    raise ValueError(f"{figure!r} is no figure with a double; write the value that is meant")


def _factor(text: str) -> float:
    found = _number(text.removesuffix("x"))
    if not found > 0:
        raise ValueError(f"{text!r} is no factor; write for example 2x or 0.5x")
    return found


def _number(text: str) -> float:
    try:
        found = float(text) if text.isascii() else float("nan")
    except ValueError:
        found = float("nan")
    if not 0 <= found <= 1e12:
        raise ValueError(f"{text!r} is no number; write for example 2x, 0.5x or 16")
    return found
