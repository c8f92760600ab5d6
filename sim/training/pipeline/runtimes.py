"""Runtimes of a rank's table: its sends, receives and waits, as libraries accept them, and its stages.

A runtime is called with the rank's `Messages`, its stages by their numbers in the pipeline, and its table.
The caller runs `Sharing.after_step` and the optimizer afterwards.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Protocol, runtime_checkable

from ringside.sim.program import Group, Recv, Send
from ringside.sim.training.pipeline.actions import (
    COMPUTES,
    ENDS,
    Action,
    Kind,
    Placement,
    Table,
    met,
    received,
    sent,
    singles,
)
from ringside.sim.training.stage import RankList, Stage, together

_PAIRS = ("pair", "world pair")

SENDS = frozenset({Kind.SEND_FORWARD, Kind.SEND_BACKWARD})


class Messages:
    """Writes messages into a rank's list: one micro-batch's activations, or their gradient.

    They have ``nbytes``, or entry s of it between stages s and s + 1.

    Waits refer to places in the list. Unbatched messages use a communicator of the two ranks if the library
    makes one, as NCCL does, otherwise the pipeline's.
    """

    def __init__(self, rank: RankList, placement: Placement, nbytes: int | Sequence[int]) -> None:
        sizes = (nbytes,) * (placement.stages - 1) if isinstance(nbytes, int) else tuple(nbytes)
        if min(sizes, default=0) < 0:
            raise ValueError(f"activations of {min(sizes)} bytes; write 0 or more")
        self.rank = rank
        self.placement = placement
        self._sizes = sizes
        self._group = rank.communicators.along(rank.rank, "pipeline")
        self.on_stream = self._group.rules.on_stream
        self.position = self._group.ranks.index(rank.rank)
        if len(self._group.ranks) != placement.ranks:
            raise ValueError(
                f"stages on {placement.ranks} ranks, but the mesh has {len(self._group.ranks)} along pipeline"
            )

    def one_by_one(self, actions: Iterable[Action], purpose: str = "pair") -> list[int]:
        """Post messages separately, in this order."""
        return [self._post(action, self._pair(action, purpose)) for action in actions]

    def batch(self, actions: Sequence[Action]) -> list[int]:
        """Post messages that are under way at once, in one call of NCCL; Gloo handles each separately."""
        if not self.on_stream:
            return self.one_by_one(actions)
        parts = [self._message(action, self._group) for action in actions]
        place = self.rank.exchange(parts, " ".join(map(str, actions)))
        return [] if place is None else [place]

    def mixed_batch(self, actions: Sequence[Action]) -> list[int]:
        """Post a batch as torch's pipelines do: only one that both sends and receives is batched."""
        kinds = {action.kind in SENDS for action in actions}
        return self.batch(actions) if len(kinds) > 1 else self.one_by_one(actions)

    def free(self, action: Action) -> int:
        """Post a message that never queues; a receive is posted at the step's beginning."""
        send = action if action.kind in SENDS else met(action)
        return self._post(action, self._pair(action, f"message {send}"), None if send is action else ())

    def wait(self, places: Iterable[int]) -> None:
        """Make the stream wait for messages."""
        for place in places:
            self.rank.wait(place)

    def nbytes(self, action: Action) -> int:
        """Return the bytes of a message."""
        return self._sizes[min(action.stage, met(action).stage)]

    def _post(self, action: Action, group: Group, after: tuple[int, ...] | None = None) -> int:
        place = self.rank.exchange([self._message(action, group)], str(action), after=after)
        assert place is not None
        return place

    def _message(self, action: Action, group: Group) -> Send | Recv:
        make = Send if action.kind in SENDS else Recv
        return make(group, self._peer(action), self.nbytes(action))

    def _peer(self, action: Action) -> int:
        return self._group.ranks[self.placement.rank(met(action).stage)]

    def _pair(self, action: Action, purpose: str) -> Group:
        if not self.on_stream and purpose in _PAIRS:
            return self._group
        low, high = sorted((self.rank.rank, self._peer(action)))
        return self.rank.communicators.of((low, high), f"pipeline {purpose}")


