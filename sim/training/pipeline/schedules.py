"""The schedules by name, their requirements, and the tables of all ranks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ringside.sim.training.pipeline import loops, vees
from ringside.sim.training.pipeline.actions import Placement, Table
from ringside.topologies.names import one_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineSchedule:
    """A schedule; ``stages_a_rank`` is None if a rank may have any number of stages.

    ``steps`` says that idle steps follow from lockstep. At least ``least`` micro-batches per rank are needed;
    a ``grouped`` schedule passes them through a stage in groups of one size.
    """

    order: Callable[..., list[loops.Slot]]
    stages_a_rank: int | None = 1
    v: bool = False
    least: int = 0
    grouped: bool = False
    steps: bool = False


SCHEDULES = {
    "gpipe": PipelineSchedule(order=loops.gpipe),
    "1f1b": PipelineSchedule(order=loops.one_forward_one_backward),
    "interleaved1f1b": PipelineSchedule(order=loops.interleaved, stages_a_rank=None, grouped=True),
    "looped_bfs": PipelineSchedule(order=loops.looped_bfs, stages_a_rank=None),
    "zb-h1": PipelineSchedule(order=loops.zero_bubble, grouped=True, steps=True),
    "zb-h2": PipelineSchedule(order=loops.zb_h2, steps=True),
    "interleaved_zero_bubble": PipelineSchedule(
        order=loops.zero_bubble, stages_a_rank=None, grouped=True, steps=True
    ),
    "zbv": PipelineSchedule(order=vees.zbv, stages_a_rank=2, v=True),
    "dualpipev": PipelineSchedule(order=vees.dualpipev, stages_a_rank=2, v=True, least=2),
}


def tables(
    schedule: str, ranks: int, stages_a_rank: int, micro_batches: int, *, group: int | None = None
) -> tuple[Table, ...]:
    """Return each rank's actions in order; ``group`` is `orders`'."""
    rows = orders(schedule, ranks, stages_a_rank, micro_batches, group=group)
    return tuple(tuple(action for action in order if action) for order in rows)


def orders(
    schedule: str, ranks: int, stages_a_rank: int, micro_batches: int, *, group: int | None = None
) -> tuple[tuple[loops.Slot, ...], ...]:
    """Return `tables` with the time steps in which a rank of torch's is idle, as None.

    ``group`` consecutive micro-batches pass an interleaved stage. By default groups are
    equal and have at least one micro-batch per rank, if there are that many, as in torch. Megatron-LM's
    default is one per rank, and its last group may be shorter.
    """
    own = find_schedule(schedule)
    where = placement(schedule, ranks, stages_a_rank)
    _check(schedule, where, micro_batches, group)
    arguments: tuple[int, ...] = (micro_batches,)
    if own.grouped:
        arguments = (group or micro_batches // _rounds(ranks, micro_batches), micro_batches)
    rows = tuple(tuple(own.order(where, *arguments, rank)) for rank in range(ranks))
    return loops.in_step(rows) if own.steps else rows


def zb_2p(ranks: int, micro_batches: int, times: "PassTimes") -> tuple[Table, ...]:
    """Return ZB-2p: the least bubble with memory for 2 micro-batches per rank, for known pass times.

    The first rank runs forwards while it waits for its first backward; after its last backward the last rank
    makes weights' gradients while the others wait for it. Qi et al. (2024) search for such an order; these
    rules come within 0.8 percent of their bubbles, mostly within 0.2.
    """
    where = placement("zb-h1", ranks, 1)
    _check("zb-h2", where, micro_batches, None)
    if min(times) < 0 or not (times.forward and times.weight_gradient):
        raise ValueError(f"passes of {times}; write times above 0, 0 or more for a message")
    hop = times.forward + times.input_gradient + 2 * times.message
    lead = min(hop / times.forward, (2 * ranks - 1) / max(1, ranks - 1))
    put_off = hop / times.weight_gradient
    order = partial(loops.zero_bubble, where, micro_batches, micro_batches, lead=lead, put_off=put_off)
    return tuple(tuple(action for action in order(rank) if action) for rank in range(ranks))


class PassTimes(NamedTuple):
    """Times of a micro-batch's passes on a rank, and of a message between ranks, in one unit."""

    forward: float
    input_gradient: float
    weight_gradient: float
    message: float


