"""A recorded job on other numbers of ranks, where its recording determines everything that changes.

Every rank is taken to do what it was recorded doing, on data of its own, so that one dimension of the ranks
grows: one along which they reduce their gradients. What groups along it reduce or broadcast is the same. What
they gather and scatter is a whole, sharded among more: it stays, and its shards shrink. That they are shards
of the parameters is told by two sums: what a step scatters are the gradients of all parameters that ranks
hold, each once, and each gather has the elements of such a scatter.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import isclose

from ringside.sim.program.groups import MAX_RANKS
from ringside.sim.recorded.gradients import PARAMETER, ROUNDING, are_reduced, elements
from ringside.sim.recorded.job import (
    Action,
    GroupCall,
    JobFileError,
    PeerMessage,
    RecordedJob,
    RecordedRank,
)
from ringside.sim.recorded.mesh import Dimension, apart, called_groups, silent_dimensions
from ringside.sim.recorded.shards import sharded
from ringside.sim.recorded.sound import check_job, title

SAME = ("all_reduce", "broadcast", "reduce")
"""Collectives whose bytes do not depend on the number of ranks."""

NUMBERS = 1024
"""Bytes up to which what a rank gives to be gathered is taken for numbers about it, such as its times."""


def on_ranks(job: RecordedJob, ranks: int) -> RecordedJob:
    """Return the job on other ranks; raise JobFileError where its recording does not say what changes."""
    if ranks == job.ranks:
        return job
    if not 1 <= ranks <= MAX_RANKS:
        raise JobFileError(f"{title(job)} on {ranks} ranks; write 1 to {MAX_RANKS}")
    check_job(job)
    silent = list(silent_dimensions(job))
    along = next((one for one in silent if are_reduced(job, one.spanning(job.groups))), None)
    if not silent:
        reason = "ranks differ or exchange messages along every dimension, as stages and uneven shards do"
    elif along is None:
        reason = "along no dimension does a step reduce the gradients of all parameters once, in even shards"
    elif job.ranks == 1 and len(called_groups(job)) > 1:
        reason = "which of its groups of one rank are data-parallel is unknown"
    elif ranks % (others := job.ranks // along.size):
        reason = f"{ranks} ranks are no multiple of {others}, of which each does other things"
    else:
        growth = _Growth(job, along, ranks // others)
        reason = next((reason for one in job.recorded for reason in growth.reasons(one)), "")
    if reason:
        raise JobFileError(
            f"{title(job)} was recorded on {job.ranks} ranks: {reason}; record it on {ranks} ranks"
        )
    return growth.job_there()


@dataclass(frozen=True)
class _Growth:
    """A job whose ranks grow along a dimension to another size."""

    job: RecordedJob
    along: Dimension
    size: int
    _counts: dict[str, int] = field(init=False, repr=False)
    """The ranks of each group that grows."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_counts", self.along.spanning(self.job.groups))

    def job_there(self) -> RecordedJob:
        """Return the job on its ranks there."""
        job, along = self.job, self.along
        ranks = job.ranks // along.size * self.size
        groups = [one for one in job.groups if one.name in self._counts or along.repeats(one)]
        said = f"recorded on {job.ranks} ranks; each of {ranks} is taken to do the same on data of its own"
        grown = ", ".join(sorted({call.group for one in job.recorded for call in self._grown(one)}))
        return replace(
            job, ranks=ranks, notes=(*job.notes, f"{said}, along {grown or 'all'}"),
            samples=None if job.samples is None else job.samples * ranks // job.ranks,
            groups=tuple(along.resized(group, self.size) for group in groups),
            recorded=tuple(map(self._rank, job.recorded)),
        )  # fmt: skip

    def _rank(self, one: RecordedRank) -> RecordedRank:
        sharing = self._sharing(one)
        own = sharded(one, sharing, self.along.size / self.size) if sharing else one
        rank, alone = self._moved(one.rank), apart(self.job, self.along)
        alike = {rank}
        if one.rank not in alone:
            alike = self.along.resized_ranks(one.alike, self.size) - set(map(self._moved, alone))
        actions = tuple(map(self._action, own.actions))
        return replace(own, rank=rank, alike=tuple(sorted(alike)), actions=actions)

    def _action(self, action: Action) -> Action:
        if isinstance(action, PeerMessage):
            return replace(action, peer=self._moved(action.peer))
        if isinstance(action, GroupCall) and action.root is not None:
            return replace(action, root=self._moved(action.root))
        if isinstance(action, GroupCall) and self._is_of_numbers(action):
            return replace(action, nbytes=action.nbytes * self.size // self.along.size)
        return action

    def _moved(self, rank: int) -> int:
        return self.along.moved(rank, self.size)

    def reasons(self, one: RecordedRank) -> Iterator[str]:
        """Yield why a rank cannot be rewritten."""
        if self.along.place(one.rank) >= self.size:
            yield f"rank {one.rank} stands for others"
        grown = self._grown(one)
        roots = {(call.group, call.root) for call in grown if call.root is not None}
        if len(roots) > len({group for group, _ in roots}):
            yield "several ranks are roots, so there may be as many as ranks"
        if any(self.along.place(root) >= self.size for _, root in roots if root is not None):
            yield "a root is none of fewer ranks"
        other = next(
            (one for one in grown if one.collective not in (*SAME, "all_gather", "reduce_scatter")), None
        )
        if other:
            yield f"the bytes of {other.name} in group {other.group} depend on the number of ranks"
        yield from self._unsharded(one)

    def _unsharded(self, one: RecordedRank) -> Iterator[str]:
        """Yield why gathers and scatters cannot be those of sharded parameters."""
        sharing = self._sharing(one)
        if not sharing:
            return
        if len({call.group for call in sharing}) > 1:
            yield "parameters are sharded in several groups that grow"
            return
        group = sharing[0].group
        count = self._counts[group]
        scattered = {elements(call) for call in sharing if call.collective == "reduce_scatter"}
        for call in sharing:
            if elements(call) not in scattered:
                yield f"{call.name} of {call.nbytes} bytes in group {group} may be more on more ranks"
            if elements(call) % (count // self.along.size * self.size):
                yield f"{call.name} of {call.nbytes} bytes in group {group} is padded for other ranks"
        whole = sum(
            elements(action)
            for entry in one.entries
            if isinstance(action := one.actions[entry.action], GroupCall)
            and action.collective == "reduce_scatter" and action.group == group
        )  # fmt: skip
        held = one.held.get("parameters", 0) * count
        if not any(isclose(held, whole * nbytes, rel_tol=ROUNDING) for nbytes in PARAMETER):
            yield "what a step scatters are not the gradients of all parameters that a rank holds"

    def _sharing(self, one: RecordedRank) -> list[GroupCall]:
        """Return the distinct gathers and scatters of groups that grow, but for those of numbers."""
        return [
            call for call in self._grown(one) if call.collective not in SAME and not self._is_of_numbers(call)
        ]

    def _grown(self, one: RecordedRank) -> list[GroupCall]:
        """Return the distinct calls of groups that grow."""
        calls = (action for action in one.actions if isinstance(action, GroupCall))
        return [call for call in calls if call.group in self._counts]

    def _is_of_numbers(self, call: GroupCall) -> bool:
        """Return whether a call gathers a few numbers of each rank, of which there are more on more ranks."""
        return call.collective == "all_gather" and call.nbytes <= NUMBERS * self._counts.get(call.group, 0)
