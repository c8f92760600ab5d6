"""A job written as a function of torch.distributed, recorded as a `Program`.

``main(dist)`` is called once for each rank with a `Distributed` in place of ``torch.distributed``: the same
names and arguments, except that a number of bytes stands where torch has a tensor. It is one rank's
contribution: its own part of an all_gather or a gather, all parts of a reduce_scatter or an all_to_all, and
the part it receives from a scatter.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from ringside.sim.program.operations import (
    HOST,
    Compute,
    Group,
    NewGroup,
    Operation,
    Program,
    Recv,
    Send,
    Together,
    Wait,
)
from ringside.sim.program.record import recorder
from ringside.sim.program.record.mesh import DeviceMesh, Groups
from ringside.sim.program.record.recorder import NUMBER, NonMember, RankLostError, Recorder
from ringside.topologies.units import MAX_DURATION

Main = Callable[["Distributed"], Any]


def record(
    main: Main, ranks: int, library: str = "gloo", *, eager: bool = False, name: str = "program"
) -> Program:
    """Return the program of ``main`` on ``ranks`` ranks; each rank's list is made on demand.

    Exceptions of ``main`` propagate, except for calls that torch.distributed itself refuses.
    """
    groups = Groups(ranks, library)

    def operations(rank: int) -> Sequence[Operation]:
        dist = Distributed(groups, rank, eager=eager)
        with suppress(RankLostError):
            main(dist)
            dist.end()
        groups.recorded = dist.recorded
        return dist.recorded

    return Program(name, ranks, operations)


class Distributed(Recorder):
    """One rank's ``torch.distributed``: calls are appended to ``recorded``."""

    Work = recorder.Work
    P2POp = recorder.P2POp
    ReduceOp = recorder.ReduceOp
    GroupMember = NonMember

    # ranks

    @property
    def group(self) -> "Distributed":
        """The namespace of ``dist.group.WORLD``, the group of all ranks."""
        return self

    @property
    def WORLD(self) -> Group:  # noqa: N802
        """The group of all ranks."""
        return self._groups.world

    def get_rank(self, group: Any = None) -> int:
        """Return the rank's number in the group, or -1 outside of it."""
        if isinstance(group, NonMember):
            return -1
        group = self._group(group)
        return group.ranks.index(self._rank) if self._rank in group.members else -1

    def get_world_size(self, group: Any = None) -> int:
        """Return the number of ranks in the group, or -1 outside of it."""
        return -1 if isinstance(group, NonMember) else len(self._group(group).ranks)

    def get_process_group_ranks(self, group: Any = None) -> list[int]:
        """Return the group's ranks, in its order."""
        return list(self._group(group).ranks)

    def get_backend(self, group: Any = None) -> str:
        """Return ``gloo`` or ``nccl``."""
        return self._groups.library

    def is_initialized(self) -> bool:
        """Return True."""
        return True

    # groups

    def new_group(
        self,
        ranks: Sequence[int] | None = None,
        *,
        use_local_synchronization: bool = False,
        group_desc: str | None = None,
        **_: Any,
    ) -> Any:
        """Make a group of some ranks; all ranks of the job call it without ``use_local_synchronization``."""
        own = tuple(range(self._groups.ranks)) if ranks is None else tuple(sorted(ranks))
        if len(set(own)) < len(own) or any(not 0 <= rank < self._groups.ranks for rank in own):
            self._refuse(
                f"new_group of ranks {list(own)}; allowed: each of 0 to {self._groups.ranks - 1} once"
            )
        if use_local_synchronization:
            if self._rank not in own:
                return NonMember()
            group = self._groups.get(f"local {group_desc or list(own)}", own)
        else:
            self._made += 1
            group = self._groups.get(f"{self._made}: {group_desc or list(own)}", own)
            self._post(NewGroup(group), "new_group")
        if self._rank not in own:
            return NonMember()
        if not self._nccl or self._eager:
            self._connect(group)
        return group

    def new_subgroups_by_enumeration(self, ranks_per_subgroup_list: Sequence[Sequence[int]], **_: Any) -> Any:
        """Make a group for each list of ranks; return this rank's own group, and all of them."""
        made = [self.new_group(list(ranks)) for ranks in ranks_per_subgroup_list]
        own = next((group for group in made if isinstance(group, Group)), None)
        return own, made

    def new_subgroups(self, group_size: int | None = None, **_: Any) -> Any:
        """Make groups of ``group_size`` neighbours; return this rank's own group, and all of them."""
        ranks = self._groups.ranks
        if not group_size or ranks % group_size:
            self._refuse(f"new_subgroups of {group_size} of {ranks} ranks; write a size that divides {ranks}")
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
    ) -> Any:
        """Return a mesh of all ranks, with a group along each dimension."""
        return DeviceMesh(self, tuple(mesh_shape), tuple(mesh_dim_names or ()))

    # collectives

    def all_reduce(
        self, nbytes: int, op: str = "sum", group: Any = None, async_op: bool = False
    ) -> recorder.Work | None:
        """Reduce, and give the result to all ranks."""
        return self._call("all_reduce", "all_reduce", nbytes, group, async_op, redop=op)

    def broadcast(
        self, nbytes: int, src: int | None = None, group: Any = None, async_op: bool = False,
        group_src: int | None = None,
    ) -> recorder.Work | None:  # fmt: skip
        """Send the source's data to all ranks."""
        return self._call("broadcast", "broadcast", nbytes, group, async_op, src, group_src)

    def reduce(
        self, nbytes: int, dst: int | None = None, op: str = "sum", group: Any = None, async_op: bool = False,
        group_dst: int | None = None,
    ) -> recorder.Work | None:  # fmt: skip
        """Reduce, and give the result to one rank."""
        return self._call("reduce", "reduce", nbytes, group, async_op, dst, group_dst, redop=op)

    def all_gather(self, nbytes: int, group: Any = None, async_op: bool = False) -> recorder.Work | None:
        """Give every rank's part to all ranks."""
        return self._call("all_gather", "all_gather", nbytes, group, async_op)

    def all_gather_into_tensor(
        self, nbytes: int, group: Any = None, async_op: bool = False
    ) -> recorder.Work | None:
        """Give every rank's part to all ranks."""
        return self._call("all_gather_into_tensor", "all_gather", nbytes, group, async_op)

    def gather(
        self, nbytes: int, dst: int | None = None, group: Any = None, async_op: bool = False,
        group_dst: int | None = None,
    ) -> recorder.Work | None:  # fmt: skip
        """Give every rank's part to one rank."""
        return self._call("gather", "gather", nbytes, group, async_op, dst, group_dst)

    def scatter(
        self, nbytes: int, src: int | None = None, group: Any = None, async_op: bool = False,
        group_src: int | None = None,
    ) -> recorder.Work | None:  # fmt: skip
        """Give each rank its part of the source's data."""
        return self._call("scatter", "scatter", nbytes, group, async_op, src, group_src)

    def reduce_scatter(
        self, nbytes: int, op: str = "sum", group: Any = None, async_op: bool = False
    ) -> recorder.Work | None:
        """Reduce, and give each rank a part of the result; with Gloo an all_reduce of each part."""
        if self._nccl or isinstance(group, NonMember):
            return self._call("reduce_scatter", "reduce_scatter", nbytes, group, async_op, redop=op)
        parts = len(self._group(group).ranks)
        size = self._size(nbytes) // parts
        works = [
            self._call("reduce_scatter", "all_reduce", size, group, True, redop=op) for _ in range(parts)
        ]
        work = self._all(works)
        if async_op:
            return work
        work.wait()
        return None

    def reduce_scatter_tensor(
        self, nbytes: int, op: str = "sum", group: Any = None, async_op: bool = False
    ) -> recorder.Work | None:
        """Reduce, and give each rank a part of the result."""
        return self._call("reduce_scatter_tensor", "reduce_scatter", nbytes, group, async_op, redop=op)

    def all_to_all(self, nbytes: int, group: Any = None, async_op: bool = False) -> recorder.Work | None:
        """Give each rank a part of every rank's data."""
        return self._call("all_to_all", "all_to_all", nbytes, group, async_op)

    def all_to_all_single(
        self,
        nbytes: int,
        output_split_sizes: Sequence[int] | None = None,
        input_split_sizes: Sequence[int] | None = None,
        group: Any = None,
        async_op: bool = False,
    ) -> recorder.Work | None:
        """Give each rank a part of every rank's data: equal parts, or as many bytes as the lists state."""
        if output_split_sizes is None and input_split_sizes is None:
            return self._call("all_to_all_single", "all_to_all", nbytes, group, async_op)
        return self._unequal_parts(nbytes, output_split_sizes, input_split_sizes, group, async_op)

    def barrier(self, group: Any = None, async_op: bool = False, **_: Any) -> recorder.Work | None:
        """Wait for all ranks; with NCCL an all_reduce of four bytes, for which the host waits."""
        return self._call("barrier", "all_reduce", 4 if self._nccl else 0, group, async_op)

    def monitored_barrier(self, group: Any = None, **_: Any) -> None:
        """Wait for all ranks, and name the missing one; Gloo only."""
        if self._nccl:
            self._refuse("monitored_barrier is only implemented for GLOO backend")
        if not isinstance(group, NonMember):
            self._monitored_barrier(group)

    # pickled objects: lengths are sent first

    def all_gather_object(self, nbytes: int, group: Any = None) -> None:
        """Run an all_gather of lengths, then of objects padded to the longest."""
        self._call("all_gather_object", "all_gather", NUMBER, group)
        self._call("all_gather_object", "all_gather", nbytes, group)

    def gather_object(
        self, nbytes: int, dst: int | None = None, group: Any = None, group_dst: int | None = None
    ) -> None:
        """Run an all_gather of lengths, then a gather of objects padded to the longest."""
        self._call("gather_object", "all_gather", NUMBER, group)
        self._call("gather_object", "gather", nbytes, group, False, dst, group_dst)

    def broadcast_object_list(
        self, nbytes: int, src: int | None = None, group: Any = None, group_src: int | None = None
    ) -> None:
        """Broadcast lengths, then objects."""
        self._call("broadcast_object_list", "broadcast", NUMBER, group, False, src, group_src)
        self._call("broadcast_object_list", "broadcast", nbytes, group, False, src, group_src)

    def scatter_object_list(
        self, nbytes: int, src: int | None = None, group: Any = None, group_src: int | None = None
    ) -> None:
        """Broadcast the longest length, then scatter objects and their lengths."""
        self._call("scatter_object_list", "broadcast", NUMBER, group, False, src, group_src)
        self._call("scatter_object_list", "scatter", nbytes, group, False, src, group_src)
        self._call("scatter_object_list", "scatter", NUMBER, group, False, src, group_src)

    def send_object_list(self, nbytes: int, dst: int, group: Any = None) -> None:
        """Send a message of the length, then one of the object."""
        self.send(NUMBER, dst, group)
        self.send(nbytes, dst, group)

    def recv_object_list(self, nbytes: int, src: int, group: Any = None) -> None:
        """Receive a message of the length, then one of the object."""
        self.recv(NUMBER, src, group)
        self.recv(nbytes, src, group)

    # messages

    def send(self, nbytes: int, dst: int, group: Any = None, tag: int = 0) -> None:
        """Send, and wait."""
        work = self._message(Send, nbytes, dst, group, tag, "send")
        if self._nccl:
            work.wait()

    def recv(self, nbytes: int, src: int | None = None, group: Any = None, tag: int = 0) -> None:
        """Receive, and wait; without ``src`` from any source."""
        work = self._message(Recv, nbytes, src, group, tag, "recv")
        if self._nccl:
            work.wait()

    def isend(self, nbytes: int, dst: int, group: Any = None, tag: int = 0) -> recorder.Work:
        """Send without waiting."""
        return self._message(Send, nbytes, dst, group, tag, "isend")

    def irecv(self, nbytes: int, src: int | None = None, group: Any = None, tag: int = 0) -> recorder.Work:
        """Receive without waiting."""
        return self._message(Recv, nbytes, src, group, tag, "irecv")

    def batch_isend_irecv(self, p2p_op_list: Sequence[recorder.P2POp]) -> list[recorder.Work]:
        """Post several messages at once: with NCCL in one group call; Gloo handles them one after another."""
        if not p2p_op_list:
            self._refuse("batch_isend_irecv of no messages; write at least one")
        if any(getattr(one.op, "__name__", "") not in ("isend", "irecv") for one in p2p_op_list):
            self._refuse("batch_isend_irecv of another operation; write P2POp(dist.isend, ...) or dist.irecv")
        if not self._nccl:
            return [one.op(one.nbytes, one.peer, one.group, one.tag) for one in p2p_op_list]
        key = tuple(p2p_op_list)
        action = self._cached(key)
        if action is None:
            action = self._cache[key] = self._batch(p2p_op_list)
        return [self._beside(action, "batch_isend_irecv", "message", action.group.name)]

    def _batch(self, p2p_op_list: Sequence[recorder.P2POp]) -> Together:
        group = self._group(p2p_op_list[0].group)
        if any(self._group(one.group) is not group for one in p2p_op_list):
            self._refuse("batch_isend_irecv of messages of several groups; write one group")
        parts = tuple(
            (Send if one.op.__name__ == "isend" else Recv)(
                group, self._peer(group, one.peer), self._size(one.nbytes), 0
            )
            for one in p2p_op_list
        )
        self._connect(group)
        return Together(group, parts)

    # not in torch.distributed

    def compute(self, seconds: float, name: str = "compute") -> None:
        """Compute for ``seconds``: on the host with Gloo, on the current stream with NCCL."""
        if not 0 <= seconds <= MAX_DURATION:
            raise ValueError(f"{self._where()}: compute({seconds!r}); write seconds, 0 to {MAX_DURATION:g}")
        if self._nccl:
            self._on_stream(Compute(float(seconds)), name, "compute", holds=False)
        else:
            self._post(Compute(float(seconds)), name, "compute", HOST, holds=True)

    def synchronize(self) -> None:
        """Hold the host until its GPU is idle, as torch.cuda.synchronize does; with Gloo there is none."""
        if self._nccl:
            self._post(Wait(), "synchronize", "wait", None, tuple(range(len(self.recorded))), holds=True)
