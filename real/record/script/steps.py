"""Where steps end, and the steady one: the last, if it equals the one before it.

A step ends with the last optimizer step before the next backward, as some packages step one optimizer for
each part of the parameters. Where optimizers take turns, as in a GAN, it is as many such ends as repeat.
"""

import gc
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from itertools import pairwise
from typing import Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from ringside.real.record.rules.regions import REGIONS
from ringside.real.record.script.patches import Function, around_backward
from ringside.real.record.script.tape import TAPE, Posted
from ringside.sim.recorded.job import Action, PeerMessage

ENOUGH = 3
"""Optimizer steps that two steps take, as the first has no beginning; of fewer the last step is recorded."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of an optimizer step: the number of entries, and of changes of memory.

    ``turns`` are the optimizer steps since the last one of each optimizer that stepped, 0 for its first.
    """

    entries: int
    memory: int
    turns: tuple[int, ...] = ()


class Steps:
    """The steps of a script so far; ``end`` is called where the last one is steady, or enough are recorded.

    At most ``at_most`` are recorded, each as long as an optimizer waits for its next turn. ``like`` are the
    optimizer steps of the rank that this one should equal, those of its last step, and the entries of that.
    """

    def __init__(
        self, at_most: int, end: Callable[[], None], like: tuple[int, int, int] | None = None
    ) -> None:
        self.marks: list[Mark] = []
        self.period = 0
        """The optimizer steps of a step: the fewest that repeat; 0 if none do."""
        self._start = Mark(0, 0)
        """Where the last optimizer was made before the first step, which begins there for want of another."""
        self._end = end
        self._at_most = at_most
        self._like = like
        self._stepped_at: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """The number of the mark at which an optimizer stepped last."""
        self._made: weakref.WeakSet[Any] = weakref.WeakSet()
        """Optimizers that are alive."""
        self._is_over = False

    def install(self) -> None:
        """See optimizers made and step, and backwards begin."""
        REGIONS.is_enabled = self._like is None or self._like[0] < ENOUGH  # else the first step is not kept
        optimizer: Any = Optimizer
        optimizer.__init__ = self._seen(optimizer.__init__)
        register_optimizer_step_post_hook(self._stepped)
        around_backward(self._begun)

    def _seen(self, make: Function) -> Function:
        @wraps(make)
        def made(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            make(optimizer, *args, **kwargs)
            self._made.add(optimizer)
            if not self.marks:
                self._start = Mark(len(TAPE.entries), len(TAPE.memory))

        return made

    def _begun(self, run: Function) -> Function:
        def backward(*args: Any, **kwargs: Any) -> Any:
            self._is_over = bool(self.marks)
            longest = max((one for mark in self.marks for one in mark.turns), default=0)
            if len(self.marks) >= (self._at_most + 1) * max(longest, 1):
                self._end()
            return run(*args, **kwargs)

        return backward

    def _stepped(self, optimizer: Any, *_: Any) -> None:
        turns: tuple[int, ...] = ()
        if self.marks and not self._is_over:
            turns = self.marks.pop().turns
        self._is_over, REGIONS.is_enabled = False, True
        number = len(self.marks)
        turn = number - self._stepped_at.get(optimizer, number)
        self._stepped_at[optimizer] = number
        self.marks.append(Mark(len(TAPE.entries), len(TAPE.memory), (*turns, turn)))
        self.period = self._repeating()
        if self._is_whole():
            self._end()

    def _is_whole(self) -> bool:
        """Return whether the last step equals the one before it, or that of the rank that it should equal."""
        if self._like is not None:
            steps, period, entries = self._like
            if len(self.marks) in (steps - period, steps) and len(self.marks) > period:
                begin, end = self.marks[-1 - period], self.marks[-1]
                if end.entries - begin.entries == entries:
                    self.period = period
                    return True
        return bool(self.period) and not self._waiting()

    def _repeating(self) -> int:
        """Return the fewest optimizer steps that equal as many before them, with one of each optimizer.

        All so far are a multiple of it: the step ends where the script's loop does, on all ranks.
        """
        steps = [(after.entries - before.entries, after.turns) for before, after in pairwise(self.marks)]
        for period in range(self._since_all(), len(steps) // 2 + 1):
            if len(self.marks) % period or steps[-period:] != steps[-2 * period : -period]:
                continue
            if not self._change(period):
                return period
        return 0

    def _since_all(self) -> int:
        """Return the last optimizer steps in which each optimizer stepped."""
        return len(self.marks) - min(self._stepped_at.values(), default=0)

    def _waiting(self) -> list[Any]:
        """Return optimizers that have not stepped yet, but may: a GAN's first ones may step several times."""
        return [
            one
            for one in self._made
            if one not in self._stepped_at
            and any(
                own.requires_grad for group in vars(one).get("param_groups", ()) for own in group["params"]
            )
        ]

    def bounds(self) -> tuple[Mark, Mark, Mark]:
        """Return where the step before the last begins, if there is one, where the last does, and its end."""
        marks, period = self.marks, self.period or 1
        if len(marks) < ENOUGH:
            marks, period = [self._start, *marks], self._since_all()
        return marks[max(-1 - 2 * period, -len(marks))], marks[-1 - period], marks[-1]

    def notes(self) -> list[str]:
        """Return what to know of the step besides."""
        notes = [f"a step is {self.period} optimizer steps"] if self.period > 1 else []
        waiting = sorted({type(one).__name__ for one in self._waiting()})
        if waiting:
            notes.append(f"optimizers that have not stepped are not in the step: {', '.join(waiting)}")
        return notes

    def difference(self) -> str:
        """Return how the last step differs from the one before it, in a sentence; empty if it does not."""
        if self.period:
            return ""
        if len(self.marks) < ENOUGH:
            first = ", the first, with warm-up since its optimizer was made"
            return "only one step was recorded" + first * (self._since_all() == len(self.marks))
        return self._change(1) or "not all optimizers step in it"

    def _change(self, period: int) -> str:
        """Return how the last ``period`` optimizer steps differ from the ``period`` before them."""
        first, middle, last = (self.marks[-1 - number * period] for number in (2, 1, 0))
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


def instances_of(kind: type) -> list[Any]:
    """Return all objects of a class that there are."""
    kinds = set[type]()
    more: list[type[Any]] = [kind]
    while more:
        kinds.update(more)
        more = [one for known in more for one in type.__subclasses__(known)]
    return [one for one in gc.get_objects() if type(one) in kinds]


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
