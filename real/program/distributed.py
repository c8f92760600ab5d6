"""torch.distributed by byte counts: the interface of a recorded job, really carried out.

It has the names of `ringside.sim.program.record.distributed.Distributed`; each call hands tensors of that
size to ``torch.distributed``. They hold zeros and are reused, even concurrently: their values do not matter.
"""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from ringside.sim.program.record import recorder
from ringside.sim.program.record.mesh import DeviceMesh


class RealDistributed:
    """The default process group of this process; ``compute`` works for the given number of seconds.

    After `again`, groups are reused in the order of their creation: creating one takes longer than many jobs.
    """

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

    def __init__(
        self, compute: Callable[[float], None] = time.sleep, device: str = "cpu", timeout_s: float = 600.0
    ) -> None:
        self._compute = compute
        self.device = torch.device(device)
        self._timeout = timedelta(seconds=timeout_s)
        self._made: list[tuple[list[int] | None, Any]] = []
        self._next = 0
        self._rooms: dict[tuple[int, int], torch.Tensor] = {}

    def again(self) -> None:
        """Start the job again."""
        self._next = 0

    def compute(self, seconds: float, name: str = "compute") -> None:
        """Work for ``seconds``."""
        self._compute(seconds)

    def synchronize(self) -> None:
        """Wait for the device; Gloo's waits are the host's own."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def new_group(self, ranks: Sequence[int] | None = None, **k: Any) -> Any:
        """Create a group of some ranks, with a timeout."""
        members = None if ranks is None else list(ranks)
        if self._next == len(self._made):
            self._made.append((members, dist.new_group(members, timeout=self._timeout, **k)))
        before, group = self._made[self._next]
        if before != members:
            raise RuntimeError(f"new_group of ranks {members}, but the previous run created {before}")
        self._next += 1
        return group

    def new_subgroups_by_enumeration(self, ranks_per_subgroup_list: Sequence[Sequence[int]], **_: Any) -> Any:
        """Create a group per list of ranks; return this rank's own, and all of them."""
        made = [self.new_group(list(ranks)) for ranks in ranks_per_subgroup_list]
        own = next((group for group in made if group is not dist.GroupMember.NON_GROUP_MEMBER), None)
        return own, made

    def new_subgroups(self, group_size: int, **_: Any) -> Any:
        """Create groups of ``group_size`` neighbours; return this rank's own, and all of them."""
        ranks = dist.get_world_size()
        return self.new_subgroups_by_enumeration(
            [range(first, first + group_size) for first in range(0, ranks, group_size)]
        )

    def init_device_mesh(
        self,
        device_type: str,
        mesh_shape: Sequence[int],
        *,
        mesh_dim_names: Sequence[str] | None = None,
        **_: Any,
    ) -> DeviceMesh:
        """Create the same mesh, of real groups."""
        return DeviceMesh(self, tuple(mesh_shape), tuple(mesh_dim_names or ()))

    def all_reduce(self, nbytes: int, op: Any = "sum", group: Any = None, async_op: bool = False) -> Any:
        """Reduce a tensor of ``nbytes`` bytes."""
        return dist.all_reduce(self._tensor(nbytes), _OPS.get(op, op), group, async_op)

    def broadcast(
        self, nbytes: int, src: int | None = None, group: Any = None, async_op: bool = False, **k: Any
    ) -> Any:
        """Broadcast a tensor of ``nbytes`` bytes."""
        return dist.broadcast(self._tensor(nbytes), src, group, async_op, **k)

    def reduce(
        self,
        nbytes: int,
        dst: int | None = None,
        op: Any = "sum",
        group: Any = None,
        async_op: bool = False,
        **k: Any,
    ) -> Any:
        """Reduce a tensor of ``nbytes`` bytes."""
        return dist.reduce(self._tensor(nbytes), dst, _OPS.get(op, op), group, async_op, **k)

    def all_gather(self, nbytes: int, group: Any = None, async_op: bool = False) -> Any:
        """Gather ``nbytes`` bytes of each rank."""
        count = dist.get_world_size(group)
        return dist.all_gather(
            [self._tensor(nbytes, 1 + i) for i in range(count)], self._tensor(nbytes), group, async_op
        )

    def all_gather_into_tensor(self, nbytes: int, group: Any = None, async_op: bool = False) -> Any:
        """Gather ``nbytes`` bytes of each rank."""
        count = dist.get_world_size(group)
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return gather(self._tensor(nbytes * max(count, 1), 1), self._tensor(nbytes), group, async_op)

    def gather(
        self, nbytes: int, dst: int | None = None, group: Any = None, async_op: bool = False, **k: Any
    ) -> Any:
        """Gather ``nbytes`` bytes of each rank."""
        parts = self._parts(nbytes, k.get("group_dst"), dst, group)
        return dist.gather(self._tensor(nbytes), parts, dst, group, async_op, **k)

    def scatter(
        self, nbytes: int, src: int | None = None, group: Any = None, async_op: bool = False, **k: Any
    ) -> Any:
        """Scatter ``nbytes`` bytes to each rank."""
        parts = self._parts(nbytes, k.get("group_src"), src, group)
        return dist.scatter(self._tensor(nbytes), parts, src, group, async_op, **k)

    def reduce_scatter(self, nbytes: int, op: Any = "sum", group: Any = None, async_op: bool = False) -> Any:
        """Reduce ``nbytes`` bytes, a part to each rank."""
        count = max(dist.get_world_size(group), 1)
        parts = [self._tensor(nbytes // count, 1 + i) for i in range(count)]
        return dist.reduce_scatter(self._tensor(nbytes // count), parts, _OPS.get(op, op), group, async_op)

    def reduce_scatter_tensor(
        self, nbytes: int, op: Any = "sum", group: Any = None, async_op: bool = False
    ) -> Any:
        """Reduce ``nbytes`` bytes, a part to each rank."""
        count = max(dist.get_world_size(group), 1)
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return scatter(
            self._tensor(nbytes // count),
            self._tensor(nbytes // count * count, 1),
            _OPS.get(op, op),
            group,
            async_op,
        )

    def all_to_all(self, nbytes: int, group: Any = None, async_op: bool = False) -> Any:
        """Exchange ``nbytes`` bytes of each rank, a part to each."""
        return self.all_to_all_single(nbytes, None, None, group, async_op)

    def all_to_all_single(
        self,
        nbytes: int,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        group: Any = None,
        async_op: bool = False,
    ) -> Any:
        """Exchange ``nbytes`` bytes of each rank, a part to each."""
        if output_split_sizes is None:
            nbytes -= nbytes % max(dist.get_world_size(group), 1)
        room = nbytes if output_split_sizes is None else sum(output_split_sizes)
        output, given = (self._tensor(size, own).view(torch.uint8) for own, size in ((1, room), (0, nbytes)))
        splits = (output_split_sizes, input_split_sizes)
        there, here = (None if sizes is None else list(sizes) for sizes in splits)
        return dist.all_to_all_single(output, given, there, here, group, async_op)

    def send(self, nbytes: int, dst: int, group: Any = None, tag: int = 0) -> None:
        """Send a tensor of ``nbytes`` bytes."""
        dist.send(self._tensor(nbytes), dst, group, tag)

    def recv(self, nbytes: int, src: int | None = None, group: Any = None, tag: int = 0) -> None:
        """Receive a tensor of ``nbytes`` bytes."""
        dist.recv(self._tensor(nbytes, 1), src, group, tag)

    def isend(self, nbytes: int, dst: int, group: Any = None, tag: int = 0) -> Any:
        """Send a tensor of ``nbytes`` bytes."""
        return dist.isend(self._tensor(nbytes), dst, group, tag)

    def irecv(self, nbytes: int, src: int | None = None, group: Any = None, tag: int = 0) -> Any:
        """Receive a tensor of ``nbytes`` bytes."""
        return dist.irecv(self._tensor(nbytes, 1), src, group, tag)

    def batch_isend_irecv(self, p2p_op_list: Sequence[recorder.P2POp]) -> Any:
        """Start several messages at once."""
        return dist.batch_isend_irecv(
            [
                dist.P2POp(
                    getattr(dist, one.op.__name__),
                    self._tensor(one.nbytes, one.op.__name__ == "irecv"),
                    one.peer,
                    one.group,
                    one.tag,
                )
                for one in p2p_op_list
            ]
        )

    def all_gather_object(self, nbytes: int, group: Any = None) -> None:
        """Gather an object that takes ``nbytes`` bytes."""
        dist.all_gather_object([None] * dist.get_world_size(group), bytes(nbytes), group)

    def gather_object(self, nbytes: int, dst: int | None = None, group: Any = None, **k: Any) -> None:
        """Gather an object that takes ``nbytes`` bytes."""
        here = dist.get_rank(group) == (dst or 0)
        dist.gather_object(
            bytes(nbytes), [None] * dist.get_world_size(group) if here else None, dst, group, **k
        )

    def broadcast_object_list(self, nbytes: int, src: int | None = None, group: Any = None, **k: Any) -> None:
        """Broadcast an object that takes ``nbytes`` bytes."""
        dist.broadcast_object_list([bytes(nbytes)], src, group, **k)

    def scatter_object_list(self, nbytes: int, src: int | None = None, group: Any = None, **k: Any) -> None:
        """Scatter objects that take ``nbytes`` bytes."""
        parts = [bytes(nbytes) for _ in range(dist.get_world_size(group))]
        dist.scatter_object_list(
            [None], parts if dist.get_rank(group) == (src or 0) else None, src, group, **k
        )

    def send_object_list(self, nbytes: int, dst: int, group: Any = None) -> None:
        """Send an object that takes ``nbytes`` bytes."""
        dist.send_object_list([bytes(nbytes)], dst, group)

    def recv_object_list(self, nbytes: int, src: int, group: Any = None) -> None:
        """Receive an object that takes ``nbytes`` bytes."""
        dist.recv_object_list([None], src, group)

    def _parts(
        self, nbytes: int, in_group: int | None, root: int | None, group: Any
    ) -> list[torch.Tensor] | None:
        """Return a tensor for each rank on the root, a rank of the group or of the job; else None."""
        if in_group is None and root is not None:
            in_group = root if group is None else dist.get_group_rank(group, root)
        if dist.get_rank(group) != (in_group or 0):
            return None
        return [self._tensor(nbytes, 1 + i) for i in range(dist.get_world_size(group))]

    def _tensor(self, nbytes: int, room: int = 0) -> torch.Tensor:
        """Return a tensor of ``nbytes`` bytes; ``room`` separates input from output tensors."""
        key = (nbytes, int(room))
        if key not in self._rooms:
            count, dtype = (nbytes, torch.uint8) if nbytes % 4 else (nbytes // 4, torch.float32)
            # filled, so that its pages exist
            self._rooms[key] = torch.empty(count, dtype=dtype, device=self.device).zero_()
        return self._rooms[key]


_OPS = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.AVG,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
}
