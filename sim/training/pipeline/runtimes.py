"""Runtimes of a rank's table: its sends, receives and waits.

A runtime is called with the rank's `Messages`, its stages by their numbers in the pipeline, and its table.
The caller runs `Sharing.after_step` and the optimizer afterwards.
"""

from collections.abc import Callable, Mapping
from itertools import pairwise

from ringside.sim.training.pipeline.actions import Action, Kind, Table, singles
from ringside.sim.training.pipeline.lowering import received, sent
from ringside.sim.training.pipeline.messages import SENDS, Messages
from ringside.sim.training.pipeline.passes import Passes, alternates, computed
from ringside.sim.training.stage import Stage

Runtime = Callable[[Messages, Mapping[int, Stage], Table], None]
"""Writes one rank's part of a step into its list."""

_RECEIVES = (Kind.RECV_FORWARD, Kind.RECV_BACKWARD)


def torch_actions(messages: Messages, stages: Mapping[int, Stage], table: Table) -> None:
    """Run lowered tables as torch does: schedules with several stages per rank, and tables from CSV.

    A receive is posted at its place in the table and waited for before its use; sends are waited for last.
    Raise ValueError if a table sends a result that is not computed yet, or has been sent.
    """
    passes = Passes(stages, table)
    arriving: dict[Action, list[int]] = {}
    sends: list[int] = []
    made: set[Action] = set()
    for action in singles(table):
        if action.kind in SENDS:
            if action not in made:
                raise ValueError(f"{action} has nothing to send here; write it once, after its own pass")
            made.remove(action)
            sends += messages.one_by_one([action])
        elif action.kind in _RECEIVES:
            arriving[action] = messages.one_by_one([action])
        else:
            for needed in received(action, messages.placement):
                if needed not in arriving:
                    raise ValueError(f"{action} precedes {needed}; lower or correct the table")
                messages.wait(arriving.pop(needed))
            passes.take(action)
            made.update(sent(action, messages.placement))
    if arriving:
        raise ValueError(f"nothing in the table needs {', '.join(map(str, arriving))}")
    messages.wait(reversed(sends))


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
    passes = Passes(stages, table)
    sends: list[int] = []
    actions = computed(table)
    for action, following in pairwise([*actions, None]):
        assert action
        messages.wait(messages.one_by_one(received(action, messages.placement)))
        passes.take(action)
        sends += messages.one_by_one(sent(action, messages.placement))
        if following is None or following.kind is not action.kind:
            messages.wait(sends)
            sends = []


def torch_1f1b(messages: Messages, stages: Mapping[int, Stage], table: Table) -> None:
    """Run torch's 1F1B: a send goes with the receive of the other direction, waited for at once.

    A send overlaps one more computation only while all messages go in one direction.
    """
    passes = Passes(stages, table)
    actions = computed(table)
    fuses = alternates(actions, messages.placement.ranks - 1 - messages.position)
    under_way: list[int] = []
    if actions:
        messages.wait(messages.one_by_one(received(actions[0], messages.placement)))
    for action, following in pairwise([*actions, None]):
        assert action
        passes.take(action)
        messages.wait(under_way)
        needed = received(following, messages.placement) if following else []
        if fuses and following and following.kind is not action.kind:
            messages.wait(messages.mixed_batch([*sent(action, messages.placement), *needed]))
            under_way = []
        else:
            under_way = messages.one_by_one(sent(action, messages.placement))
            messages.wait(messages.one_by_one(needed))
    messages.wait(under_way)
