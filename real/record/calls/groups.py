"""Process groups of the recorded job: those of this rank, and the other ranks' groups in each partition.

Every rank makes all groups in the same order, so their numbers and names are the same on all. Groups that
one line makes with one description and backend, without a common rank, are parts of one partition; a loop may
make groups of others between them.
"""

import os
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from ringside.real.record.script import places
from ringside.real.record.script.patches import everywhere
from ringside.real.record.script.refusal import refusal
from ringside.sim.recorded.job import RecordedGroup

WORLD = "world"

NCCL = "nccl"


@dataclass
class _Partition:
    """Groups that were made together, by one line of the script."""

    name: str
    parts: list[tuple[int, ...]] = field(default_factory=list)
    ranks: set[int] = field(default_factory=set)

    def add(self, ranks: tuple[int, ...]) -> None:
        self.parts.append(ranks)
        self.ranks.update(ranks)


_partitions: list[_Partition] = []
_latest: dict[tuple[str | None, str | None, str | None], _Partition] = {}
"""The last partition by the line that made it, its description and its backend."""
_names: dict[Any, str] = {}
_backends: dict[Any, str] = {}
_environment: dict[str, str] = {}
"""The environment in which the script was started; some scripts write over theirs."""
_new_group = dist.new_group
_init = dist.init_process_group


def name_of(group: dist.ProcessGroup) -> str:
    """Return the group's name, the same on all ranks."""
    return _names.get(group, WORLD)


def recorded() -> tuple[RecordedGroup, ...]:
    """Return all groups of the job, in the order in which they were made."""
    return tuple(RecordedGroup(one.name, tuple(one.parts)) for one in _partitions)


def install() -> None:
    """Replace the functions that create process groups or return their backend."""
    _environment.update(os.environ)
    everywhere(dist.init_process_group, _init_process_group)
    everywhere(dist.new_group, _make)
    everywhere(dist.split_group, _split)
    everywhere(dist.get_backend, lambda group=None: _backends.get(group or _default(), NCCL))
    everywhere(dist.is_nccl_available, lambda: True)
    everywhere(dist.distributed_c10d._set_pg_timeout, lambda *_, **__: None)


def _default() -> Any:
    return dist.distributed_c10d._get_default_group()


def _init_process_group(
    backend: Any = None, init_method: Any = None, timeout: Any = None, world_size: int = -1, rank: int = -1,
    *_: Any, **__: Any,
) -> None:  # fmt: skip
    given, ranks = world_size, _recorded("WORLD_SIZE")
    if given not in (-1, None, ranks):
        raise refusal(f"the script makes a group of {given} ranks, {ranks} are recorded", f"record {given}")
    if rank not in (-1, None, _recorded("RANK")):
        raise refusal(
            f"the script calls itself rank {rank}, it is recorded as {_recorded('RANK')}",
            "have it read RANK, or record one node",
        )
    rank = _recorded("RANK")
    _init("fake", rank=rank, world_size=ranks, store=FakeStore())
    _backends[_default()] = _shown(backend)
    if not _partitions:
        _partitions.append(_Partition(WORLD))
        _partitions[0].add(tuple(range(ranks)))


def _recorded(name: str) -> int:
    return int(_environment[name])


def _shown(backend: Any) -> str:
    text = str(backend) if isinstance(backend, str) else NCCL
    return NCCL if NCCL in text or "cuda" in text else text


def _make(
    ranks: Any = None, timeout: Any = None, backend: Any = None, pg_options: Any = None,
    use_local_synchronization: bool = False, group_desc: str | None = None, **_: Any,
) -> Any:  # fmt: skip
    members = tuple(sorted(ranks)) if ranks is not None else tuple(range(dist.get_world_size()))
    key = places.caller(), group_desc, backend
    partition = _latest.get(key)
    if partition is None or not partition.ranks.isdisjoint(members):
        partition = _latest[key] = _open(group_desc)
    partition.add(members)
    return _join(members, partition.name, group_desc, backend)


def _split(
    parent_pg: Any = None, split_ranks: Any = None, timeout: Any = None, pg_options: Any = None,
    group_desc: str | None = None, **_: Any,
) -> Any:  # fmt: skip
    parents = dist.get_process_group_ranks(parent_pg or _default())
    partition, mine = _open(group_desc), None
    for part in split_ranks:
        members = tuple(parents[one] for one in part)
        partition.add(members)
        if dist.get_rank() in members:
            mine = members
    return None if mine is None else _join(mine, partition.name, group_desc, None)


def _open(description: str | None) -> _Partition:
    """Begin a partition."""
    name = description if description and description != "undefined" else f"group{len(_partitions)}"
    if any(one.name == name for one in _partitions):
        name = f"{name}.{len(_partitions)}"
    _partitions.append(_Partition(name))
    return _partitions[-1]


def _join(members: tuple[int, ...], name: str, description: str | None, backend: Any) -> Any:
    """Return the group of some ranks; no group of others is made, which a large job has thousands of."""
    if _recorded("RANK") not in members:
        return dist.GroupMember.NON_GROUP_MEMBER
    group = _new_group(list(members), backend="fake", group_desc=description)
    _names[group] = name
    _backends[group] = _backends[_default()] if backend is None else _shown(backend)
    return group
