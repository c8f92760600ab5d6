"""The layouts of a training on a budget of GPUs, ranked: the answer of ``train --search``."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from ringside.sim.questions.layout import ByLayout
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.mesh import Mesh
from ringside.sim.training.parallel.job import ParallelJob
from ringside.sim.training.room import Room, room_of
from ringside.sim.training.search import Candidate, Searched, search
from ringside.sim.workload.decoder import DECODERS, decoder
from ringside.sim.workload.devices import Device
from ringside.space import Budget, check_fixed, layouts, spelled
from ringside.validation.questions.laid_out import LaidOut, laid_out
from ringside.validation.questions.step_time import StepTime
from ringside.validation.questions.training import Training, sized_workload

TOP = 5
"""The default number of ranked layouts."""

TOKENS = 1 << 24
"""The default maximum of tokens per step: 16 Mi, as Llama 3 405B was trained with."""


@dataclass(frozen=True, slots=True)
class Layouts:
    """The layouts found, their budget and hardware; ``words`` are each layout's options by its name.

    All layouts surely fit into the ``room`` of a GPU.
    """

    budget: Budget
    what: LaidOut
    room: Room
    searched: Searched
    words: Mapping[str, ByLayout]


def find_layouts(
    question: StepTime,
    fixed: Mapping[str, Any],
    *,
    top: int = TOP,
    tell: Callable[[str], None] = lambda _: None,
) -> Layouts:
    """Search the fastest layouts with the options ``fixed``, with the same samples per step."""
    gpu, libraries, global_batch = question.gpu, question.libraries, question.global_batch
    _check(question, top)
    room = room_of(gpu, question.reserve)
    check_fixed(fixed)
    if global_batch is not None and global_batch < 1:
        raise LayoutError(f"`global_batch` {global_batch}; write 1 or more")
    what = laid_out(question, gpu, libraries, Layout())
    budget = Budget(
        ranks=libraries.ranks, machine=libraries.machine, layers=_layers(question, gpu),
        samples=_samples(question, gpu, libraries.ranks) if global_batch is None else global_batch,
    )  # fmt: skip
    names: dict[str, ByLayout] = {}

    def candidates() -> Iterator[Candidate]:
        for words in layouts(budget, fixed):
            name = spelled(words)
            names[name] = words
            yield Candidate(name, partial(_job, what, budget, words))

    ranking = search(candidates(), libraries, room, top=top, tell=tell)
    return Layouts(budget, what, room, ranking, names)


def _job(what: LaidOut, budget: Budget, words: ByLayout) -> ParallelJob:
    layout = words.layout()
    mesh = layout.mesh(budget.ranks, budget.machine)
    batch = _batch(budget, mesh)
    return what.job(layout, batch)


def _batch(budget: Budget, mesh: Mesh) -> int:
    """Return the samples per replica."""
    replicas = mesh.degree("shard", "replicate")
    batch, rest = divmod(budget.samples, replicas)
    if rest or not batch:
        raise LayoutError(f"{budget.samples} samples per step do not divide among {replicas} replicas")
    return batch


def _layers(training: Training, gpu: Device) -> int:
    """Return the maximum number of pipeline stages."""
    name = training.model
    if name.partition(":")[0] in DECODERS:
        return decoder(name).layers
    sized, _ = sized_workload(training, gpu)
    return len(sized(None).layers)


def _samples(training: Training, gpu: Device, ranks: int) -> int:
    """Return samples per step: a decoder's sequence per GPU up to a limit, else the model's batch."""
    name = training.model
    if name.partition(":")[0] in DECODERS:
        return max(1, min(ranks, TOKENS // decoder(name).sequence))
    sized, _ = sized_workload(training, gpu)
    return ranks * sized(None).batch


def _check(training: Training, top: int) -> None:
    if training.batch is not None:
        raise LayoutError(
            f"`batch` {training.batch} is per replica, and layouts differ in replicas; write "
            "`global_batch` for the samples per step"
        )
    if training.throughput is not None:
        raise LayoutError(
            "`measured` applies to one layout, a search has many; write `compute_efficiency`, or remove it"
        )
    if top < 1:
        raise LayoutError(f"`top` {top}; write 1 or more")
