"""The handle of a recorded call: who waits for it waits for its entry on the tape."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ringside.real.record.script.tape import TAPE

_alive: dict[int, "RecordedWork"] = {}
"""Works not waited for yet. They must outlive Python's last reference, since C++ calls their methods."""


class RecordedWork(dist.Work):
    """What an asynchronous call returns.

    ``arrive`` puts known numbers into the tensors, when the host has waited.
    """

    def __init__(
        self, entry: int | None, tensors: list[Any], *, is_host_wait: bool = False,
        arrive: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.entry = entry
        self.tensors = tensors
        self._is_host_wait = is_host_wait
        self._arrive = arrive
        _alive[id(self)] = self

    def wait(self, timeout: Any = None) -> bool:
        """Have the current stream wait, or the host for a barrier."""
        entry, line = self.entry, TAPE.current
        if entry is not None:
            if self._is_host_wait:
                TAPE.wait("barrier", {entry})
            elif TAPE.entries[entry].lane != line.name:
                line.pending.add(entry)
        if self._arrive is not None:
            self._arrive()
            self._arrive = None
        _alive.pop(id(self), None)
        return True

    def synchronize(self) -> None:
        """Do `wait`."""
        self.wait()

    def block_current_stream(self) -> None:
        """Do `wait`."""
        self.wait()

    def is_completed(self) -> bool:
        """Return that the call is done."""
        return True

    def is_success(self) -> bool:
        """Return that it went well."""
        return True

    def exception(self) -> None:
        """Return that nothing went wrong."""

    def result(self) -> list[Any]:
        """Return the tensors."""
        return self.tensors

    def get_future(self) -> Any:
        """Return a completed future; who uses its tensors waits for the call."""
        if self.entry is not None:
            for one in self.tensors:
                storage = TAPE.number_of(one.untyped_storage())
                if storage is not None:
                    TAPE.in_flight[storage] = self.entry
                    TAPE.reduced.add(storage)
        future: Any = torch.futures.Future()
        future.set_result(self.tensors)
        _alive.pop(id(self), None)
        return future