class Outgoing:
    """Memory of what a rank's stages send: outputs, and gradients of their inputs.

    A stage of torch refers to an output until its backward (torch/distributed/pipelining/stage.py, PyTorch
    2.13, ``fwd_cache``). Gloo refers to what it sends until it is waited for, NCCL until the message is over
    (torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp, ``shelvesToUnstash_``).
    """

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self._outputs: list[Action] = []
        self._sends: list[Action] = []

    def made(self, action: Action) -> None:
        """Allocate what a pass has made to be sent; after a backward, the stage drops its output."""
        if action.kind in ENDS:
            self._drop(self._outputs, [action._replace(kind=Kind.SEND_FORWARD)])
        for message in sent(action, self._messages.placement):
            self._messages.rank.take("messages", self._messages.nbytes(message))
            self._outputs += [message] if message.kind is Kind.SEND_FORWARD else []
            self._sends.append(message)

    def posted(self, places: Mapping[Action, int]) -> None:
        """Have a library with streams drop what it sends, at the end of the operations that send it."""
        for message, place in places.items() if self._messages.on_stream else ():
            self._drop(self._sends, [message], place)

    def waited(self) -> None:
        """Drop all that has been sent."""
        self._drop(self._sends, list(self._sends))

    def _drop(self, holder: list[Action], messages: Iterable[Action], place: int = -1) -> None:
        """Have one of both holders drop messages, which frees those that the other does not hold."""
        for message in messages:
            if message in holder:
                holder.remove(message)
                if message not in self._outputs and message not in self._sends:
                    self._messages.rank.give("messages", self._messages.nbytes(message), place)


@runtime_checkable
class Commanded(Protocol):
    """A `ringside.sim.training.sharing.Sharing` controlled by the pipeline, as torch's controls FSDP2.

    Between ``unshard`` and ``reshard`` the whole stage's parameters are held, and its other hooks gather and
    free nothing; gradients of all micro-batches are summed on the rank until ``reduce``.
    """

    def unshard(self) -> None:
        """Begin to gather the parameters of all of the stage's layers; its passes wait for them."""
        ...

    def reshard(self) -> None:
        """Free other ranks' shards."""
        ...

    def reduce(self) -> None:
        """Sum all gradients of the stage among the ranks that share it."""
        ...


class Passes:
    """Runs a rank's compute and its actions on stages; messages are the runtime's."""

    def __init__(self, stages: Mapping[int, Stage], table: Iterable[Action]) -> None:
        self._stages = stages
        self._left: Counter[int] = Counter()
        for single in singles(table):
            if single.stage not in stages:
                raise ValueError(
                    f"{single} is of no stage of this rank, which has {', '.join(map(str, stages))}"
                )
            self._left[single.stage] += single.kind in ENDS

    @property
    def overlaps(self) -> bool:
        """Whether a forward and a backward hide each other's exchanges of experts."""
        return any(stage.overlaps for stage in self._stages.values())

    def take_pair(self, forward: Action, backward: Action) -> None:
        """Write a forward and a backward of another micro-batch together."""
        self._left[backward.stage] -= 1
        together(
            self._stages[forward.stage].forwards(forward.micro_batch or 0),
            self._stages[backward.stage].backwards(
                backward.micro_batch or 0, last=not self._left[backward.stage]
            ),
        )

    def take(self, action: Action) -> None:
        """Write one action, which computes or acts on a whole stage."""
        stage, number = self._stages[action.stage], action.micro_batch or 0
        if action.kind in ENDS:
            self._left[action.stage] -= 1
        last = not self._left[action.stage]
        match action.kind:
            case Kind.FORWARD:
                stage.forward(number)
            case Kind.BACKWARD:
                stage.backward(number, last=last)
            case Kind.INPUT_GRADIENT:
                stage.input_gradient(number)
            case Kind.WEIGHT_GRADIENT:
                stage.weight_gradient(number, last=last)
            case _ if isinstance(stage.sharing, Commanded):
                self._command(stage.sharing, action.kind)

    def _command(self, sharing: Commanded, kind: Kind) -> None:
        if kind is Kind.UNSHARD:
            sharing.unshard()
        elif kind is Kind.RESHARD:
            sharing.reshard()
        elif kind is Kind.REDUCE_GRAD:
            sharing.reduce()


def alternates(actions: Sequence[Action], hops: int) -> bool:
    """Return whether a rank of 1F1B, ``hops`` before the last, has a forward after its first backward.

    Then it and the next rank send to each other at once. Otherwise the next one must first run its last
    forward before it can send a gradient, so both receive and send separately.
    """
    return hops < sum(action.kind is Kind.FORWARD for action in actions)


