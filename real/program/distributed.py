"""torch.distributed by numbers of bytes: what a recorded job is written for, really carried out.

It has the names of `sim.program.distributed.Distributed`; each call makes tensors of that many bytes and
hands them to ``torch.distributed``. Computing is sleeping.
"""

import time
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from sim.program import recorder
from sim.program.mesh import DeviceMesh


class RealDistributed:
    """The default process group of this process."""

    P2POp = recorder.P2POp
    ReduceOp = dist.ReduceOp
    GroupMember = dist.GroupMember
    group = dist.group

    def __getattr__(self, name: str) -> Any:
        return getattr(dist, name)

    @property
    def WORLD(self) -> Any:  # noqa: N802
        """The group of all ranks."""
        return dist.group.WORLD

    def compute(self, seconds: float, name: str = "compute") -> None:
        """Sleep."""
        time.sleep(seconds)

    def synchronize(self) -> None:
        """Nothing: Gloo's waits are the host's."""

    def init_device_mesh(
        self,
        device_type: str,
        mesh_shape: Sequence[int],
        *,
        mesh_dim_names: Sequence[str] | None = None,
        **_: Any,
    ) -> DeviceMesh:
        """The same mesh, of real groups."""
        return DeviceMesh(self, tuple(mesh_shape), tuple(mesh_dim_names or ()))

    def all_reduce(self, nbytes: int, op: Any = "sum", group: Any = None, async_op: bool = False) -> Any:
        """Of a tensor of so many bytes."""
        return dist.all_reduce(_tensor(nbytes), _OPS.get(op, op), group, async_op)

    def broadcast(
        self, nbytes: int, src: int | None = None, group: Any = None, async_op: bool = False, **k: Any
    ) -> Any:
        """Of a tensor of so many bytes."""
        return dist.broadcast(_tensor(nbytes), src, group, async_op, **k)

    def reduce(
        self,
        nbytes: int,
        dst: int | None = None,
        op: Any = "sum",
        group: Any = None,
        async_op: bool = False,
        **k: Any,
    ) -> Any:
        """Of a tensor of so many bytes."""
        return dist.reduce(_tensor(nbytes), dst, _OPS.get(op, op), group, async_op, **k)

    def all_gather(self, nbytes: int, group: Any = None, async_op: bool = False) -> Any:
        """Of so many bytes of each rank."""
        count = dist.get_world_size(group)
        return dist.all_gather([_tensor(nbytes) for _ in range(count)], _tensor(nbytes), group, async_op)

    def all_gather_into_tensor(self, nbytes: int, group: Any = None, async_op: bool = False) -> Any:
        """Of so many bytes of each rank."""
        count = dist.get_world_size(group)
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return gather(_tensor(nbytes * max(count, 1)), _tensor(nbytes), group, async_op)

    def gather(
        self, nbytes: int, dst: int | None = None, group: Any = None, async_op: bool = False, **k: Any
    ) -> Any:
        """Of so many bytes of each rank."""
        parts = [_tensor(nbytes) for _ in range(dist.get_world_size(group))]
        root = k.get(
            "group_dst", dst if group is None else dist.get_group_rank(group, dst) if dst is not None else 0
        )
        return dist.gather(
            _tensor(nbytes), parts if dist.get_rank(group) == (root or 0) else None, dst, group, async_op, **k
        )

    def scatter(
        self, nbytes: int, src: int | None = None, group: Any = None, async_op: bool = False, **k: Any
    ) -> Any:
        """Of so many bytes to each rank."""
        parts = [_tensor(nbytes) for _ in range(dist.get_world_size(group))]
        root = k.get(
            "group_src", src if group is None else dist.get_group_rank(group, src) if src is not None else 0
        )
        return dist.scatter(
            _tensor(nbytes), parts if dist.get_rank(group) == (root or 0) else None, src, group, async_op, **k
        )

    def reduce_scatter(self, nbytes: int, op: Any = "sum", group: Any = None, async_op: bool = False) -> Any:
        """Of so many bytes, a part to each rank."""
        count = max(dist.get_world_size(group), 1)
        parts = [_tensor(nbytes // count) for _ in range(count)]
        return dist.reduce_scatter(_tensor(nbytes // count), parts, _OPS.get(op, op), group, async_op)

    def reduce_scatter_tensor(
        self, nbytes: int, op: Any = "sum", group: Any = None, async_op: bool = False
    ) -> Any:
        """Of so many bytes, a part to each rank."""
        count = max(dist.get_world_size(group), 1)
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return scatter(
            _tensor(nbytes // count), _tensor(nbytes // count * count), _OPS.get(op, op), group, async_op
        )

    def all_to_all(self, nbytes: int, group: Any = None, async_op: bool = False) -> Any:
        """Of so many bytes of each rank, a part to each."""
        return self.all_to_all_single(nbytes, group, async_op)

    def all_to_all_single(self, nbytes: int, group: Any = None, async_op: bool = False) -> Any:
        """Of so many bytes of each rank, a part to each."""
        return dist.all_to_all_single(_tensor(nbytes), _tensor(nbytes), group=group, async_op=async_op)

    def send(self, nbytes: int, dst: int, group: Any = None, tag: int = 0) -> None:
        """A tensor of so many bytes."""
        dist.send(_tensor(nbytes), dst, group, tag)

    def recv(self, nbytes: int, src: int | None = None, group: Any = None, tag: int = 0) -> None:
        """Into a tensor of so many bytes."""
        dist.recv(_tensor(nbytes), src, group, tag)

    def isend(self, nbytes: int, dst: int, group: Any = None, tag: int = 0) -> Any:
        """A tensor of so many bytes."""
        return dist.isend(_tensor(nbytes), dst, group, tag)

    def irecv(self, nbytes: int, src: int | None = None, group: Any = None, tag: int = 0) -> Any:
        """Into a tensor of so many bytes."""
        return dist.irecv(_tensor(nbytes), src, group, tag)

    def batch_isend_irecv(self, p2p_op_list: Sequence[recorder.P2POp]) -> Any:
        """Messages at once."""
        return dist.batch_isend_irecv(
            [
                dist.P2POp(getattr(dist, one.op.__name__), _tensor(one.nbytes), one.peer, one.group, one.tag)
                for one in p2p_op_list
            ]
        )

    def all_gather_object(self, nbytes: int, group: Any = None) -> None:
        """Of an object that takes so many bytes."""
        dist.all_gather_object([None] * dist.get_world_size(group), bytes(nbytes), group)

    def gather_object(self, nbytes: int, dst: int | None = None, group: Any = None, **k: Any) -> None:
        """Of an object that takes so many bytes."""
        here = dist.get_rank(group) == (dst or 0)
        dist.gather_object(
            bytes(nbytes), [None] * dist.get_world_size(group) if here else None, dst, group, **k
        )

    def broadcast_object_list(self, nbytes: int, src: int | None = None, group: Any = None, **k: Any) -> None:
        """Of an object that takes so many bytes."""
        dist.broadcast_object_list([bytes(nbytes)], src, group, **k)

    def scatter_object_list(self, nbytes: int, src: int | None = None, group: Any = None, **k: Any) -> None:
        """Of objects that take so many bytes."""
        parts = [bytes(nbytes) for _ in range(dist.get_world_size(group))]
        dist.scatter_object_list(
            [None], parts if dist.get_rank(group) == (src or 0) else None, src, group, **k
        )

    def send_object_list(self, nbytes: int, dst: int, group: Any = None) -> None:
        """An object that takes so many bytes."""
        dist.send_object_list([bytes(nbytes)], dst, group)

    def recv_object_list(self, nbytes: int, src: int, group: Any = None) -> None:
        """An object that takes so many bytes."""
        dist.recv_object_list([None], src, group)


_OPS = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.AVG,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
}


def _tensor(nbytes: int) -> torch.Tensor:
    if nbytes % 4:
        return torch.zeros(nbytes, dtype=torch.uint8)
    return torch.zeros(nbytes // 4, dtype=torch.float32)
