"""Megatron-LM's runtimes of 1F1B and interleaved 1F1B (core/pipeline_parallel/schedules.py).

Orders are torch's if groups of micro-batches are of one size; the times of messages differ.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from ringside.sim.training.pipeline.actions import BACKWARDS, Action, Kind, Table, met, received, sent
from ringside.sim.training.pipeline.runtimes import SENDS, Messages, Passes, alternates, computed
from ringside.sim.training.stage import Stage


def megatron_1f1b(messages: Messages, stages: Mapping[int, Stage], table: Table) -> None:
    """Run 1F1B: each exchange is a batch on the pipeline's communicator, and waited for at once."""
    passes = Passes(stages, table)
    actions = computed(table)
    fuses = alternates(actions, messages.placement.ranks - 1 - messages.position)
    if actions:
        messages.wait(messages.batch(received(actions[0], messages.placement)))
    for action, following in pairwise([*actions, None]):
        assert action
        passes.take(action)
        needed = received(following, messages.placement) if following else []
        if fuses and following and following.kind is not action.kind:
            messages.wait(messages.batch([*sent(action, messages.placement), *needed]))
        else:
            messages.wait(messages.batch(sent(action, messages.placement)))
            messages.wait(messages.batch(needed))


def megatron_interleaved(
    messages: Messages, stages: Mapping[int, Stage], table: Table, *, overlap: bool = False
) -> None:
    """Run interleaved 1F1B, in which all ranks step together: one exchange with both neighbours per step.

    With ``overlap`` (overlap_p2p_comm) messages are separate, and waited for before they are used.
    """
    step = _Steps(messages, Passes(stages, table), computed(table))
    step.overlapped() if overlap else step.batched()


class _Steps:
    """The steps of one rank: forwards ahead, then a forward and a backward in turn, then backwards."""

    def __init__(self, messages: Messages, passes: Passes, actions: Sequence[Action]) -> None:
        self._messages = messages
        self._passes = passes
        self._placement = messages.placement
        self._hops = self._placement.ranks - 1
        self._forwards = [action for action in actions if action.kind is Kind.FORWARD]
        self._backwards = [action for action in actions if action.kind in BACKWARDS]
        self._count = len(self._forwards)
        self._ahead = self._forwards_ahead()
        self._arriving: dict[Action, int] = {}
        self._leaving: dict[Kind, list[int]] = {}

    def batched(self) -> None:
        """Write each exchange as a batch, waited for at once."""
        forwards, backwards, ahead = self._forwards, self._backwards, self._ahead
        self._batch(self._received(forwards[0]))
        for number in range(ahead):
            self._passes.take(forwards[number])
            first = self._received(backwards[0]) if number == ahead - 1 and ahead < self._count else []
            self._batch([*self._forward_exchange(number), *first])
        for number in range(self._count - ahead):
            self._take_both(forwards[ahead + number], backwards[number])
            self._batch([*self._forward_exchange(ahead + number), *self._backward_exchange(number)])
        if ahead == self._count:
            self._batch(self._received(backwards[0]))
        for number in range(self._count - ahead, self._count):
            self._passes.take(backwards[number])
            self._batch(self._backward_exchange(number))

    def overlapped(self) -> None:
        """Write each message separately: a rank computes while others are in flight."""
        forwards, backwards, ahead = self._forwards, self._backwards, self._ahead
        self._apart(self._received(forwards[0]))
        for number in range(self._count + ahead):
            is_pair = self._passes.overlaps and ahead <= number < self._count
            if is_pair:
                self._arrive(forwards[number])
                self._arrive(backwards[number - ahead])
                self._passes.take_pair(forwards[number], backwards[number - ahead])
            if number < self._count:
                if not is_pair:
                    self._take(forwards[number])
                self._apart(self._forward_exchange(number))
            if number == ahead - 1:
                self._apart(self._received(backwards[0]))
            if number >= ahead:
                if not is_pair:
                    self._take(backwards[number - ahead])
                self._apart(self._backward_exchange(number - ahead))
        for leaving in self._leaving.values():
            self._messages.wait(leaving)

    def _forwards_ahead(self) -> int:
        """Return the number of forwards ahead, given the size of groups: one stage's first forwards."""
        first = self._forwards[0].stage
        group = next(
            (place for place, action in enumerate(self._forwards) if action.stage != first), self._count
        )
        short = min(group, self._count // self._placement.stages_a_rank % group or group)
        if self._placement.stages_a_rank > 1 and short <= self._hops:
            raise ValueError(
                f"{short} micro-batches in a group, but Megatron-LM needs at least one per rank; "
                f"write {self._hops + 1} micro-batches or more"
            )
        ahead = (self._placement.stages_a_rank - 1) * group + 2 * (self._hops - self._messages.position)
        # the last stage's first pair would be of one micro-batch
        return min(ahead + self._passes.overlaps, self._count)

    def _forward_exchange(self, number: int) -> list[Action]:
        """Return how a forward's result is sent, and the next receive: the first rank's from the last."""
        own = self._forwards[number]
        if number == self._count - 1:
            return sent(own, self._placement)
        if self._messages.position:
            return [*sent(own, self._placement), *self._received(self._forwards[number + 1])]
        return [*sent(own, self._placement), *self._around(self._forwards, number, self._hops)]

    def _backward_exchange(self, number: int) -> list[Action]:
        """Return the same for a backward: the last rank's receive from the first."""
        own = self._backwards[number]
        if number == self._count - 1:
            return sent(own, self._placement)
        if self._messages.position < self._hops:
            return [*sent(own, self._placement), *self._received(self._backwards[number + 1])]
        return [*sent(own, self._placement), *self._around(self._backwards, number, -self._hops)]

    def _around(self, own: Sequence[Action], number: int, away: int) -> list[Action]:
        """Return the action whose result the other rank sends then; it is one step behind per hop."""
        if number < self._hops:
            return []
        other = own[number - self._hops]
        return [met(one) for one in sent(other._replace(stage=other.stage + away), self._placement)]

    def _received(self, action: Action) -> list[Action]:
        return received(action, self._placement)

    def _batch(self, actions: Sequence[Action]) -> None:
        self._messages.wait(self._messages.batch(actions))

    def _take(self, action: Action) -> None:
        """Compute an action once its input has arrived."""
        self._arrive(action)
        self._passes.take(action)

    def _arrive(self, action: Action) -> None:
        self._messages.wait([self._arriving.pop(one) for one in self._received(action)])

    def _take_both(self, forward: Action, backward: Action) -> None:
        """Compute a forward and a backward, together where they hide each other's exchanges."""
        if self._passes.overlaps:
            self._passes.take_pair(forward, backward)
        else:
            self._passes.take(forward)
            self._passes.take(backward)

    def _apart(self, actions: Sequence[Action]) -> None:
        """Send first on even ranks; receive first on odd ranks, once the last send has left.

        Two ranks have one communicator per direction, and both directions run side by side.
        """
        even = not self._messages.position % 2
        for action in sorted(actions, key=lambda one: (one.kind in SENDS) is not even):
            sends = action.kind in SENDS
            own = "pair" if self._hops > 1 or sends is even else "world pair"
            if sends:
                self._messages.wait(self._leaving.pop(action.kind, []))
            places = self._messages.one_by_one([action], own)
            if sends:
                self._leaving[action.kind] = places
            else:
                self._arriving[action] = places[0]
