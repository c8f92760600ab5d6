"""The fastest layouts of a training on a number of GPUs, and the reasons to leave out others."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import takewhile
from math import prod
from typing import Any, ClassVar

from ringside.sim.questions.question import option, options_of
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layout import LayoutError
from ringside.sim.training.layout_mesh import mesh_of
from ringside.sim.training.memory.room import FITS, TIGHT, TOO_LARGE
from ringside.sim.training.mesh import Mesh
from ringside.sim.training.parallel import ParallelTraining
from ringside.sim.training.pipeline.layer_layout import stage_layers
from ringside.sim.training.pipeline.schedules import SCHEDULES
from ringside.sim.training.search.search import Found, LayoutCandidate, Pruned, Searched, search
from ringside.sim.training.step import ParallelStep
from ringside.sim.training.tensor.decoder import DecoderOnGpu
from ringside.sim.workload.decoder import CHECKPOINTING
from ringside.topologies.names import one_of
from ringside.topologies.placement import placement_notes
from ringside.validation.questions.layout import ByLayout
from ringside.validation.questions.training import FORMULA, TrainingOnCluster

TOP = 5
"""The default number of ranked layouts."""

TOKENS = 1 << 24
"""The default maximum of tokens per step: 16 Mi, as in the training of Llama 3 405B."""

LAYOUT_FIELDS = tuple(one.name for one in options_of(ByLayout))


SEARCHED_STRATEGIES = ("ddp", "fsdp", "hsdp")
"""Strategies of current torch; others are searched only if given."""

SEARCHED_SCHEDULES = ("1f1b", "interleaved1f1b", "zb-h1", "zbv")
"""Schedules without a uniformly better alternative, except for memory."""

MOST_VIRTUAL = 8
"""Stages per pipeline rank."""

MOST_SAMPLES = 8
"""Samples per micro-batch."""

MODEL = ("tp", "pp", "cp")
"""Options whose ranks share the same samples."""

Fixed = Mapping[str, Any]
"""Values of layout options that are fixed, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The common constraints of layouts: GPUs, GPUs per machine, samples per step, the model's layers."""

    ranks: int
    machine: int
    samples: int
    layers: int

    def batch(self, fixed: Fixed) -> int:
        """Return the samples per replica; 0 if they do not divide."""
        shared = prod(fixed.get(name, 1) for name in MODEL)
        replicas, rest = divmod(self.ranks, shared)
        return 0 if rest or self.samples % replicas else self.samples // replicas


def _strategies(budget: Budget, fixed: Fixed) -> Iterable[str]:
    return SEARCHED_STRATEGIES


def _tensor(budget: Budget, fixed: Fixed) -> Iterable[int]:
    """Yield divisors of one machine's ranks: across machines tensor parallelism is too slow."""
    return _divisors(budget.machine)


