"""Where steps end, and the steady one: the last, if it equals the one before it.

A step ends with the last optimizer step before the next backward: some scripts have several optimizers, and
some packages step one for each part of the parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from torch.optim.optimizer import register_optimizer_step_post_hook

from ringside.real.record.script.patches import Function, around_backward
from ringside.real.record.script.tape import TAPE, Posted
from ringside.sim.recorded.job import Action, PeerMessage


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of a step: the number of entries, and of changes of memory."""

    entries: int
    memory: int


class Steps:
    """The steps of a script so far; ``end`` is called where the last one is steady, or enough are recorded.

    At most ``at_most`` are recorded. ``like`` are the steps of the rank that this one should equal, and the
    entries of its last.
    """

    def __init__(self, at_most: int, end: Callable[[], None], like: tuple[int, int] | None = None) -> None:
        self.marks: list[Mark] = []
        self._end = end
        self._at_most = at_most
        self._like = like
        self._first: Any = None
        self._is_over = False

    def install(self) -> None:
        """See optimizers step, and backwards begin."""
        register_optimizer_step_post_hook(self._stepped)
        around_backward(self._begun)

    def _begun(self, run: Function) -> Function:
        def backward(*args: Any, **kwargs: Any) -> Any:
            self._is_over = bool(self.marks)
            if self.is_enough():
                self._end()
            return run(*args, **kwargs)

        return backward

    def is_enough(self) -> bool:
        """Return whether the last two steps are equal, or as many are recorded as may be."""
        if len(self.marks) < 3:
            return False
        return len(self.marks) > self._at_most or not self.difference()

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        if self._first is None:
            self._first = optimizer
        mark = Mark(len(TAPE.entries), len(TAPE.memory))
        if self.marks and not self._is_over:
            self.marks[-1] = mark
        elif optimizer is self._first or type(optimizer) is type(self._first):
            self.marks.append(mark)
        self._is_over = False
        if self._is_whole():
            self._end()

    def _is_whole(self) -> bool:
        """Return whether the last step equals the one before it, or that of the rank that it should equal."""
        entries = [after.entries - before.entries for before, after in pairwise(self.marks)]
        if self._like is not None:
            steps, last = self._like
            return len(self.marks) >= max(steps - 1, 2) and entries[-1] == last
        return len(entries) > 1 and entries[-1] == entries[-2] and not self.difference()

    def bounds(self) -> tuple[Mark, Mark]:
        """Return begin and end of the last step."""
        return self.marks[-2], self.marks[-1]

    def difference(self) -> str:
        """Return how the last step differs from the one before it, in a sentence; empty if it does not."""
        if len(self.marks) < 3:
            return "only one step was recorded"
        first, middle, last = self.marks[-3:]
        before = TAPE.entries[first.entries : middle.entries]
        after = TAPE.entries[middle.entries : last.entries]
        actions = list(TAPE.actions)
        for number, (one, other) in enumerate(zip(before, after, strict=False)):
            if _content(one, first, actions) != _content(other, middle, actions):
                change = _change(actions[one.action], actions[other.action])
                return f"entry {number} of {len(after)} {change}"
        if len(before) != len(after):
            return f"the step before it has {len(before)} entries, not {len(after)}"
        return ""


def _change(was: Action, now: Action) -> str:
    """Return how an entry changed, in a phrase."""
    if str(was) != str(now):
        return f"was {was}, is {now}"
    if _unnumbered(was) != _unnumbered(now):
        return f"{was} has other results or options"
    return f"{was} waits for others"


def _unnumbered(action: Action) -> Action:
    """Return an action without its batch, as batches are numbered through."""
    return replace(action, batch=None) if isinstance(action, PeerMessage) else action


def _content(posted: Posted, begin: Mark, actions: list[Action]) -> Any:
    after = tuple(one - begin.entries for one in posted.after if one >= begin.entries)
    return _unnumbered(actions[posted.action]), posted.lane, after
