"""Record a job: its first rank, those that do otherwise, and one more to check."""

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringside.real.launch.follow import check_torch
from ringside.real.record.part import RankOrder, RankPart
from ringside.real.record.processes import RankProcesses, RecordingError
from ringside.real.record.roles import (
    FEW,
    MOST_ROLES,
    difference,
    has_course_of,
    has_messages,
    roles,
    with_alike,
)
from ringside.sim.recorded.job import RecordedJob

Alike = dict[int, tuple[int, ...]]
"""The ranks of each role, by the recorded one that stands for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptJob:
    """A script, or module, with its arguments, as a job of ``ranks`` ranks.

    ``samples`` of a step are those of all ranks; None are those that its loaders say. With
    ``every_rank`` none stands for another.
    """

    script: str
    is_module: bool
    arguments: tuple[str, ...]
    ranks: int
    per_node: int
    steps: int
    timeout_s: float
    with_source: bool
    shims: tuple[str, ...] = ()
    samples: int | None = None
    without: tuple[str, ...] = ()
    every_rank: bool = False

    def order(self, folder: Path, rank: int) -> RankOrder:
        """Return the order of a rank."""
        return RankOrder(
            script=self.script, is_module=self.is_module, arguments=self.arguments, rank=rank,
            ranks=self.ranks, per_node=self.per_node, steps=self.steps, with_source=self.with_source,
            mail=str(folder / "mail"), result=str(folder / f"rank{rank}.json"), shims=self.shims,
            without=self.without,
        )  # fmt: skip


def record_job(job: ScriptJob, on_rank: Callable[[int], None] = lambda _: None) -> RecordedJob:
    """Record the job; call ``on_rank`` after each rank.

    Raise RecordingError if it cannot be recorded, UnfinishedError if that does not finish.
    """
    check_torch()
    with tempfile.TemporaryDirectory(prefix="ringside-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "mail").mkdir()
        with RankProcesses(lambda rank: job.order(folder, rank), folder, job.timeout_s, on_rank) as processes:
            alike = _record_roles(job, processes)
            return _assembled(job, processes.parts, alike)


def _record_roles(job: ScriptJob, processes: RankProcesses) -> Alike:
    """Record a rank of each role and check one more; return the ranks of each."""
    if job.every_rank:
        return _record_all(job, processes, f"{job.ranks} ranks to be recorded one by one")
    processes.record([0])
    while True:
        alike = roles(processes.parts, job.ranks)
        if alike is None:
            return _record_all(job, processes, "its messages do not go through groups of several ranks")
        if len(alike) > MOST_ROLES:
            raise RecordingError(
                f"the job has {len(alike)} roles, at most {MOST_ROLES} are recorded; record fewer ranks"
            )
        if alike.keys() <= processes.parts.keys():
            return _checked(job, processes, alike)
        processes.record(alike.keys() - processes.parts.keys(), like=_like(job, processes, 0))


def _like(job: ScriptJob, processes: RankProcesses, rank: int) -> RankPart | None:
    """Return a rank's part if others need a step less than it, None if they are to be recorded whole.

    They are in a small job, for themselves, and with messages, for their peers.
    """
    part = processes.parts[rank]
    return part if job.ranks > FEW and not has_messages(part) else None


def _checked(job: ScriptJob, processes: RankProcesses, alike: Alike) -> Alike:
    """Return the roles if the largest one's last rank does as its first: roles by size begin where sizes do.

    If the first rank does other things than the first of that role, not in other sizes, its role is checked
    as well: it may be the one that logs.
    """
    largest = max(alike, key=lambda first: (len(alike[first]), alike[first][-1]))
    alike = _checked_role(job, processes, alike, largest)
    first = processes.parts[0]
    if has_messages(first) or has_course_of(first, processes.parts[largest]):
        return alike
    return _checked_role(job, processes, alike, 0)


def _checked_role(job: ScriptJob, processes: RankProcesses, alike: Alike, first: int) -> Alike:
    """Return the roles if a role's last rank does as its first; else set that apart."""
    own = alike[first]
    if len(own) == 1:
        return alike
    last = own[-1]
    processes.record([last], like=_like(job, processes, first))
    differs = difference(processes.parts[first], processes.parts[last])
    if not differs:
        return alike
    second = own[1]
    processes.record([second])
    if not difference(processes.parts[second], processes.parts[last]):
        return {**alike, first: (first,), second: own[1:]}
    return _record_all(job, processes, f"rank {last} does not as rank {first}: {differs}")


def _record_all(job: ScriptJob, processes: RankProcesses, why: str) -> Alike:
    if job.ranks > FEW:
        raise RecordingError(f"{why}; record at most {FEW} ranks, which are then all recorded")
    processes.record(range(job.ranks))
    return {rank: (rank,) for rank in range(job.ranks)}


def _assembled(job: ScriptJob, parts: dict[int, RankPart], alike: Alike) -> RecordedJob:
    recorded = []
    for rank, own in sorted(alike.items()):
        part = parts[rank].recorded
        assert part is not None
        if not part.entries:
            raise RecordingError(
                f"rank {rank} asks nothing of a GPU in its steps; have the script use cuda, which it finds"
            )
        recorded.append(with_alike(part, own))
    groups = {one.name: one for part in parts.values() for one in part.groups}
    notes = dict.fromkeys(note for part in parts.values() for note in part.notes)
    checks = sorted(parts.keys() - alike.keys())
    if checks:
        first, last = (", ".join(map(str, some)) for some in (sorted(alike), checks))
        notes[f"recorded ranks: {first}; checked against them: {last}"] = None
    return RecordedJob(
        command=(os.path.basename(job.script), *_without_folders(job.arguments)),
        ranks=job.ranks,
        per_node=job.per_node,
        torch=parts[0].torch,
        groups=tuple(groups.values()),
        recorded=tuple(recorded),
        notes=tuple(notes),
        samples=job.samples or _samples(parts),
    )


def _samples(parts: dict[int, RankPart]) -> int | None:
    """Return the samples of a step, if all ranks that load say the same."""
    counts = {one.samples for one in parts.values() if one.samples is not None}
    return counts.pop() if len(counts) == 1 else None


def _without_folders(arguments: Sequence[str]) -> list[str]:
    """Return arguments without folders of paths: the file is for others too."""
    short = []
    for one in arguments:
        name, equals, value = one.rpartition("=")
        short.append(f"{name}{equals}{os.path.basename(value.rstrip(os.sep)) if os.sep in value else value}")
    return short
