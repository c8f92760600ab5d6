"""Collectives and messages of Python objects, between recorded ranks.

Who gathers objects has those of all ranks recorded with it; in a large job others have what this one has.
"""

from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ringside.real.record.calls import mailbox
from ringside.real.record.calls.groups import name_of
from ringside.real.record.roles import FEW
from ringside.real.record.script.patches import everywhere
from ringside.real.record.script.tape import TAPE


def install() -> None:
    """Replace the functions of torch.distributed."""
    for one in (
        all_gather_object, broadcast_object_list, gather_object, recv_object_list, scatter_object_list,
        send_object_list,
    ):  # fmt: skip
        everywhere(getattr(dist, one.__name__), one)


def _name(group: Any) -> str:
    return f"objects-{name_of(group or c10d._get_default_group())}"


def _global(group: Any, rank: int | None, group_rank: int | None) -> int:
    if rank is not None:
        return rank
    return dist.get_global_rank(group or c10d._get_default_group(), group_rank or 0)


def broadcast_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
    group_src: int | None = None,
) -> None:  # fmt: skip
    """Have the objects of the root."""
    root = _global(group, src, group_src)
    if root == dist.get_rank():
        mailbox.publish(_name(group), list(object_list))
    else:
        object_list[:] = mailbox.read(root, _name(group))


def scatter_object_list(
    scatter_object_output_list: list[Any], scatter_object_input_list: Any = None, src: int | None = None,
    group: Any = None, group_src: int | None = None,
) -> None:  # fmt: skip
    """Have this rank's object of those of the root."""
    root = _global(group, src, group_src)
    if root == dist.get_rank():
        mailbox.publish(_name(group), list(scatter_object_input_list))
        objects = scatter_object_input_list
    else:
        objects = mailbox.read(root, _name(group))
    scatter_object_output_list[0] = objects[dist.get_rank(group)]


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Have each rank's object."""
    ranks = dist.get_process_group_ranks(group or c10d._get_default_group())
    if _are_many():
        object_list[:] = [obj] * len(ranks)
        return
    mailbox.publish(_name(group), obj)
    own = dist.get_rank()
    object_list[:] = [obj if rank == own else mailbox.read(rank, _name(group)) for rank in ranks]


def gather_object(
    obj: Any, object_gather_list: Any = None, dst: int | None = None, group: Any = None,
    group_dst: int | None = None,
) -> None:  # fmt: skip
    """Have each rank's object, at the root."""
    root, own = _global(group, dst, group_dst), dist.get_rank()
    ranks = dist.get_process_group_ranks(group or c10d._get_default_group())
    if own != root:
        mailbox.send(root, _name(group), obj)
    elif _are_many():
        object_gather_list[:] = [obj] * len(ranks)
    else:
        expected = [None if rank == own else mailbox.expect(rank, _name(group)) for rank in ranks]
        object_gather_list[:] = [obj if one is None else one() for one in expected]


def _are_many() -> bool:
    """Return whether a job has too many ranks to record each; note that they are taken to have the same."""
    is_large = dist.get_world_size() > FEW
    if is_large:
        TAPE.notes["objects that ranks gather are taken to be the same on all"] += 1
    return is_large


def send_object_list(
    object_list: list[Any], dst: int | None = None, group: Any = None, device: Any = None,
    group_dst: int | None = None, use_batch: bool = False,
) -> None:  # fmt: skip
    """Send objects to a rank."""
    mailbox.send(_global(group, dst, group_dst), _name(group), list(object_list))


def recv_object_list(
    object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
    group_src: int | None = None, use_batch: bool = False,
) -> int:  # fmt: skip
    """Wait for objects of a rank, and return it."""
    source = _global(group, src, group_src)
    object_list[:] = mailbox.expect(source, _name(group))()
    return source
