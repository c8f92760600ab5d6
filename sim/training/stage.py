"""A stage of a model on one rank: its passes as operations, and data-parallel ranks' work around them.

Strategies write into a rank's list. A rank's compute runs on one stream. A collective is beside it in its
group's queue: it begins no earlier than the stream's operations before its call, and the stream waits for it
on request. With a blocking library, as Gloo is by default, the stream waits at once.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from ringside.sim.collective import Collective
from ringside.sim.program import Action, Call, Compute, Group, Operation, Recv, Send, Together, Wait
from ringside.sim.training.fsdp_policy import GRADIENTS
from ringside.sim.training.layers import Kernels, Pass, RankLayer, is_of_experts
from ringside.sim.training.mesh import Communicators
from ringside.sim.training.sharing import Sharing

STREAM, HOST = "compute", "host"
"""The lanes of compute, and of the host's work between two steps."""


class RankList:
    """The operations of a rank as written so far; ``latest`` is the place of each lane's latest one."""

    def __init__(self, rank: int, communicators: Communicators, *, blocks: bool = False) -> None:
        self.rank = rank
        self.communicators = communicators
        self.operations: list[Operation] = []
        self.blocks = blocks
        self.latest: dict[str, int] = {}
        self._launched: tuple[int, ...] = ()
        """The place of the host's latest launch."""
        self._taken: list[tuple[str, int]] = []

    def last(self, lane: str = STREAM) -> tuple[int, ...]:
        """Return the latest operation of a lane as an ``after``; empty before the first."""
        return (self.latest[lane],) if lane in self.latest else ()

    def compute(
        self, seconds: float, name: str, kind: str, *, lane: str = STREAM, after: tuple[int, ...] = ()
    ) -> None:
        """Compute on a lane; zero seconds of work that take no memory write no operation."""
        if seconds or self._taken:
            self.post(Compute(seconds), name, kind, lane, after)

    def call(
        self,
        group: Group,
        collective: Collective,
        name: str,
        *,
        lane: str | None = None,
        after: tuple[int, ...] | None = None,
        beside: bool = False,
    ) -> int | None:
        """Call a collective, by default after the stream's latest operation; return its place.

        A group of one rank has nothing to exchange. A call ``beside`` other work does not block, even with a
        blocking library: the caller waits for it.
        """
        if len(group.ranks) == 1:
            return None
        call = Call(group, collective.kind, collective)
        place = self.post(call, name, collective.kind, lane, self.last() if after is None else after)
        if self.blocks and not beside:
            self.wait(place)
        return place

    def exchange(
        self, parts: Sequence[Send | Recv], name: str, *, after: tuple[int, ...] | None = None
    ) -> int | None:
        """Send and receive at once, after the stream's latest operation; return the place, if any."""
        if not parts:
            return None
        action = parts[0] if len(parts) == 1 else Together(parts[0].group, tuple(parts))
        return self.post(action, name, "message", None, self.last() if after is None else after)

    def wait(self, place: int | None, lane: str = STREAM) -> None:
        """Make a lane wait for an operation, if there is one."""
        if place is not None:
            self.post(Wait(), f"wait for {self.operations[place].name}", "wait", lane, (place,))

    def pause(self, seconds: float, name: str) -> None:
        """Make the stream wait for something else that takes ``seconds`` after it."""
        self.wait(self.post(Compute(seconds), name, name, name, self.last()))

    def launch(self, seconds: float, name: str) -> None:
        """Launch kernels for ``seconds``, by a host that runs ahead of the stream, which waits for it."""
        self._launched = (self.post(Compute(seconds), name, "launch", None, self._launched),)
        self.wait(*self._launched)

    def hold(self, place: int) -> None:
        """Make the host wait for an operation before it posts later ones."""
        name = f"hold until {self.operations[place].name}"
        self.operations.append(Operation(Wait(), None, (place,), True, name, "wait"))

    def take(self, pool: str, nbytes: int) -> None:
        """Allocate ``nbytes`` bytes of a pool from the beginning of the next operation on."""
        if nbytes:
            self._taken.append((pool, nbytes))

    def give(self, pool: str, nbytes: int, place: int = -1) -> None:
        """Free ``nbytes`` bytes of a pool at the end of an operation, by default the latest.

        Bytes of an operation that is not written yet are freed at its end.
        """
        if not nbytes:
            return
        if not self.operations or any(taken == pool for taken, _ in self._taken):
            self._taken.append((pool, -nbytes))
        else:
            one = self.operations[place]
            self.operations[place] = one._replace(memory=(*one.memory, (pool, -nbytes)))

    def post(self, action: Action, name: str, kind: str, lane: str | None, after: tuple[int, ...]) -> int:
        """Append an operation and return its place."""
        self.operations.append(Operation(action, lane, after, False, name, kind, memory=tuple(self._taken)))
        self._taken.clear()
        place = len(self.operations) - 1
        if lane is not None:
            self.latest[lane] = place
        return place