INTERLEAVED = 2
"""The usual number of stages of a rank where a schedule may have any."""


def find_schedule(name: str) -> PipelineSchedule:
    """Return the schedule of that name."""
    if name not in SCHEDULES:
        raise ValueError(f"unknown pipeline schedule {name!r}; write {one_of(SCHEDULES, name)}")
    return SCHEDULES[name]


def placement(schedule: str, ranks: int, stages_a_rank: int) -> Placement:
    """Return the placement of a schedule's stages; 0 on a rank is its usual number."""
    own = find_schedule(schedule)
    stages_a_rank = stages_a_rank or own.stages_a_rank or INTERLEAVED
    if own.stages_a_rank and own.stages_a_rank != stages_a_rank:
        several = [name for name, one in SCHEDULES.items() if one.stages_a_rank in (None, stages_a_rank)]
        raise ValueError(
            f"{schedule} has {own.stages_a_rank} per rank, not {stages_a_rank} stages; "
            f"write {own.stages_a_rank}, or with {stages_a_rank} one of {', '.join(several)}"
        )
    return Placement(ranks, stages_a_rank, own.v)


def _check(schedule: str, where: Placement, micro_batches: int, group: int | None) -> None:
    own = find_schedule(schedule)
    least = max(1, own.least * where.ranks)
    if micro_batches < least:
        raise ValueError(
            f"{micro_batches} micro-batches, but {schedule} on {where.ranks} ranks needs {least} or more; "
            "write a larger batch, smaller micro-batches or another schedule"
        )
    if group is not None:
        _check_group(schedule, own, where, micro_batches, group)
    elif own.grouped and micro_batches % _rounds(where.ranks, micro_batches):
        # a multiple of the ranks always divides evenly
        near = range(max(1, micro_batches - where.ranks), micro_batches + where.ranks + 1)
        fits = [
            other
            for other in sorted(near, key=lambda one: abs(one - micro_batches))
            if other % _rounds(where.ranks, other) == 0
        ]
        raise ValueError(
            f"{micro_batches} micro-batches do not divide evenly into the "
            f"{_rounds(where.ranks, micro_batches)} rounds of {where.ranks} ranks, as {schedule} requires; "
            f"write {fits[0]} or {fits[1]}"
        )


def _check_group(
    schedule: str, own: PipelineSchedule, where: Placement, micro_batches: int, group: int
) -> None:
    """Check groups by Megatron-LM's rules."""
    if not own.grouped:
        raise ValueError(f"{schedule} has no groups of micro-batches; leave the group out")
    if not where.ranks <= group <= max(micro_batches, where.ranks):
        raise ValueError(
            f"groups of {group} micro-batches; write {where.ranks} (one per rank) to "
            f"{max(micro_batches, where.ranks)}"
        )
    last = micro_batches % group
    if 0 < last < where.ranks:
        fits = [
            one for one in range(where.ranks, max(micro_batches, where.ranks) + 1)
            if not 0 < micro_batches % one < where.ranks
        ]  # fmt: skip
        raise ValueError(
            f"{micro_batches} micro-batches in groups of {group} leave a last group of {last}, fewer than "
            f"{where.ranks} ranks; write "
            + (
                f"groups of {', '.join(map(str, fits[:8]))}"
                if fits
                else f"{where.ranks} micro-batches or more"
            )
        )


def _rounds(ranks: int, micro_batches: int) -> int:
    return max(1, micro_batches // ranks)
