"""The load of each link of a simulated network, and how long messages waited for it.

Simulations inside a ``with`` are counted, however deep:

with counted() as loads:     simulate(plan, graph) loads[0].busiest(10)
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """One direction of a cable over one collective.

    ``busy`` is the share of the time in which its bandwidth is in use; a message waits, in seconds, from its
    head's arrival until its first byte leaves. Pieces and segments count as messages.
    """

    link: str
    nbytes: int
    busy: float
    messages: int
    wait_mean_s: float
    wait_max_s: float


class Load:
    """The links of one network during one simulation, which lasts until ``time_s``."""

    def __init__(self, names: Sequence[str], bandwidths: Sequence[float]) -> None:
        self._names, self._bandwidths = names, bandwidths
        self._nbytes = [0] * len(names)
        self._messages = [0] * len(names)
        self._waited = [0.0] * len(names)
        self._longest = [0.0] * len(names)
        self.time_s = 0.0

    def take(self, link: int, nbytes: int, waited: float, tail: float) -> None:
        """Count a message whose tail has passed a link at ``tail``."""
        self._nbytes[link] += nbytes
        self._messages[link] += 1
        self._waited[link] += waited
        if waited > self._longest[link]:
            self._longest[link] = waited
        if tail > self.time_s:
            self.time_s = tail

    def links(self) -> list[LinkLoad]:
        """Return the links that carried messages, by falling load, then by falling waits."""
        loads = [
            LinkLoad(
                self._names[link], self._nbytes[link], self._busy(link), count,
                self._waited[link] / count, self._longest[link],
            )
            for link, count in enumerate(self._messages)
            if count
        ]  # fmt: skip
        return sorted(loads, key=lambda one: (-round(one.busy, 9), -round(one.wait_mean_s, 12), one.link))

    def _busy(self, link: int) -> float:
        return self._nbytes[link] / self._bandwidths[link] / self.time_s if self.time_s else 0.0


_counting: ContextVar[list[Load] | None] = ContextVar("counting", default=None)


@contextmanager
def counted() -> Iterator[list[Load]]:
    """Count the load of links in every simulation inside the block; one entry each, in order."""
    loads: list[Load] = []
    token = _counting.set(loads)
    try:
        yield loads
    finally:
        _counting.reset(token)


def load_of(names: Sequence[str], bandwidths: Sequence[float]) -> Load | None:
    """Return the counter for a new network, if counting is on."""
    loads = _counting.get()
    if loads is None:
        return None
    loads.append(Load(names, bandwidths))
    return loads[-1]
