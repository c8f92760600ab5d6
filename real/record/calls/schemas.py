"""PyTorch's operators of collectives and messages, and what each moves."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._pytree import tree_leaves

from ringside.real.record.calls import groups
from ringside.real.record.rules.operators import by_operator
from ringside.sim.recorded.job import GroupCall, PeerMessage


@dataclass(frozen=True, slots=True)
class CallSchema:
    """The kind of collective, torch.distributed's name, and the argument whose bytes count.

    ``is_share`` says that the argument is one rank's share of the bytes.
    """

    collective: str
    name: str
    argument: str
    is_share: bool = False


CALLS = {
    "c10d.allreduce_": CallSchema("all_reduce", "all_reduce", "tensors"),
    "c10d.allreduce_coalesced_": CallSchema("all_reduce", "all_reduce_coalesced", "tensors"),
    "c10d._allgather_base_": CallSchema("all_gather", "all_gather_into_tensor", "output_tensor"),
    "c10d.allgather_": CallSchema("all_gather", "all_gather", "output_tensors"),
    "c10d.allgather_coalesced_": CallSchema("all_gather", "all_gather_coalesced", "output_lists"),
    "c10d.allgather_into_tensor_coalesced_": CallSchema(
        "all_gather", "all_gather_into_tensor_coalesced", "outputs"
    ),
    "c10d._reduce_scatter_base_": CallSchema("reduce_scatter", "reduce_scatter_tensor", "input_tensor"),
    "c10d.reduce_scatter_": CallSchema("reduce_scatter", "reduce_scatter", "input_tensors"),
    "c10d.reduce_scatter_tensor_coalesced_": CallSchema(
        "reduce_scatter", "reduce_scatter_tensor_coalesced", "inputs"
    ),
    "c10d.broadcast_": CallSchema("broadcast", "broadcast", "tensors"),
    "c10d.reduce_": CallSchema("reduce", "reduce", "tensors"),
    "c10d.gather_": CallSchema("gather", "gather", "input_tensors", is_share=True),
    "c10d.scatter_": CallSchema("scatter", "scatter", "output_tensors", is_share=True),
    "c10d.alltoall_": CallSchema("all_to_all", "all_to_all", "input_tensors"),
    "c10d.alltoall_base_": CallSchema("all_to_all", "all_to_all_single", "input"),
    "c10d.barrier": CallSchema("all_reduce", "barrier", "tensor"),
    "_c10d_functional.all_reduce": CallSchema("all_reduce", "all_reduce", "input"),
    "_c10d_functional.all_reduce_": CallSchema("all_reduce", "all_reduce", "input"),
    "_c10d_functional.all_reduce_coalesced": CallSchema("all_reduce", "all_reduce_coalesced", "inputs"),
    "_c10d_functional.all_reduce_coalesced_": CallSchema("all_reduce", "all_reduce_coalesced", "inputs"),
    "_c10d_functional.all_gather_into_tensor": CallSchema(
        "all_gather", "all_gather_into_tensor", "input", is_share=True
    ),
    "_c10d_functional.all_gather_into_tensor_out": CallSchema(
        "all_gather", "all_gather_into_tensor", "input", is_share=True
    ),
    "_c10d_functional.all_gather_into_tensor_coalesced": CallSchema(
        "all_gather", "all_gather_into_tensor_coalesced", "inputs", is_share=True
    ),
    "_c10d_functional.reduce_scatter_tensor": CallSchema("reduce_scatter", "reduce_scatter_tensor", "input"),
    "_c10d_functional.reduce_scatter_tensor_out": CallSchema(
        "reduce_scatter", "reduce_scatter_tensor", "input"
    ),
    "_c10d_functional.reduce_scatter_tensor_coalesced": CallSchema(
        "reduce_scatter", "reduce_scatter_tensor_coalesced", "inputs"
    ),
    "_c10d_functional.all_to_all_single": CallSchema("all_to_all", "all_to_all_single", "input"),
    "_c10d_functional.broadcast": CallSchema("broadcast", "broadcast", "input"),
    "_c10d_functional.broadcast_": CallSchema("broadcast", "broadcast", "input"),
    "_dtensor.shard_dim_alltoall": CallSchema("all_to_all", "all_to_all_single", "input"),
}
"""Collectives by PyTorch's operator."""

