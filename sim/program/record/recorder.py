"""Recording of one rank's torch.distributed calls as operations of a `Program`.

The host waits as it does with each library (torch/distributed/distributed_c10d.py, ProcessGroupGloo.cpp and
ProcessGroupNCCL.cpp of PyTorch 2.13): Gloo's ``wait`` holds it; NCCL's holds the current stream, here the
lane ``compute``. NCCL's blocking collectives run on the current stream, others on a stream of their group.
Messages outside of batches go through a communicator of the two ranks, made when both first use it, unless
the job was initialised with a device (``eager``): then through their group's.
"""

import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

from ringside.sim.program.operations import (
    ANY,
    ROOTED,
    Drop,
    Group,
    Join,
    Lost,
    Operation,
    Raise,
    Recv,
    Send,
    Together,
    Wait,
)
from ringside.sim.program.record.mesh import Groups

STREAM = "compute"
"""The lane of the stream on which a rank computes."""

UNEQUAL = -1
"""The tag of the messages of an all-to-all of unequal parts, which match no others."""

NUMBER = 8
"""Bytes of a number that torch sends by itself: the length of a pickled object, a rank at a barrier."""

MOST_OPERATIONS = 2_000_000
"""Maximum number of operations per rank; more is treated as an endless loop."""


class RankLostError(Exception):
    """An error of torch.distributed on the rank, after which nothing is recorded."""


class NonMember:
    """The result of new_group on ranks outside the group."""


class Work:
    """The result of an asynchronous call."""

    __slots__ = ("_operations", "_recorder")

    def __init__(self, recorder: "Recorder", operations: tuple[int, ...]) -> None:
        self._recorder = recorder
        self._operations = operations

    def wait(self, timeout: object = None) -> bool:
        """Wait as the library does: the host with Gloo, the stream with NCCL."""
        self._recorder._wait(self._operations)
        return True


class P2POp(NamedTuple):
    """One message of batch_isend_irecv: ``op`` is ``dist.isend`` or ``dist.irecv``."""

    op: Callable[..., Any]
    nbytes: int
    peer: int
    group: Any = None
    tag: int = 0


class ReduceOp:
    """Reductions by torch's names."""

    SUM, AVG, PRODUCT, MIN, MAX = "sum", "avg", "prod", "min", "max"