def _pipeline(budget: Budget, fixed: Fixed) -> Iterable[int]:
    return (count for count in _divisors(max(1, budget.ranks // fixed["tp"])) if count <= budget.layers)


def _schedules(budget: Budget, fixed: Fixed) -> Iterable[str | None]:
    return (None,) if fixed["pp"] == 1 else SEARCHED_SCHEDULES


def _virtual(budget: Budget, fixed: Fixed) -> Iterable[int | None]:
    own = SCHEDULES.get(fixed["schedule"])
    if own is None or own.stages_a_rank is not None:
        return (None,)
    return _doubled(2, min(MOST_VIRTUAL, budget.layers // fixed["pp"])) or (2,)


def _micro_batches(budget: Budget, fixed: Fixed) -> Iterable[int]:
    batch = budget.batch(fixed)
    return [count for count in _doubled(1, min(MOST_SAMPLES, batch)) if batch % count == 0] or (1,)


def _checkpointing(budget: Budget, fixed: Fixed) -> Iterable[str]:
    return CHECKPOINTING


def _sequence_parallel(budget: Budget, fixed: Fixed) -> Iterable[bool]:
    return (False, True) if fixed["tp"] > 1 else (False,)


CHOICES: dict[str, Callable[[Budget, Fixed], Iterable[Any]]] = {
    "tp": _tensor,
    "pp": _pipeline,
    "schedule": _schedules,
    "virtual": _virtual,
    "strategy": _strategies,
    "micro_batch": _micro_batches,
    "checkpointing": _checkpointing,
    "sequence_parallel": _sequence_parallel,
}
"""The choices of each option of `ByLayout`, given those before it."""


def layouts(budget: Budget, fixed: Fixed) -> Iterator[ByLayout]:
    """Yield all layouts with these options, in a fixed order."""
    return (ByLayout(**options) for options in _chosen(budget, fixed, {}, [*CHOICES]))


def check_fixed(fixed: Fixed) -> None:
    """Raise ValueError for options that no layout has."""
    needed: dict[str, Any] = {"tp": 2} if fixed.get("sequence_parallel") else {}
    if fixed.get("recompute"):
        needed["checkpointing"] = "selective"
    if {"schedule", "virtual", "microbatch_group"} & fixed.keys():
        needed["pp"] = 2
    if fixed.get("pp_layout"):
        needed["pp"] = len(stage_layers(fixed["pp_layout"]))
    ByLayout(**{**needed, **fixed}).layout()


def as_options(layout: ByLayout) -> str:
    """Return the options of ``ringside train`` for a layout."""
    options = []
    for one in fields(layout):
        value = getattr(layout, one.name)
        if value != one.default:
            option = f"--{one.name.replace('_', '-')}"
            if isinstance(value, bool):
                options.append(option if value else option.replace("--", "--no-", 1))
            else:
                options.append(f"{option} {shlex.quote(str(value))}")
    return " ".join(options)


def _chosen(
    budget: Budget, fixed: Fixed, chosen: dict[str, Any], left: list[str]
) -> Iterator[dict[str, Any]]:
    if not left:
        yield {**fixed, **chosen}
        return
    name, *later = left
    for value in (fixed[name],) if name in fixed else CHOICES[name](budget, chosen):
        yield from _chosen(budget, fixed, {**chosen, name: value}, later)


def _divisors(number: int) -> list[int]:
    return [count for count in range(1, number + 1) if number % count == 0]


def _doubled(first: int, most: int) -> list[int]:
    return list(takewhile(lambda count: count <= most, (first << power for power in range(64))))


@dataclass(frozen=True, kw_only=True)
class LayoutSearch(TrainingOnCluster):
    """The ``top`` fastest layouts of a training that fit, all with the same samples per step.

    Fields of a layout that are not at their defaults are fixed, and so are those that ``fixed`` names.
    """

    schema: ClassVar[str] = "train-search"

    top: int = option("--search: number of ranked layouts.", default=TOP)
    fixed: Sequence[str] = option(
        "--search: keep this layout option at its value; repeat for more.",
        metavar="NAME", default=(), parse=tuple, repeats=True,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.fixed:
            if name not in LAYOUT_FIELDS:
                raise LayoutError(f"`fixed` {name!r}; write {one_of(LAYOUT_FIELDS, name)}")
        if self.batch is not None:
            raise LayoutError(
                f"`batch` {self.batch} is per replica, and layouts differ in replicas; write "
                "`global_batch` for the samples per step"
            )
        if self.throughput is not None:
            raise LayoutError(
                "`measured` applies to one layout, but a search has many; write `compute_efficiency`, "
                "or remove it"
            )
        for name, number in (("top", self.top), ("global_batch", self.global_batch)):
            if number is not None and number < 1:
                raise LayoutError(f"`{name}` {number}; write 1 or more")

    def fixed_options(self) -> dict[str, Any]:
        """Return the fixed fields of a layout with their values."""
        return {name: getattr(self, name) for name in {*self.changed(*LAYOUT_FIELDS), *self.fixed}}

    def ask(self, *, on_progress: Callable[[str], None] = lambda _: None) -> "RankedLayouts":
        """Search; ``on_progress`` receives messages. Control-C ends the search with the result so far."""
        fixed = self.fixed_options()
        check_fixed(fixed)
        training, budget = self.parallel(), self._budget()
        options: dict[str, ByLayout] = {}

        def candidates() -> Iterator[LayoutCandidate]:
            for one in layouts(budget, fixed):
                name = as_options(one)
                options[name] = one
                yield LayoutCandidate(name, partial(job_of, training, budget, one))

        room = partial(training.room, reserve=self.reserve)
        result = search(candidates(), self.libraries, room, top=self.top, tell=on_progress)
        return RankedLayouts(self, training, budget, result, options)

    def _budget(self) -> Budget:
        """Return the GPUs, the samples per step, and the model's layers.

        By default a step has a decoder's sequence per GPU up to a limit, else the model's batch per GPU.
        """
        ranks = self.libraries.ranks
        model = self.model_on_gpu
        if isinstance(model, DecoderOnGpu):
            decoder = model.decoder
            layers, samples = decoder.layers, max(1, min(ranks, TOKENS // decoder.sequence))
        else:
            workload = model.workload()
            layers, samples = len(workload.layers), ranks * workload.batch
        samples = samples if self.global_batch is None else self.global_batch
        return Budget(ranks=ranks, machine=self.libraries.machine, samples=samples, layers=layers)


def job_of(training: ParallelTraining, budget: Budget, options: ByLayout) -> ParallelJob:
    """Return the training under a layout; raise LayoutError if the samples do not divide."""
    layout = options.layout()
    return training.job(layout, _batch(budget, mesh_of(layout, budget.ranks, budget.machine)))


def _batch(budget: Budget, mesh: Mesh) -> int:
    """Return the samples per replica."""
    replicas = mesh.degree("shard", "replicate")
    batch, rest = divmod(budget.samples, replicas)
    if rest or not batch:
        raise LayoutError(f"{budget.samples} samples per step do not divide among {replicas} replicas")
    return batch


@dataclass(frozen=True, slots=True)
class RankedLayouts:
    """The answer: the layouts that were simulated and fit, the fastest first, and those left out.

    ``options`` are each layout's by its name; all ranked layouts fit into a GPU.
    """

    question: LayoutSearch
    training: ParallelTraining
    budget: Budget
    result: Searched
    options: Mapping[str, ByLayout]

    @property
    def ranked(self) -> list[Found]:
        """The ranked layouts."""
        return self.result.ranked

    @property
    def best(self) -> ParallelStep | None:
        """The fastest layout's step."""
        return self.result.best

    @property
    def pruned(self) -> list[Pruned]:
        """The layouts left out, each with its reason."""
        return self.result.pruned

    @property
    def considered(self) -> int:
        """The number of layouts."""
        return len(self.ranked) + len(self.pruned) + len(self.result.left)

    @property
    def verdict(self) -> str:
        """Whether any layout fits: the best verdict of all."""
        if self.ranked:
            return FITS
        return TIGHT if TIGHT in Counter(one.kind for one in self.pruned) else TOO_LARGE

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs."""
        return self.question.understood(self.training.libraries.name)

    @property
    def notes(self) -> list[str]:
        """The placement of ranks, and the sources of FLOPs and of collectives, a sentence each."""
        libraries = self.training.libraries
        sentences = placement_notes(self.question.ranks, libraries.placement, libraries.placed)
        sentences += [FORMULA] if self.question.model_on_gpu.precision else []
        if self.best:
            sentences += [*self.training.notes(self.ranked[0].job.mesh), *self.best.timeline.assumes]
        return sentences

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each ranked layout: its options, seconds, samples/s, bytes."""
        return [self._row(one) for one in self.ranked]

    def _row(self, one: Found) -> dict[str, Any]:
        tokens = one.job.model.tokens
        throughput = one.job.samples / one.step_s
        room = self.training.room(one.job, self.question.reserve)
        return {
            "options": f"{one.name} --batch {one.job.batch}",
            "layout": asdict(self.options[one.name]),
            "batch": one.job.batch,
            "step_s": one.step_s,
            "throughput": throughput,
            "tokens_per_s": None if tokens is None else tokens * throughput,
            "mfu": self._mfu(one),
            "memory_bytes": one.peak_nbytes,
            "reserve_bytes": room.reserve,
            "margin_bytes": room.margin(one.peak_nbytes),
            "chance": room.chance(one.peak_nbytes),
        }

    def _mfu(self, one: Found) -> float | None:
        precision, flops = self.question.model_on_gpu.precision, one.job.model.model_flops
        if precision is None or flops is None:
            return None
        peak = self.question.gpu.peak(precision)
        return flops * one.job.samples / (one.job.mesh.ranks * peak * one.step_s)
