"""Whether a recorded job makes sense, beyond the types of its fields."""

from collections.abc import Iterator

from ringside.sim.collective import KINDS, REDOPS
from ringside.sim.recorded.job import (
    GroupCall,
    JobFileError,
    Operator,
    PeerMessage,
    RecordedJob,
    RecordedRank,
)
from ringside.sim.recorded.kernels import kernels


def check_job(job: RecordedJob) -> None:
    """Raise JobFileError for the first thing in a job that contradicts another."""
    first = next(_faults(job), None)
    if first:
        raise JobFileError(f"{title(job)}: {first}; write a file that `ringside record` made")


def title(job: RecordedJob) -> str:
    """Return the script's name, or what stands for it."""
    return next((part for part in job.command if part.endswith(".py")), "") or " ".join(job.command) or "job"


def _faults(job: RecordedJob) -> Iterator[str]:
    played = sorted(rank for one in job.recorded for rank in one.alike)
    if len(played) != job.ranks or played != list(range(job.ranks)):
        yield f"recorded ranks stand for {len(played)} ranks, not for each of {job.ranks} once"
    names = [group.name for group in job.groups]
    if len(set(names)) < len(names):
        yield "two groups have one name"
    for group in job.groups:
        members = [rank for part in group.partition for rank in part]
        if len(set(members)) < len(members) or not all(0 <= rank < job.ranks for rank in members):
            yield f"group {group.name} has a rank twice, or one that the job lacks"
    for one in job.recorded:
        if one.rank not in one.alike:
            yield f"rank {one.rank} does not stand for itself"
        yield from _faults_of_rank(one, {group.name: group.of(one.rank) for group in job.groups})


def _faults_of_rank(one: RecordedRank, groups: dict[str, tuple[int, ...] | None]) -> Iterator[str]:
    for action in one.actions:
        if isinstance(action, GroupCall | PeerMessage):
            ranks = groups.get(action.group)
            if ranks is None:
                yield f"rank {one.rank} uses group {action.group}, of which it is no member"
            elif isinstance(action, PeerMessage) and action.peer not in ranks:
                yield f"rank {one.rank} sends {action.nbytes} bytes to rank {action.peer} of {action.group}"
            elif isinstance(action, GroupCall):
                yield from _faults_of_call(one.rank, action, ranks)
        elif isinstance(action, Operator):
            yield from _faults_of_operator(one.rank, action)
    if not one.entries:
        yield f"rank {one.rank} does nothing"
    for number, entry in enumerate(one.entries):
        if not 0 <= entry.action < len(one.actions):
            yield f"entry {number} of rank {one.rank} has action {entry.action} of {len(one.actions)}"
        if entry.place is not None and not 0 <= entry.place < len(one.places):
            yield f"entry {number} of rank {one.rank} has place {entry.place} of {len(one.places)}"
        if not all(0 <= earlier < number for earlier in entry.after):
            yield f"entry {number} of rank {one.rank} waits for one that is not before it"


def _faults_of_call(rank: int, call: GroupCall, ranks: tuple[int, ...]) -> Iterator[str]:
    if call.collective not in KINDS or call.redop not in REDOPS:
        yield f"rank {rank} calls {call.collective} by {call.redop} of {call.nbytes} bytes"
    if call.root is not None and call.root not in ranks:
        yield f"rank {rank} calls {call.name} with root {call.root}, no member of {call.group}"


def _faults_of_operator(rank: int, operator: Operator) -> Iterator[str]:
    try:
        kernels(operator)
    except (ValueError, IndexError):
        yield f"rank {rank} has {operator}, whose tensors are not those of PyTorch's"
