"""A recorded job on other numbers of ranks, where its recording determines everything that changes.

Every rank is taken to do what it was recorded doing, on data of its own. Groups along one dimension of the
ranks grow, those within blocks of ranks stay. What grown groups reduce or broadcast is the same. What they
gather and scatter is a whole, sharded among more: it stays, and its shards shrink. That they are shards of
the parameters is told by two sums: what a step scatters are the gradients of all parameters that ranks hold,
each once, and each gather has the elements of such a scatter.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import isclose

from ringside.sim.program.groups import MAX_RANKS
from ringside.sim.recorded.job import (
    Action,
    Entry,
    GroupCall,
    JobFileError,
    Operator,
    PeerMessage,
    RecordedGroup,
    RecordedJob,
    RecordedRank,
    Shaped,
    itemsize,
)
from ringside.sim.recorded.kernels import short_name
from ringside.sim.recorded.sound import check_job, title

SHARDED_POOLS = ("parameters", "gradients", "optimizer")
"""Pools of shards where parameters are sharded."""

SAME = ("all_reduce", "broadcast", "reduce")
"""Collectives whose bytes do not depend on the number of ranks."""

ROUNDING = 0.01
"""Share by which held bytes may differ from those of parameters: allocations are rounded."""


def on_ranks(job: RecordedJob, ranks: int) -> RecordedJob:
    """Return the job on other ranks; raise JobFileError where its recording does not say what changes."""
    if ranks == job.ranks:
        return job
    if not 1 <= ranks <= MAX_RANKS:
        raise JobFileError(f"{title(job)} on {ranks} ranks; write 1 to {MAX_RANKS}")
    check_job(job)
    reason = next((reason for one in job.recorded for reason in _reasons(job, one, ranks)), None)
    if reason:
        raise JobFileError(
            f"{title(job)} was recorded on {job.ranks} ranks: {reason}; record it on {ranks} ranks"
        )
    apart = {one.rank for one in job.recorded if one.alike == (one.rank,)} if len(job.recorded) > 1 else set()
    others = tuple(rank for rank in range(ranks) if rank not in apart)
    samples = None if job.samples is None else job.samples * ranks // job.ranks
    said = f"recorded on {job.ranks} ranks; each of {ranks} is taken to do the same on data of its own"
    return replace(
        job, ranks=ranks, samples=samples, notes=(*job.notes, said),
        groups=tuple(_resized(group, job.ranks, ranks) for group in job.groups if _kind(group, job.ranks)),
        recorded=tuple(
            _resized_rank(job, replace(one, alike=one.alike if one.rank in apart else others), ranks)
            for one in job.recorded
        ),
    )  # fmt: skip


def _resized_rank(job: RecordedJob, one: RecordedRank, ranks: int) -> RecordedRank:
    return _sharded(one, job.ranks / ranks) if _sharing(job, one) else one


def _reasons(job: RecordedJob, one: RecordedRank, ranks: int) -> Iterator[str]:
    """Yield why a rank of a job cannot be rewritten."""
    if len(job.recorded) > 2 or sum(len(other.alike) > 1 for other in job.recorded) > 1:
        yield f"they have {len(job.recorded)} roles"
        return
    if one.rank >= ranks:
        yield f"rank {one.rank} stands for them"
    if any(isinstance(action, PeerMessage) for action in one.actions):
        yield "they send messages to one another"
    kinds = {group.name: _kind(group, job.ranks) for group in job.groups}
    calls = [action for action in one.actions if isinstance(action, GroupCall)]
    for name in dict.fromkeys(call.group for call in calls):
        kind = kinds[name]
        if kind is None:
            yield f"group {name} is neither of neighbours nor of ranks at equal distances"
        elif ranks % kind[1]:
            yield f"{ranks} ranks are no multiple of {kind[1]}, for group {name}"
    grown = [call for call in calls if (kinds[call.group] or ("",))[0] == "grows"]
    roots = {(call.group, call.root) for call in grown if call.root is not None}
    if len(roots) > len({group for group, _ in roots}):
        yield "several ranks are roots, so there may be as many as ranks"
    if any(root >= ranks for _, root in roots if root is not None):
        yield "a root is none of fewer ranks"
    other = next(
        (one for one in grown if one.collective not in (*SAME, "all_gather", "reduce_scatter")), None
    )
    if other:
        yield f"the bytes of {other.name} in group {other.group} depend on the number of ranks"
    yield from _unsharded(job, one, ranks)


def _unsharded(job: RecordedJob, one: RecordedRank, ranks: int) -> Iterator[str]:
    """Yield why gathers and scatters cannot be those of sharded parameters."""
    sharing = _sharing(job, one)
    if not sharing:
        return
    if len({call.group for call in sharing}) > 1:
        yield "parameters are sharded in several groups that grow"
        return
    count = len(next(group for group in job.groups if group.name == sharing[0].group).of(one.rank) or ())
    scattered = {_elements(call) for call in sharing if call.collective == "reduce_scatter"}
    for call in sharing:
        if _elements(call) not in scattered:
            yield f"{call.name} of {call.nbytes} bytes in group {call.group} may be more on more ranks"
        if _elements(call) % (count * ranks // job.ranks):
            yield f"{call.name} of {call.nbytes} bytes in group {call.group} is padded for other ranks"
    whole = sum(
        _elements(action)
        for entry in one.entries
        if isinstance(action := one.actions[entry.action], GroupCall)
        and action.collective == "reduce_scatter" and action.group == sharing[0].group
    )  # fmt: skip
    held = one.held.get("parameters", 0) * count
    if not any(isclose(held, whole * nbytes, rel_tol=ROUNDING) for nbytes in (2, 4)):
        yield "what a step scatters are not the gradients of all parameters that a rank holds"


def _sharing(job: RecordedJob, one: RecordedRank) -> list[GroupCall]:
    """Return the distinct gathers and scatters of groups that grow."""
    growing = {group.name for group in job.groups if (_kind(group, job.ranks) or ("",))[0] == "grows"}
    return [
        action
        for action in one.actions
        if isinstance(action, GroupCall) and action.group in growing and action.collective not in SAME
    ]


def _elements(call: GroupCall) -> int:
    return call.nbytes // itemsize(call.dtype)


def _kind(group: RecordedGroup, ranks: int) -> tuple[str, int] | None:
    """Return whether a group ``grows``, with the distance of its ranks, or ``stays``, with its size."""
    count = len(group.partition)
    strided = all(part == tuple(range(first, ranks, count)) for first, part in enumerate(group.partition))
    if strided and (count < ranks or ranks == 1):
        return "grows", count
    size = ranks // count
    blocks = [tuple(range(first, first + size)) for first in range(0, ranks, size)] if size else []
    return ("stays", size) if list(group.partition) == blocks else None


def _resized(group: RecordedGroup, before: int, ranks: int) -> RecordedGroup:
    kind = _kind(group, before)
    assert kind is not None
    grows, number = kind[0] == "grows", kind[1]
    partition = (
        [tuple(range(first, ranks, number)) for first in range(number)]
        if grows
        else [tuple(range(first, first + number)) for first in range(0, ranks, number)]
    )
    return replace(group, partition=tuple(partition))


def _sharded(one: RecordedRank, ratio: float) -> RecordedRank:
    """Return a rank whose shards are ``ratio`` times as large."""

    def resized(pool: str, nbytes: int) -> int:
        return round(nbytes * ratio) if pool in SHARDED_POOLS else nbytes

    def entry(own: Entry) -> Entry:
        return replace(own, memory=tuple((pool, resized(pool, nbytes)) for pool, nbytes in own.memory))

    return replace(
        one, held={pool: resized(pool, nbytes) for pool, nbytes in one.held.items()},
        actions=tuple(_of_shards(action, ratio) for action in one.actions),
        entries=tuple(map(entry, one.entries)),
    )  # fmt: skip


def _of_shards(action: Action, ratio: float) -> Action:
    """Return an operator on lists of shards with smaller ones; other actions use whole tensors."""
    if not (isinstance(action, Operator) and short_name(action).startswith(("_foreach_", "_fused_"))):
        return action

    def smaller(tensor: Shaped) -> Shaped:
        rows = tuple(max(1, round(extent * ratio)) for extent in tensor.shape[:1])
        return replace(tensor, shape=(*rows, *tensor.shape[1:]))

    inputs, outputs = (tuple(map(smaller, tensors)) for tensors in (action.inputs, action.outputs))
    return replace(action, inputs=inputs, outputs=outputs)
