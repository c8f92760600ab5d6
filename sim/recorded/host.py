"""The operations of a recorded rank as its host posts them, one by one and ahead of its lanes."""

from collections.abc import Callable
from dataclasses import dataclass

from ringside.sim.program.operations import Compute, Operation, Wait
from ringside.sim.recorded.job import GroupCall, HostWait, Operator, PeerMessage, RecordedRank


@dataclass(frozen=True, slots=True)
class Shape:
    """A recorded rank's operations without actions; by operation the numbers of its ``actions``.

    The host's launches are operations of no number, with their action.
    ``places`` are by entry the places of operations.
    """

    recorded: RecordedRank
    operations: tuple[Operation, ...]
    actions: tuple[tuple[int, ...], ...]
    places: tuple[int, ...]


_NOTHING = Wait()


class PostedBy:
    """A host that posts operations in their order, and takes ``launch_s`` for each.

    An operation begins after its launch. A lane with enough work queued never waits for one, so only an
    operation whose lane may be idle by then, by the ``least_s`` of what it has, is ``after`` a launch. All
    launches since the last such one are a single operation. A wait holds the host; counting then restarts.
    """

    def __init__(self, on_stream: bool, launch_s: float, least_s: Callable[[object], float]) -> None:
        self._on_stream = on_stream
        self._launch_s = launch_s
        self._least_s = least_s
        self._operations: list[Operation] = []
        self._numbers: list[tuple[int, ...]] = []
        self._launched_s = self._told_s = 0.0
        self._launch: tuple[int, ...] = ()
        self._busy_s: dict[str, float] = {}

    def shape(self, one: RecordedRank) -> Shape:
        """Return the operations of a rank; neighbouring messages of one batch are one operation."""
        place_of: list[int] = []
        batch: tuple[int, str] | None = None
        names = [_named(action, on_stream=self._on_stream) for action in one.actions]
        least_s = [self._least_s(action) for action in one.actions]
        for entry in one.entries:
            action = one.actions[entry.action]
            own = (
                (action.batch, action.group)
                if isinstance(action, PeerMessage) and action.batch is not None
                else None
            )
            after = tuple(dict.fromkeys(place_of[earlier] for earlier in entry.after))
            if own is not None and own == batch:
                self._join(entry.action, after)
            else:
                name, category, holds = names[entry.action]
                is_posted = not isinstance(action, HostWait)
                after += self._launched(entry.lane, least_s[entry.action], is_posted=is_posted, holds=holds)
                where = one.places[entry.place].rpartition(":") if entry.place is not None else None
                self._append(
                    Operation(
                        _NOTHING, entry.lane, after, holds, name, category,
                        (where[0], int(where[2])) if where and where[2].isdecimal() else None,
                    ),
                    (entry.action,),
                )  # fmt: skip
            batch = own
            place_of.append(len(self._operations) - 1)
        return Shape(one, tuple(self._operations), tuple(self._numbers), tuple(place_of))

    def _append(self, operation: Operation, numbers: tuple[int, ...] = ()) -> None:
        self._operations.append(operation)
        self._numbers.append(numbers)

    def _join(self, number: int, after: tuple[int, ...]) -> None:
        """Have a message go with the one before it."""
        before, last = self._operations[-1], len(self._operations) - 1
        others = [earlier for earlier in after if earlier != last]
        self._operations[-1] = before._replace(after=tuple(dict.fromkeys((*before.after, *others))))
        self._numbers[-1] = (*self._numbers[-1], number)

    def _launched(self, lane: str, least_s: float, *, is_posted: bool, holds: bool) -> tuple[int, ...]:
        """Return the launch that an action is after: none where its lane is busy for longer."""
        if not self._launch_s:
            return ()
        if is_posted:
            self._launched_s += self._launch_s
        busy_s = self._busy_s.get(lane, -1.0)
        is_awaited = holds or self._launched_s > busy_s
        if is_awaited and self._launched_s > self._told_s:
            launch = Compute(self._launched_s - self._told_s)
            self._append(Operation(launch, None, self._launch, name="launch", category="launch"))
            self._launch = (len(self._operations) - 1,)
            self._told_s = self._launched_s
        awaited = self._launch if is_awaited else ()
        self._busy_s[lane] = max(busy_s, self._launched_s) + least_s
        if holds:
            self._launched_s = self._told_s = 0.0
            self._launch = ()
            self._busy_s.clear()
        return awaited


def _named(action: object, *, on_stream: bool) -> tuple[str, str, bool]:
    """Return an action's name, its category, and whether its host waits for it."""
    match action:
        case Operator():
            return action.name.removeprefix("aten."), "compute", False
        case GroupCall():
            return action.name, action.collective, action.waits and not on_stream
        case PeerMessage():
            return "send" if action.is_send else "recv", "message", False
        case HostWait():
            return action.name, "wait", True
    raise TypeError(f"{action!r} is no action of a recorded job")