def computed(table: Table) -> list[Action]:
    """Yield a table's computations in order: the forward of an overlapped pair first."""
    return [single for single in singles(table) if single.kind in COMPUTES]


Runtime = Callable[[Messages, Mapping[int, Stage], Table], None]
"""Writes one rank's part of a step into its list."""

_RECEIVES = (Kind.RECV_FORWARD, Kind.RECV_BACKWARD)


def torch_actions(messages: Messages, stages: Mapping[int, Stage], table: Table) -> None:
    """Run lowered tables as torch does: schedules with several stages per rank, and tables from CSV.

    A receive is posted at its place in the table and waited for before its use; sends are waited for last.
    Raise ValueError if a table sends a result that is not computed yet, or has been sent.
    """
    passes, outgoing = Passes(stages, table), Outgoing(messages)
    arriving: dict[Action, list[int]] = {}
    sends: list[int] = []
    made: set[Action] = set()
    for action in table if passes.overlaps else singles(table):
        if action.kind in SENDS:
            if action not in made:
                raise ValueError(f"{action} has nothing to send here; write it once, after its own pass")
            made.remove(action)
            sends += messages.one_by_one([action])
            outgoing.posted({action: sends[-1]})
        elif action.kind in _RECEIVES:
            arriving[action] = messages.one_by_one([action])
        else:
            for needed in (one for single in action.singles for one in received(single, messages.placement)):
                if needed not in arriving:
                    raise ValueError(f"{action} precedes {needed}; lower or correct the table")
                messages.wait(arriving.pop(needed))
            if action.kind is Kind.OVERLAP:
                passes.take_pair(*action.singles)
            else:
                passes.take(action)
            for single in action.singles:
                outgoing.made(single)
                made.update(sent(single, messages.placement))
    if arriving:
        raise ValueError(f"nothing in the table needs {', '.join(map(str, arriving))}")
    messages.wait(reversed(sends))
    outgoing.waited()


def decoupled(messages: Messages, stages: Mapping[int, Stage], table: Table) -> None:
    """Run messages that block neither ranks nor other messages: the textbook's, to count bubbles."""
    passes = Passes(stages, table)
    for action in computed(table):
        messages.wait([messages.free(one) for one in received(action, messages.placement)])
        passes.take(action)
        for one in sent(action, messages.placement):
            messages.free(one)


def torch_gpipe(messages: Messages, stages: Mapping[int, Stage], table: Table) -> None:
    """Run torch's GPipe: receive just before use, wait for sends at the end of each phase."""
    passes, outgoing = Passes(stages, table), Outgoing(messages)
    sends: list[int] = []
    actions = computed(table)
    for action, following in pairwise([*actions, None]):
        assert action
        messages.wait(messages.one_by_one(received(action, messages.placement)))
        passes.take(action)
        outgoing.made(action)
        leaving = sent(action, messages.placement)
        posted = messages.one_by_one(leaving)
        outgoing.posted(dict(zip(leaving, posted, strict=True)))
        sends += posted
        if following is None or following.kind is not action.kind:
            messages.wait(sends)
            outgoing.waited()
            sends = []


def torch_1f1b(messages: Messages, stages: Mapping[int, Stage], table: Table) -> None:
    """Run torch's 1F1B: a send goes with the receive of the other direction, waited for at once.

    A send overlaps one more computation only while all messages go in one direction. The gradient that was
    sent last is held until the next is made.
    """
    passes, outgoing = Passes(stages, table), Outgoing(messages)
    actions = computed(table)
    fuses = alternates(actions, messages.placement.ranks - 1 - messages.position)
    under_way: list[int] = []
    if actions:
        messages.wait(messages.one_by_one(received(actions[0], messages.placement)))
    for action, following in pairwise([*actions, None]):
        assert action
        passes.take(action)
        if action.kind in ENDS:
            outgoing.waited()
        outgoing.made(action)
        messages.wait(under_way)
        needed = received(following, messages.placement) if following else []
        if fuses and following and following.kind is not action.kind:
            messages.wait(messages.mixed_batch([*sent(action, messages.placement), *needed]))
            under_way = []
        else:
            under_way = messages.one_by_one(sent(action, messages.placement))
            messages.wait(messages.one_by_one(needed))
    messages.wait(under_way)
    outgoing.waited()