class Recorder:
    """Recorder of one rank's calls, in ``recorded``."""

    def __init__(self, groups: Groups, rank: int, *, eager: bool) -> None:
        self.recorded: list[Operation] = []
        """Operations of the previous rank, reused where equal: ranks are similar."""
        self._messages: dict[Operation, Operation] = {}
        """Messages without dependencies, each once, for reuse in loops."""
        self._groups = groups
        self._rank = rank
        self._eager = eager
        self._nccl = groups.world.rules.on_stream
        self._made = 0
        self._unwaited: dict[int, None] = {}
        """Gloo's messages for which the rank has not waited."""
        self._calls: Counter[Group] = Counter()
        """Number of collectives called per Gloo group."""
        self._under_way: dict[int, Group] = {}
        """Gloo's collectives that neither a wait nor a barrier of their group has covered."""
        self._awaited: tuple[int, ...] = ()
        """Operations that the next one on the current stream must wait for."""
        self._last: tuple[int, ...] = ()
        """The last operation of the current stream."""
        self._connected = {groups.world} if eager else set[Group]()
        self._cache: dict[tuple[Any, ...], Any] = {}
        """Valid messages by their arguments, after creation of their group."""

    # recording

    def _post(
        self, action: Any, name: str, category: str = "", lane: str | None = None,
        after: tuple[int, ...] = (), *, holds: bool = False,
    ) -> int:  # fmt: skip
        recorded = self.recorded
        place = len(recorded)
        if place == MOST_OPERATIONS:
            raise ValueError(f"{self._where()}: more than {MOST_OPERATIONS:,} operations; does the loop end?")
        # as Operation(...) would, in half of the time
        operation = _tuple(Operation, (action, lane, after, holds, name, category, _place()))
        before = self._groups.recorded
        if place < len(before) and before[place] == operation:
            operation = before[place]
        elif category == "message" and not after:
            operation = self._messages.setdefault(operation, operation)
        recorded.append(operation)
        return place

    def _on_stream(self, action: Any, name: str, category: str, *, holds: bool) -> Work:
        """Record an operation of NCCL or of a GPU on the current stream."""
        made = self._post(action, name, category, STREAM, self._awaited, holds=holds)
        self._last, self._awaited = (made,), ()
        return Work(self, self._last)

    def _beside(self, action: Any, name: str, category: str, lane: str) -> Work:
        """Record an NCCL operation beside the current stream, which it comes after."""
        return Work(self, (self._post(action, name, category, lane, (*self._last, *self._awaited)),))

    def _wait(self, operations: tuple[int, ...]) -> None:
        if self._nccl:
            self._awaited = (*self._awaited, *operations)
            return
        for place in operations:
            self._unwaited.pop(place, None)
            self._under_way.pop(place, None)
        self._post(_WAIT, "wait", "wait", None, operations, holds=True)

    def end(self) -> None:
        """End the job's function, which releases its messages."""
        if self._unwaited:
            where = self.recorded[next(iter(self._unwaited))].place
            self.recorded.append(Operation(Drop(tuple(self._unwaited)), name="drop", place=where))

    def _call(
        self, name: str, kind: str, nbytes: int, group: Any, async_op: bool = False, root: int | None = None,
        group_root: int | None = None, redop: str = "sum",
    ) -> Work | None:  # fmt: skip
        if isinstance(group, NonMember):
            return None
        key = (name, kind, nbytes, group, root, group_root, redop)
        call = self._cached(key)
        if call is None:
            group = self._group(group)
            self._connect(group)
            call = self._groups.call(
                group, name, kind, self._size(nbytes), self._root(group, name, kind, root, group_root), redop
            )
            self._cache[key] = call
        return self._start(call, name, kind, async_op)

    def _start(self, action: Any, name: str, kind: str, async_op: bool) -> Work | None:
        """Record a collective; return its Work unless it is blocking."""
        if self._nccl:
            if async_op:
                return self._beside(action, name, kind, action.group.name)
            self._on_stream(action, name, kind, holds=name == "barrier")
            return None
        self._calls[action.group] += 1
        after: tuple[int, ...] = ()
        if name == "barrier":  # ProcessGroupGloo::barrier waits for all that its group has under way
            after = tuple(place for place, group in self._under_way.items() if group is action.group)
            for place in after:
                del self._under_way[place]
        place = self._post(action, name, kind, None, after, holds=not async_op)
        if not async_op:
            return None
        self._under_way[place] = action.group
        return Work(self, (place,))

    def _monitored_barrier(self, group: Any) -> None:
        """Record Gloo's monitored barrier: the first rank gets a message from all ranks, then notifies all.

        Message tags are call numbers, which may collide with those of the job's own messages.
        """
        group = self._group(group)
        self._connect(group)
        first, *others = group.ranks
        tag = self._calls[group]
        self._calls[group] += 2
        rounds: list[list[Any]]
        if self._rank == first:
            rounds = [[Recv(group, one, NUMBER, tag) for one in others]]
            rounds += [[Send(group, one, NUMBER, tag + 1) for one in others]]
        else:
            rounds = [[Send(group, first, NUMBER, tag), Recv(group, first, NUMBER, tag + 1)]]
        for messages in rounds:
            self._wait(tuple(self._post(one, "monitored_barrier", "message") for one in messages))

    def _all(self, works: Sequence[Work | None]) -> Work:
        """Combine several Works into one."""
        return Work(self, tuple(place for work in works if work for place in work._operations))

    def _message(self, make: Any, nbytes: int, peer: int | None, group: Any, tag: int, name: str) -> Work:
        key = (make, nbytes, peer, group, tag)
        action = self._cached(key)
        if action is None:
            action = self._cache[key] = self._sound(make, nbytes, peer, group, tag, name)
        if self._nccl:
            return self._beside(action, name, "message", action.group.name)
        place = self._post(action, name, "message", holds=name[0] != "i")
        if name[0] == "i":
            self._unwaited[place] = None
        return Work(self, (place,))

    def _cached(self, key: tuple[Any, ...]) -> Any:
        """Return the cached message for these arguments, or None where they are unhashable."""
        try:
            return self._cache.get(key)
        except TypeError:
            return None

    def _sound(self, make: Any, nbytes: int, peer: int | None, group: Any, tag: int, name: str) -> Any:
        """Return the validated message; create its group first if necessary."""
        group = self._group(group)
        outside = isinstance(peer, int) and peer not in group.members
        if outside and group is self._groups.world and not self._nccl:
            return Lost(
                group,
                f"rank {peer} is not in the world of {self._groups.ranks} ranks; Gloo does not check this",
            )
        peer = ANY if peer is None and make is Recv else self._peer(group, peer)
        if peer == self._rank:
            self._refuse(f"{name} to oneself, rank {peer}")
        if self._nccl:
            if peer == ANY:
                self._refuse(f"{name} without a source; NCCL requires one")
            if not self._eager:
                group, tag = self._groups.pair(group, self._rank, peer), 0
        elif peer == ANY and not self._size(nbytes):
            self._refuse(f"{name} of 0 bytes without a source, which Gloo does not support; name the source")
        self._connect(group)
        return make(group, peer, self._size(nbytes), tag)

    def _unequal_parts(
        self,
        nbytes: int,
        output: Sequence[int] | None,
        given: Sequence[int] | None,
        group: Any,
        async_op: bool,
    ) -> Work | None:
        """Record an all-to-all of unequal parts: one message to and one from each rank, all at once."""
        if isinstance(group, NonMember):
            return None
        group = self._group(group)
        if output is None or given is None:
            raise ValueError(f"{self._where()}: parts of one side only; write both lists, or neither")
        sizes = [[self._size(size) for size in sizes] for sizes in (given, output)]
        if any(len(some) != len(group.ranks) for some in sizes):
            self._refuse(f"parts for {len(given)} and {len(output)} ranks, in a group of {len(group.ranks)}")
        if sum(sizes[0]) != nbytes:
            self._refuse(f"parts of {sum(sizes[0])} bytes in all, of {nbytes}")
        own = [some[group.ranks.index(self._rank)] for some in sizes]
        if own[0] != own[1]:
            self._refuse(f"a part of {own[0]} bytes to oneself, with a buffer of {own[1]} bytes")
        self._connect(group)
        parts: tuple[Any, ...] = tuple(
            make(group, peer, size, UNEQUAL)
            for make, some in zip((Send, Recv), sizes, strict=True)
            for peer, size in zip(group.ranks, some, strict=True)
            if peer != self._rank and (size or not self._nccl)
        )
        together = Together(group, parts, is_call=not self._nccl)
        return self._start(together, "all_to_all_single", "all_to_all", async_op)

    def _connect(self, group: Group) -> None:
        """Make the members create their group; NCCL does so at first use, unless eager."""
        if group not in self._connected and (self._nccl or group is not self._groups.world):
            self._connected.add(group)
            self._post(Join(group), "making of the communicator" if self._nccl else "new_group", holds=True)

    def _group(self, group: Any) -> Group:
        if group is None:
            return self._groups.world
        if not isinstance(group, Group):
            raise ValueError(f"{self._where()}: {group!r} is not a group; write one from new_group, or None")
        if self._rank not in group.members:
            self._refuse(f"rank {self._rank} is not in group {group.name}")
        return group

    def _peer(self, group: Group, peer: int | None) -> int:
        if peer is None or peer not in group.members:
            self._refuse(f"rank {peer} is not in group {group.name}, which has ranks {list(group.ranks)}")
        return peer

    def _root(self, group: Group, name: str, kind: str, root: int | None, group_root: int | None) -> int:
        """Return the root's place in the group; the default, where allowed, is rank 0 of the job."""
        if kind not in ROOTED:
            return 0
        if group_root is not None:
            root = group.ranks[group_root] if 0 <= group_root < len(group.ranks) else -1
        elif root is None and name in ("broadcast", "reduce"):
            self._refuse(f"{name} without a root; write {'src' if name == 'broadcast' else 'dst'}=RANK")
        root = 0 if root is None else root
        if root not in group.members:
            self._refuse(f"rank {root} is not in group {group.name}, which has ranks {list(group.ranks)}")
        return group.ranks.index(root) if root != group.ranks[0] else 0

    def _size(self, nbytes: Any) -> int:
        if isinstance(nbytes, float) and nbytes.is_integer():
            nbytes = int(nbytes)
        if not isinstance(nbytes, int) or nbytes < 0:
            raise ValueError(
                f"{self._where()}: a size of {nbytes!r}; write bytes, a whole number of 0 or more"
            )
        return nbytes

    def _refuse(self, message: str) -> NoReturn:
        """Record an error of torch.distributed, which ends the rank."""
        self._post(Raise(message), "error")
        raise RankLostError(message)

    def _where(self) -> str:
        file, line = _place()
        return f"{file}:{line}"


def _place() -> tuple[str, int]:
    """Return the file and line outside of this module that made the call."""
    frame = sys._getframe(3)
    while frame.f_code.co_filename in _OURS and frame.f_back:
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


_WAIT = Wait()

_tuple = tuple.__new__

_OURS = {__file__.replace("recorder", name) for name in ("recorder", "distributed", "mesh")}
