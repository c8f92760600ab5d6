"""Rewrite a recorded job for another number of ranks, if the recording determines everything that changes.

Each rank is assumed to run the recorded step on its own data, so that one dimension of the mesh grows: one
along which ranks reduce their gradients. All-reduces and broadcasts along it keep their bytes. Gathers and
scatters keep their total, and the shard of each rank changes. They count as those of sharded parameters if
two conditions hold: the reduce-scatters of a step are the gradients of all parameters that a rank holds, each
once, and every gather has as many elements as one of them.
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
"""Maximum bytes per rank of an all-gather of statistics, such as step times; shards are larger."""


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
        reason = "no dimension reduces the gradients of all parameters exactly once a step, in even shards"
    elif job.ranks == 1 and len(called_groups(job)) > 1:
        reason = "a group of one rank does not show whether it is data-parallel"
    elif ranks % (others := job.ranks // along.size):
        reason = f"{ranks} is not a multiple of its {others} ranks with different roles"
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
        grown = ", ".join(sorted({call.group for one in job.recorded for call in self._grown(one)})) or "all"
        scaled = f"recorded on {job.ranks} ranks, scaled to {ranks} along {grown}"
        return replace(
            job, ranks=ranks, notes=(*job.notes, f"{scaled}; each rank runs the same step on its own data"),
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
        """Yield the reasons why a rank cannot be rewritten."""
        if self.along.place(one.rank) >= self.size:
            yield f"rank {one.rank}, recorded for its role, does not exist on fewer ranks"
        grown = self._grown(one)
        roots = {(call.group, call.root) for call in grown if call.root is not None}
        if len(roots) > len({group for group, _ in roots}):
            yield "a group has several roots, whose number may grow with the ranks"
        if any(self.along.place(root) >= self.size for _, root in roots if root is not None):
            yield "a root does not exist on fewer ranks"
        other = next(
            (one for one in grown if one.collective not in (*SAME, "all_gather", "reduce_scatter")), None
        )
        if other:
            yield f"the bytes of {other.name} in group {other.group} depend on the number of ranks"
        yield from self._unsharded(one)

    def _unsharded(self, one: RecordedRank) -> Iterator[str]:
        """Yield the reasons why gathers and scatters are not those of sharded parameters."""
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
                yield f"{call.name} of {call.nbytes} bytes in group {group} may grow with the number of ranks"
            if elements(call) % (count // self.along.size * self.size):
                yield f"{call.name} of {call.nbytes} bytes in group {group} would need padding there"
        whole = sum(
            elements(action)
            for entry in one.entries
            if isinstance(action := one.actions[entry.action], GroupCall)
            and action.collective == "reduce_scatter" and action.group == group
        )  # fmt: skip
        held = one.held.get("parameters", 0) * count
        if not any(isclose(held, whole * nbytes, rel_tol=ROUNDING) for nbytes in PARAMETER):
            yield "its reduce-scatters are not the gradients of all parameters of a rank"

    def _sharing(self, one: RecordedRank) -> list[GroupCall]:
        """Return the distinct gathers and scatters of groups that grow, without statistics."""
        return [
            call for call in self._grown(one) if call.collective not in SAME and not self._is_of_numbers(call)
        ]

    def _grown(self, one: RecordedRank) -> list[GroupCall]:
        """Return the distinct calls of groups that grow."""
        calls = (action for action in one.actions if isinstance(action, GroupCall))
        return [call for call in calls if call.group in self._counts]

    def _is_of_numbers(self, call: GroupCall) -> bool:
        """Return whether a call gathers a few statistics of each rank; the result grows with the ranks."""
        return call.collective == "all_gather" and call.nbytes <= NUMBERS * self._counts.get(call.group, 0)
