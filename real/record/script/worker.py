"""One recorded rank, in a process of its own."""

import os
import runpy
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy
import torch

from ringside.real.record.calls import batches, ddp, groups, mailbox, objects, started
from ringside.real.record.part import RankOrder, RankPart
from ringside.real.record.processes import environment
from ringside.real.record.rules import regions, samples
from ringside.real.record.script import attention, cuda, device, limits, places, sharding, tensors
from ringside.real.record.script.mode import DeviceMode
from ringside.real.record.script.purposes import Purposes
from ringside.real.record.script.refusal import Refusal
from ringside.real.record.script.step import recorded_step
from ringside.real.record.script.steps import ENOUGH, Steps
from ringside.real.record.script.tape import TAPE
from ringside.real.record.shims import install as shims


def begin(file: str) -> None:
    """Run the script of an order, and write what it recorded."""
    order = RankOrder.read(Path(file))
    os.environ.update(environment(order))
    numpy.random.seed()  # as in a process that was started; Python does so with its own
    Worker(order).run()


class Worker:
    """The process of an order, which ends as soon as enough is recorded."""

    def __init__(self, order: RankOrder) -> None:
        self._order = order
        self._process = os.getpid()
        self._purposes = Purposes()
        self._steps = Steps(order.steps, self.end, order.like)

    def run(self) -> None:
        """Run the script until enough steps are recorded."""
        try:
            install(self._order, (self._steps, self._purposes))
            error = self._run()
        except (device.DeviceError, Refusal) as failure:
            error = str(failure)
        self.end(error)

    def end(self, error: str = "") -> None:
        """Write what is recorded, or why nothing is, and end: scripts catch everything, and have threads."""
        if os.getpid() == self._process:
            self._part(str(Refusal.first or error)).write(Path(self._order.result))
        _leave(0)

    def _part(self, error: str) -> RankPart:
        part = RankPart(
            rank=self._order.rank, torch=torch.__version__, steps=len(self._steps.marks),
            period=self._steps.period or 1, notes=tuple(dict.fromkeys(TAPE.notes)), error=error,
        )  # fmt: skip
        if error:
            return part
        recorded, own = recorded_step(self._order.rank, self._steps, self._purposes)
        _, begin, end = self._steps.bounds()
        return replace(
            part, posted=end.entries - begin.entries, recorded=recorded, groups=own,
            uneven=tuple(sharding.uneven), samples=samples.of_step(self._steps),
            notes=(*self._steps.notes(), *part.notes),
        )  # fmt: skip

    def _run(self) -> str:
        """Run the script; return why nothing was recorded, empty if something was."""
        order, end = self._order, "ended"
        try:
            run_script(order)
        except BaseException as failure:
            if os.getpid() != self._process:
                raise  # a child that the script has forked ends as it would
            if isinstance(failure, Refusal):
                return str(failure)
            if not isinstance(failure, SystemExit):
                traceback.print_exc()
                return _of(failure, places.of(failure))
            if failure.code and len(self._steps.marks) < ENOUGH and not Refusal.first:
                _leave(failure.code)
            end = f"exited with {failure.code!r}"
        if self._steps.marks:
            return ""
        return (
            f"the script {end} before its first optimizer step, recording needs one, better {ENOUGH}; "
            "give it more steps by its own arguments"
        )


def install(order: RankOrder, observers: Iterable[Any]) -> None:
    """Put the device and all else that a script meets in place; ``observers`` install themselves too."""
    index = order.rank % order.per_node
    torch.set_num_threads(1)
    device.install(index, order.per_node)
    TAPE.with_places = order.with_source
    mailbox.use(Path(order.mail), order.rank)
    cuda.install(index, order.per_node)
    tensors.install()
    attention.install()
    regions.install()
    sharding.install()
    for module in (groups, objects, batches, ddp, started, *observers, samples):
        module.install()
    shims.install(order.shims, order.without)
    limits.install(str(Path(order.result).parent))


def _leave(code: int | str | None) -> NoReturn:
    """End the process with what `sys.exit` was given, without the script's handlers and threads."""
    with suppress(Exception):  # the script may have closed them
        if isinstance(code, str):
            sys.stderr.write(f"{code}\n")
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 255 if isinstance(code, int) else int(code is not None))


def run_script(order: RankOrder) -> None:
    """Run the script to its end."""
    sys.argv = [order.script, *order.arguments]
    sys.path.insert(0, os.getcwd() if order.is_module else os.path.dirname(os.path.abspath(order.script)))
    with DeviceMode():  # type: ignore[no-untyped-call]
        if order.is_module:
            runpy.run_module(order.script, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(order.script, run_name="__main__")


def _of(failure: BaseException, place: str | None) -> str:
    """Return a failure of the script's in a line."""
    text = " ".join(str(failure).split())
    where = f"{place}: " if place else ""
    return f"{where}{type(failure).__name__}: {text}"[:500]
