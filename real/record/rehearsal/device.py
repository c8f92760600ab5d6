"""A device that carries out the tape while it is posted, each lane in its own thread.

An entry begins when the one before it on its lane has ended, and those that it waits for; an operator then
sleeps. The sleep ends when it is due, so a thread that wakes late does not delay what follows.
"""

import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Event, Thread
from typing import NamedTuple, Protocol

from ringside.sim.recorded.job import Action, GroupCall, HostWait, Operator, PeerMessage


class Waitable(Protocol):
    """A collective or message under way."""

    def wait(self) -> object:
        """Return when it has ended."""
        ...


class CallExchange(Protocol):
    """What carries out collectives and messages."""

    def start(self, action: GroupCall | PeerMessage, lane: str) -> Waitable | None:
        """Start one; return None for one that exchanges nothing."""
        ...


class Ending:
    """The end of an entry: its moment, on the machine's monotonic clock, once it has come."""

    def __init__(self) -> None:
        self._come = Event()
        self._moment = 0.0

    def come(self, moment: float) -> None:
        """Let the entry have ended."""
        self._moment = moment
        self._come.set()

    def wait(self) -> float:
        """Return the moment, when it has come."""
        self._come.wait()
        return self._moment


class _Posted(NamedTuple):
    action: Operator | GroupCall | PeerMessage
    after: list[Ending]
    moment: float
    ending: Ending


class _Lane:
    """A lane with its thread."""

    def __init__(self, name: str, seconds: Callable[[Operator], float], exchange: CallExchange) -> None:
        self.queue: SimpleQueue[_Posted] = SimpleQueue()
        self.last = Ending()
        self.last.come(0.0)
        self._name = name
        self._seconds = seconds
        self._exchange = exchange
        Thread(target=self._run, name=name, daemon=True).start()

    def post(self, action: Operator | GroupCall | PeerMessage, after: list[Ending], moment: float) -> Ending:
        """Append an entry that may begin at the moment; return its end."""
        self.last = Ending()
        self.queue.put(_Posted(action, after, moment, self.last))
        return self.last

    def _run(self) -> None:
        batch: int | None = None
        before: list[Ending] = []
        while True:
            posted = self.queue.get()
            action = posted.action
            own = action.batch if isinstance(action, PeerMessage) else None
            if own is None or own != batch:
                before, ended = [], [one.wait() for one in before]
            else:
                ended = []
            ready = max([posted.moment, *ended, *(one.wait() for one in posted.after)])
            before.append(posted.ending)
            batch = own
            if isinstance(action, Operator):
                end = ready + self._seconds(action)
                time.sleep(max(end - time.monotonic(), 0.0))
                posted.ending.come(end)
                continue
            work = self._exchange.start(action, self._name)
            if work is None:
                posted.ending.come(ready)
            elif own is None:
                _finish(work, posted.ending)
            else:  # those of its batch start before it has ended
                Thread(target=_finish, args=(work, posted.ending), daemon=True).start()


def _finish(work: Waitable, ending: Ending) -> None:
    work.wait()
    ending.come(time.monotonic())


class SleepingDevice:
    """The device of one rank; ``seconds`` of an operator are slept.

    As with ProcessGroupGloo, the host waits for a collective that is not asynchronous. What the host does
    between waits takes no time, as in a prediction, where it fits into the sleeps that it posts.
    """

    def __init__(self, seconds: Callable[[Operator], float], exchange: CallExchange) -> None:
        self._seconds = seconds
        self._exchange = exchange
        self._lanes: dict[str, _Lane] = {}
        self._endings: dict[int, Ending] = {}
        self._host = 0.0

    def begin(self, moment: float) -> None:
        """Have what is posted from now on begin at the moment, or later."""
        self._host = moment

    def post(self, number: int, action: Action, lane: str, after: Sequence[int]) -> None:
        """Carry out an entry of the tape; return when its host may go on."""
        endings = [self._endings[one] for one in after]
        if isinstance(action, HostWait):
            self._hold(*endings)
            self._endings[number] = ended = Ending()
            ended.come(self._host)
            return
        if lane not in self._lanes:
            self._lanes[lane] = _Lane(lane, self._seconds, self._exchange)
        ending = self._endings[number] = self._lanes[lane].post(action, endings, self._host)
        if isinstance(action, GroupCall) and action.waits:
            self._hold(ending)

    def _hold(self, *endings: Ending) -> None:
        self._host = max([self._host, *(one.wait() for one in endings)])

    def synchronize(self) -> float:
        """Return when all that was posted has ended, the latest moment of it."""
        return max((lane.last.wait() for lane in self._lanes.values()), default=0.0)