MESSAGES = {"c10d.send": True, "c10d.recv_": False}
"""Whether an operator of a message sends."""

_ROOTS = ("root_rank", "src")

_REDOPS = {"SUM": "sum", "AVG": "avg", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "PREMUL_SUM": "mulsum"}

_BARRIER_BYTES = 4
"""``ProcessGroupNCCL::barrier`` reduces one float."""


@dataclass(frozen=True, slots=True)
class ParsedCall:
    """A call: its action, the group, its arguments by name, and whether the caller gets a Work."""

    action: GroupCall | PeerMessage
    group: dist.ProcessGroup
    arguments: dict[str, Any]
    returns_work: bool


@by_operator
def is_call(func: Any) -> bool:
    """Return whether an operator is one of a process group."""
    names = {one.name for one in func._schema.arguments}
    return not names.isdisjoint(("process_group", "group_name")) and func.namespace != "c10d_functional"


def parse(func: Any, args: Any, kwargs: Any, batch: int | None) -> ParsedCall | None:
    """Return the call that an operator is; None for one that is not known."""
    name = str(func._overloadpacket)
    arguments = {one.name: one.default_value for one in func._schema.arguments if one.has_default_value()}
    arguments |= dict(zip((one.name for one in func._schema.arguments), args, strict=False)) | kwargs
    group = _group(arguments)
    ranks = dist.get_process_group_ranks(group)
    if name in MESSAGES:
        is_send = MESSAGES[name]
        message = _message(arguments, group, ranks, batch, is_send=is_send)
        return ParsedCall(message, group, arguments, returns_work=True)
    schema = CALLS.get(name)
    if schema is None:
        return None
    tensors = [one for one in tree_leaves(arguments[schema.argument]) if isinstance(one, torch.Tensor)]
    is_barrier = schema.name == "barrier"
    nbytes = sum(one.numel() * one.element_size() for one in tensors) * (len(ranks) if schema.is_share else 1)
    root = next((arguments[one] for one in _ROOTS if one in arguments), None)
    action = GroupCall(
        group=groups.name_of(group),
        name=schema.name,
        collective=schema.collective,
        nbytes=_BARRIER_BYTES if is_barrier else nbytes,
        dtype="float32" if is_barrier or not tensors else str(tensors[0].dtype)[6:],
        redop=_redop(arguments.get("reduce_op")),
        root=None if root is None else ranks[root],
        waits=func.namespace == "c10d" and not arguments["async_op"],
    )
    return ParsedCall(action, group, arguments, returns_work=func.namespace == "c10d")


def _group(arguments: dict[str, Any]) -> dist.ProcessGroup:
    group: Any = arguments.get("process_group", arguments.get("group_name"))
    if isinstance(group, dist.ProcessGroup):
        return group
    resolve: Any = torch._C._distributed_c10d._resolve_process_group
    own: dist.ProcessGroup = resolve(group) if isinstance(group, str) else dist.ProcessGroup.unbox(group)
    return own


def _message(
    arguments: dict[str, Any], group: Any, ranks: list[int], batch: int | None, *, is_send: bool
) -> PeerMessage:
    tensors = arguments["tensors"]
    return PeerMessage(
        group=groups.name_of(group),
        peer=ranks[arguments["dst" if is_send else "src"]],
        nbytes=sum(one.numel() * one.element_size() for one in tensors),
        is_send=is_send,
        dtype=str(tensors[0].dtype)[6:],
        tag=arguments["tag"],
        batch=batch,
    )


def _redop(given: Any) -> str:
    if given is None:
        return "sum"
    if not isinstance(given, str):
        given = dist.ReduceOp.unbox(given).op.name if hasattr(dist.ReduceOp, "unbox") else "SUM"
    return _REDOPS.get(given.upper(), "sum")
