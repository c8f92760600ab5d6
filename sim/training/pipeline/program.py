"""A pipeline by the runtime that runs it, and a pipeline alone as a program."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial

from ringside.sim.program import Operation, Program
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.mesh import Communicators, Mesh
from ringside.sim.training.pipeline.actions import COMPUTES, Kind, Placement, Table, check_tables, lower
from ringside.sim.training.pipeline.megatron import megatron_1f1b, megatron_interleaved
from ringside.sim.training.pipeline.runtimes import (
    Messages,
    Runtime,
    decoupled,
    torch_1f1b,
    torch_actions,
    torch_gpipe,
)
from ringside.sim.training.pipeline.schedules import tables as tables_of
from ringside.sim.training.sharing import Unshared
from ringside.sim.training.stage import RankList, Stage
from ringside.topologies.names import one_of

RUNTIMES: dict[str, dict[str, Runtime]] = {
    "torch": {"gpipe": torch_gpipe, "1f1b": torch_1f1b, "": torch_actions},
    "megatron": {"1f1b": megatron_1f1b, "interleaved1f1b": megatron_interleaved},
    "megatron-overlap": {"interleaved1f1b": partial(megatron_interleaved, overlap=True)},
    "decoupled": {"": decoupled},
}
"""Schedules by runtime; an empty name stands for all others, and for tables of a file."""


def find_runtime(whose: str, schedule: str = "") -> Runtime:
    """Return the runtime that runs a schedule."""
    if whose not in RUNTIMES:
        raise ValueError(f"unknown pipeline runtime {whose!r}; write {one_of(RUNTIMES, whose)}")
    own = RUNTIMES[whose]
    if schedule not in own and "" not in own:
        raise ValueError(f"{whose} runs {' and '.join(own)}, not {schedule or 'tables of a file'}")
    return own.get(schedule, own[""]) if "" in own else own[schedule]


class Pipeline:
    """The tables of all ranks of a pipeline, and the runtime that writes them into the ranks' lists.

    Torch's runtime for all schedules has messages in its tables. ``stages`` are those of each rank.
    """

    def __init__(self, tables: Sequence[Table], placement: Placement, runtime: Runtime) -> None:
        self.placement = placement
        self.stages = tuple(map(placement.of, range(placement.ranks)))
        self.tables = _prepared(tables, placement, runtime)
        self._runtime = runtime

    def write(self, rank: RankList, stages: Mapping[int, Stage], nbytes: int | Sequence[int]) -> None:
        """Write a rank's part of a step; ``stages`` by number, ``nbytes`` are those of `Messages`."""
        messages = Messages(rank, self.placement, nbytes)
        self._runtime(messages, stages, self.tables[messages.position])


def find_pipeline(
    whose: str,
    schedule: str,
    tables: Sequence[Table],
    placement: Placement,
    micro_batches: int,
    group: int | None = None,
) -> Pipeline:
    """Return the pipeline of a schedule, or of the tables of a file; ``whose`` runtime writes it.

    ``group`` is that of `ringside.sim.training.pipeline.schedules.orders`.
    """
    runtime = find_runtime(whose, "" if tables else schedule)
    own = tables or tables_of(schedule, placement.ranks, placement.stages_a_rank, micro_batches, group=group)
    return Pipeline(own, placement, runtime)


def _prepared(tables: Sequence[Table], placement: Placement, runtime: Runtime) -> tuple[Table, ...]:
    """Check tables, and lower those without messages where the runtime needs them."""
    what = {*COMPUTES, Kind.OVERLAP}
    computing = tuple(tuple(action for action in table if action.kind in what) for table in tables)
    given = tuple(map(tuple, tables))
    if runtime is torch_actions and computing == given:
        return lower(computing, placement)
    check_tables(computing, placement)
    return given if runtime is torch_actions else computing


def pipeline(
    name: str,
    tables: Sequence[Table],
    placement: Placement,
    layers: Callable[[int], Sequence[RankLayer]],
    runtime: Runtime,
    *,
    nbytes: int = 0,
    library: str = "nccl",
) -> Program:
    """Return one step of a pipeline without any other parallelism.

    ``layers(stage)`` returns a stage's layers; ``nbytes`` are a micro-batch's activations between two.
    """
    prepared = Pipeline(tables, placement, runtime)
    communicators = Communicators(Mesh(pipeline=placement.ranks), library)

    @cache
    def operations(rank: int) -> list[Operation]:
        written = RankList(rank, communicators)
        stages = {
            stage: Stage(written, layers(stage), Unshared(), f"stage {stage}")
            for stage in prepared.stages[rank]
        }
        prepared.write(written, stages, nbytes)
        return written.operations

    return Program(name, placement.ranks, operations)
