"""torch.distributed by byte counts, with the start and end of each operation."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from ringside.real.clock import Stamps
from ringside.real.program.distributed import RealDistributed

_COLLECTIVES = (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "gather", "scatter",
    "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single", "barrier",
    "monitored_barrier", "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list",
)  # fmt: skip

_MESSAGES = ("send", "recv", "isend", "irecv", "batch_isend_irecv", "send_object_list", "recv_object_list")

_CATEGORIES = {
    "compute": "compute",
    **dict.fromkeys(_COLLECTIVES, "collective"),
    **dict.fromkeys(_MESSAGES, "message"),
}


class Timed:
    """A `RealDistributed` whose operations are timed: ``spans`` are [begin, end, category, name], in order.

    An asynchronous operation begins with its call and ends with its ``wait``, or else with the job. Gloo
    forgets a message whose Work is dropped, so no Work is kept here.
    """

    def __init__(self, real: RealDistributed, clock: Stamps) -> None:
        self.spans: list[list[Any]] = []
        self._real = real
        self._clock = clock
        self._open: dict[int, TimedWork] = {}

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._real, name)
        if name not in _CATEGORIES:
            return attribute
        self.__dict__[name] = timed = self._timed(name, attribute)
        return timed

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self._real.device

    def run(self, main: Callable[[Any], Any]) -> dict[str, Any]:
        """Run a job until its collectives have ended too; return its times in seconds."""
        self.spans = []
        self._real.again()
        self._clock.begin()
        begin = self._clock.now()
        main(self)
        for work in list(self._open.values()):
            work.wait()
        self._real.synchronize()
        end, moment = self._clock.now(), self._clock.seconds
        spans = [
            [moment(first), moment(end if last is None else last), *what] for first, last, *what in self.spans
        ]
        return {"begin": moment(begin), "end": moment(end), "spans": spans}

    def _timed(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def timed(*arguments: Any, **options: Any) -> Any:
            begin = self._clock.now()
            given = call(*arguments, **options)
            if isinstance(given, list):
                return [self._work(work, name, begin) for work in given]
            if hasattr(given, "wait"):
                return self._work(given, name, begin)
            self.spans.append([begin, self._clock.now(), _CATEGORIES[name], name])
            return given

        timed.__name__ = name
        return timed

    def _work(self, work: Any, name: str, begin: Any) -> "TimedWork":
        span = [begin, None, _CATEGORIES[name], name]
        self.spans.append(span)
        return TimedWork(work, span, self)


class TimedWork:
    """The result of an asynchronous call; its span ends with its wait."""

    def __init__(self, work: Any, span: list[Any], timed: Timed) -> None:
        self._work = work
        self._span = span
        self._timed = timed
        if span[2] != "message" or timed.device.type != "cpu":
            timed._open[id(self)] = self

    def wait(self, *arguments: Any) -> bool:
        """Wait as the library does."""
        begin = self._timed._clock.now()
        self._work.wait(*arguments)
        end = self._timed._clock.now()
        self._timed.spans.append([begin, end, "wait", f"wait for {self._span[3]}"])
        self._timed._open.pop(id(self), None)
        if self._span[1] is None:
            self._span[1] = end
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._work, name)