class Streams:
    """Copies and collectives on streams; with a blocking library a rank has one stream and always waits.

    A copy takes the bytes that it reads and writes, over ``memory_bandwidth`` (bytes/s).
    """

    def __init__(self, rank: RankList, memory_bandwidth: float) -> None:
        self.rank = rank
        self._memory_bandwidth = memory_bandwidth
        self._aside: set[int] = set()
        """Calls that no operation has waited for, with any library."""

    def lane(self, name: str) -> str:
        """Return the lane of the stream of that name."""
        return STREAM if self.rank.blocks else name

    def last(self, name: str = STREAM) -> int | None:
        """Return a stream's latest operation, if any."""
        return self.rank.latest.get(self.lane(name))

    def copy(self, nbytes: float, name: str, stream: str = STREAM, after: tuple[int, ...] = ()) -> int:
        """Read and write ``nbytes`` in all; return the place."""
        action = Compute(nbytes / self._memory_bandwidth)
        return self.rank.post(action, name, "copy", self.lane(stream), after)

    def call(
        self, group: Group, collective: Collective, name: str, stream: str, after: tuple[int, ...]
    ) -> int:
        """Run a collective on a stream; return its place."""
        lane = None if self.rank.blocks else stream
        place = self.rank.call(group, collective, name, lane=lane, after=after)
        assert place is not None, "a rank alone in its group has no collective"
        return place

    def call_aside(self, group: Group, collective: Collective, name: str) -> int:
        """Run a collective after all compute so far, without waiting for it yet, with any library."""
        call = Call(group, collective.kind, collective)
        place = self.rank.post(call, name, collective.kind, None, self.rank.last())
        self._aside.add(place)
        return place

    def wait(self, place: int | None, stream: str = STREAM) -> int | None:
        """Make a stream wait for an operation; return the stream's latest place."""
        waited = self.rank.blocks and place not in self._aside
        if not waited and place != self.last(stream):
            self.rank.wait(place, self.lane(stream))
        return self.last(stream)


ACTIVATIONS = "activations"
"""The pool of activations that forward keeps for backward."""


