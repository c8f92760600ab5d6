"""The fastest layouts of a training on a number of GPUs, and the reasons to leave out others."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, ClassVar

from ringside.sim.goodput.cost import Cost
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.question import option, options_of
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layout import LayoutError
from ringside.sim.training.layout_mesh import mesh_of
from ringside.sim.training.memory.room import FITS, TIGHT, TOO_LARGE
from ringside.sim.training.mesh import Mesh
from ringside.sim.training.parallel import ParallelTraining
from ringside.sim.training.search.search import Found, LayoutCandidate, Pruned, Searched, search
from ringside.sim.training.step import ParallelStep
from ringside.sim.training.tensor.decoder import DecoderOnGpu
from ringside.topologies.catalogue import split
from ringside.topologies.names import one_of
from ringside.topologies.placement import placement_notes
from ringside.topologies.units import format_duration
from ringside.validation.questions.layout import ByLayout
from ringside.validation.questions.priced import cost_figure, cost_text
from ringside.validation.questions.training import FORMULA, TrainingOnCluster
from ringside.validation.training.decay import DecayedSteps, decayed
from ringside.validation.training.layout_choices import Budget, as_options, check_fixed, layouts

TOP = 5
"""The default number of ranked layouts."""

DEARER = "dearer"
"""The reason to leave out a layout that another one beats by cost."""

TOKENS = 1 << 24
"""The default maximum of tokens per step: 16 Mi, as in the training of Llama 3 405B."""

LAYOUT_FIELDS = tuple(one.name for one in options_of(ByLayout))


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

    by: str = option(
        "--search: rank by a step's time, or by cost, on fewer nodes too.",
        metavar="time|cost", default="time",
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.by not in ("time", "cost"):
            raise LayoutError(f"`by` {self.by!r}; write time or cost")
        if self.by == "cost" and self.tokens is None and self.samples is None:
            raise LayoutError("`by` cost needs an amount to train on; write `tokens` 15T, or `samples` 1.2B")
        if self.by == "cost" and self.ranks is not None:
            raise LayoutError("`by` cost searches numbers of nodes; leave `ranks` out")
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
        self.wanted_samples(self.model)  # which refuses tokens that cannot be counted
        if self.by == "cost":
            return self._cheapest(on_progress)
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
        slowed = None if result.left else decayed(result.ranked, self.libraries)
        return RankedLayouts(self, {budget.ranks: training}, budget, result, options, slowed)

    def _cheapest(self, on_progress: Callable[[str], None]) -> "RankedLayouts":
        """Search on all nodes, on half of them, and so on, with the same samples per step.

        The cheapest layouts of all are among the fastest of each number of nodes.
        """
        machine, count = split(self.cluster)
        samples, nodes = self._budget().samples, count or 1
        counts = [nodes >> power for power in range(nodes.bit_length())]
        answers: list[RankedLayouts] = []
        for some in counts:
            cluster = self.cluster if count is None else f"{machine}:{some}"
            question = replace(self, cluster=cluster, global_batch=samples, by="time")
            answers.append(question.ask(on_progress=partial(_tell_on, cluster, on_progress)))
            if answers[-1].result.left:
                break
        return _merged(self, answers)

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


def _tell_on(cluster: str, on_progress: Callable[[str], None], message: str) -> None:
    on_progress(f"{cluster}: {message}")


def _merged(question: LayoutSearch, answers: "Sequence[RankedLayouts]") -> "RankedLayouts":
    """Return the cheapest layouts of several numbers of nodes, each named with its cluster."""
    everything, options = Searched(), dict[str, ByLayout]()
    slowed: dict[str, float] = {}
    best: dict[str, ParallelStep | None] = {}
    for one in answers:
        on = f"--cluster {shlex.quote(one.question.cluster)} "
        options |= {on + name: layout for name, layout in one.options.items()}
        everything.ranked += [layout._replace(name=on + layout.name) for layout in one.ranked]
        if one.decayed:
            slowed |= zip((on + layout.name for layout in one.ranked), one.decayed.decayed_s, strict=True)
        everything.pruned += [layout._replace(name=on + layout.name) for layout in one.pruned]
        everything.left += tuple(on + name for name in one.result.left)
        best |= {everything.ranked[-len(one.ranked)].name: one.best} if one.ranked else {}
    everything.ranked.sort(key=lambda layout: layout.step_s * layout.job.mesh.ranks)
    for layout in everything.ranked[question.top :]:
        reason = f"costs more: {layout.step_s:.6g} s a step on {layout.job.mesh.ranks} GPUs"
        everything.pruned.append(Pruned(layout.name, DEARER, reason, layout.step_s, layout.peak_nbytes))
    del everything.ranked[question.top :]
    everything.best = best[everything.ranked[0].name] if everything.ranked else None
    trainings = {ranks: training for one in answers for ranks, training in one.trainings.items()}
    return RankedLayouts(
        question, trainings, answers[0].budget, everything, options, _decayed_costs(everything.ranked, slowed)
    )


def _decayed_costs(ranked: Sequence[Found], slowed: Mapping[str, float]) -> DecayedSteps | None:
    """Return the steps on a fabric that decays, ``slowed`` by name; None if no step slows down."""
    if not slowed.keys() & {layout.name for layout in ranked}:
        return None
    steps = [slowed.get(layout.name, layout.step_s) for layout in ranked]
    return DecayedSteps(steps, [layout.job.mesh.ranks for layout in ranked])


@dataclass(frozen=True, slots=True)
class RankedLayouts(AnswerOnDemand):
    """The answer: the layouts that were simulated and fit, the best first, and those left out.

    ``options`` are each layout's by its name, ``trainings`` those on each number of GPUs; all ranked layouts
    fit into a GPU. ``decayed`` are their steps on a fabric that decays, if the site's is unknown.
    """

    question: LayoutSearch
    trainings: Mapping[int, ParallelTraining]
    budget: Budget
    result: Searched
    options: Mapping[str, ByLayout]
    decayed: DecayedSteps | None = None

    @property
    def ranked(self) -> list[Found]:
        """The ranked layouts."""
        return self.result.ranked

    @property
    def best(self) -> ParallelStep | None:
        """The best layout's step."""
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
    def headline(self) -> str:
        """The best layout, its time and what the training costs; or why there is none."""
        left = len(self.result.left)
        stopped = f"stopped before {left} layouts were simulated; " if left else ""
        if not self.ranked:
            return stopped + self._none()
        (best, *_), (cost, *_) = self.ranked, self.costs
        priced = f"; {cost_text(self.question, cost)}" if cost else ""
        return (
            f"{stopped}the best{' so far' if left else ''} takes {format_duration(best.step_s, 4)}: "
            f"{best.name} --batch {best.job.batch}{priced}"
        )

    def _none(self) -> str:
        kinds = Counter(one.kind for one in self.pruned)
        if self.result.left:
            return "no layout that fits is known yet"
        if {TIGHT, TOO_LARGE} & kinds.keys():
            more = "more GPUs, --checkpointing or a smaller --global-batch may"
            return f"no layout is known that fits; {more}"
        return "none of these layouts is possible, for the reasons below; fix fewer or other options"

    @property
    def grounds(self) -> str:
        """The source of compute times, and how many layouts were considered."""
        return f"{self.considered} layouts of {self.question.model}; {self.question.computing}"

    @property
    def doubts(self) -> list[str]:
        """What may change the order."""
        doubts = [self.decayed.note] if self.decayed else []
        if left := self.result.left:
            doubts.append(f"stopped: {len(left)} remaining layouts may be faster, first {left[0]}")
        return doubts

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs."""
        return self.question.understood(self.question.libraries.name)

    @property
    def notes(self) -> list[str]:
        """The placement of ranks, and the sources of FLOPs and of collectives, a sentence each."""
        libraries = self.question.libraries
        sentences = placement_notes(self.question.ranks, libraries.placement, libraries.placed)
        sentences += [self.decayed.note] if self.decayed else []
        sentences += [FORMULA] if self.question.model_on_gpu.precision else []
        if self.best:
            mesh = self.ranked[0].job.mesh
            sentences += [*self.trainings[mesh.ranks].notes(mesh), *self.best.timeline.assumes]
        return sentences

    @property
    def costs(self) -> list[Cost | None]:
        """What the training costs with each ranked layout; None if no amount to train on is given."""
        return [self.question.cost_of(one.step_s, one.job.samples, one.job.mesh.ranks) for one in self.ranked]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each ranked layout: its options, seconds, samples/s, bytes."""
        return [self._row(*pair) for pair in zip(self.ranked, self.costs, strict=True)]

    def _row(self, one: Found, cost: Cost | None) -> dict[str, Any]:
        tokens = one.job.model.tokens
        throughput = one.job.samples / one.step_s
        room = self.trainings[one.job.mesh.ranks].room(one.job, self.question.reserve)
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
            **cost_figure(cost),
        }

    def _mfu(self, one: Found) -> float | None:
        precision, flops = self.question.model_on_gpu.precision, one.job.model.model_flops
        if precision is None or flops is None:
            return None
        peak = self.question.gpu.peak(precision)
        return flops * one.job.samples / (one.job.mesh.ranks * peak * one.step_s)