class Stage:
    """Writes passes into a rank's list; a whole model on one rank is one stage.

    A pass only waits for its own exchanges: the receiver of a micro-batch has the stream wait
    for it first. Where it ``makes_gradients``, backward's first pass of a layer allocates them, until
    `forget`. Where it ``overlaps`` experts' exchanges, a forward and a backward may be written `together`.
    """

    def __init__(
        self,
        rank: RankList,
        layers: Sequence[RankLayer],
        sharing: Sharing,
        name: str = "",
        *,
        makes_gradients: bool = False,
        overlaps: bool = False,
    ) -> None:
        self.rank = rank
        self.overlaps = overlaps
        self.layers = layers
        self.sharing = sharing
        self._name = f"{name} " if name else ""
        self._unmade = set(range(len(layers))) if makes_gradients else set()
        self._pending_nbytes = self._made_nbytes = 0

    def pass_all(self, micro_batches: int) -> None:
        """Pass all micro-batches forward and backward, one after another: no pipeline."""
        last = micro_batches - 1
        for number in range(micro_batches):
            if not self.overlaps or number == 0:
                self.forward(number)
            if not self.overlaps or number == last:
                self.backward(number, last=number == last)
            else:
                together(self.forwards(number + 1), self.backwards(number, last=False))

    def forward(self, micro_batch: int) -> None:
        """Pass a micro-batch forward."""
        together(self.forwards(micro_batch))

    def backward(self, micro_batch: int, *, last: bool) -> None:
        """Pass its gradients backward, those of inputs and weights; ``last`` is `Sharing`'s."""
        together(self.backwards(micro_batch, last=last))

    def forwards(self, micro_batch: int) -> Iterator[None]:
        """Pass a micro-batch forward; pause wherever experts' exchanges begin."""
        for number, layer in enumerate(self.layers):
            self.sharing.before_forward(number)
            self.rank.take(ACTIVATIONS, layer.kept_nbytes + layer.forward_nbytes)
            yield from self._pass(layer.forward, layer, "forward", micro_batch)
            self.rank.give(ACTIVATIONS, layer.forward_nbytes)
            self.sharing.after_forward(number)

    def backwards(self, micro_batch: int, *, last: bool) -> Iterator[None]:
        """Pass its gradients backward; pause wherever experts' exchanges begin."""
        for number, layer in reversed(list(enumerate(self.layers))):
            yield from self._recompute(number, micro_batch)
            yield from self._pass(layer.backward, layer, "backward", micro_batch)
            self.rank.give(ACTIVATIONS, layer.backward_nbytes)
            self._end(number, last=last)

    def input_gradient(self, micro_batch: int) -> None:
        """Pass gradients of the inputs backward, and postpone those of the weights."""
        for number, layer in reversed(list(enumerate(self.layers))):
            together(self._recompute(number, micro_batch))
            together(self._pass(layer.input_gradient, layer, "input gradient", micro_batch))
            self.rank.give(ACTIVATIONS, layer.backward_nbytes)

    def weight_gradient(self, micro_batch: int, *, last: bool) -> None:
        """Make the postponed gradients of the weights."""
        for number, layer in reversed(list(enumerate(self.layers))):
            together(self._pass(layer.weight_gradient, layer, "weight gradient", micro_batch))
            self._end(number, last=last)

    def _make(self, number: int) -> None:
        """Allocate a layer's gradients, which its modules make one by one, as its activations go."""
        layer = self.layers[number]
        if number in self._unmade:
            self._unmade.remove(number)
            self._pending_nbytes += layer.nbytes + layer.unsharded_nbytes
        if layer.kept_nbytes or not number:
            self.rank.take(GRADIENTS, self._pending_nbytes)
            self._made_nbytes += self._pending_nbytes
            self._pending_nbytes = 0

    def forget(self) -> None:
        """Free the gradients that backward has made, after the optimizer."""
        self.rank.give(GRADIENTS, self._made_nbytes)
        self._made_nbytes = 0

    def _recompute(self, number: int, micro_batch: int) -> Iterator[None]:
        layer = self.layers[number]
        self.sharing.before_backward(number)
        self.rank.take(ACTIVATIONS, layer.recomputed_nbytes + layer.backward_nbytes)
        yield from self._pass(layer.recomputed, layer, "recomputation", micro_batch)

    def _end(self, number: int, *, last: bool) -> None:
        layer = self.layers[number]
        # a pass without duration writes no operation: earlier work on the stream has ended by then
        place = self.rank.latest.get(STREAM, -1)
        self.rank.give(ACTIVATIONS, layer.kept_nbytes + layer.recomputed_nbytes, place)
        self._make(number)
        self.sharing.after_backward(number, last=last)

    def _pass(self, parts: Pass, layer: RankLayer, kind: str, micro_batch: int) -> Iterator[None]:
        name = f"{self._name}{layer.name}, micro-batch {micro_batch}"
        beside: list[int | None] = []
        for part, following in pairwise([*parts, None]):
            if isinstance(part, Kernels):
                self.rank.compute(part.seconds, name, kind)
            elif part:
                group = self.rank.communicators.along(self.rank.rank, *part.dimensions)
                called = f"{kind} of {name}"
                beside.append(self.rank.call(group, part.collective, called, beside=part.overlaps))
                hides = self.overlaps and is_of_experts(part)
                # tokens and their probabilities are one turn
                if part.overlaps or (hides and is_of_experts(following)):
                    continue
                if hides:
                    yield
            while beside:
                self.rank.wait(beside.pop(0))
        for place in beside:
            self.rank.wait(place)
        launch_s = layer.forward_launch_s
        if kind not in ("forward", "recomputation"):
            launch_s = layer.backward_launch_s / (1 if kind == "backward" else 2)
        if parts and launch_s:
            self.rank.launch(launch_s, f"launch of {name}")


def together(*passes: Iterator[None]) -> None:
    """Write passes in turn: each goes on until its next exchange of experts begins."""
    left = list(passes)
    while left:
        left = [one for one in left if next(one, _ENDED) is not _ENDED]


_ENDED = object()
