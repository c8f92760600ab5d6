"""Ranks that a script starts itself, with ``torch.multiprocessing``: it is one of them."""

import os
from collections.abc import Callable
from importlib import import_module
from multiprocessing import Process
from types import SimpleNamespace
from typing import Any, ClassVar

from ringside.real.record.script.refusal import refusal


def install() -> None:
    """Have a script that starts ranks with ``torch.multiprocessing`` go on as the one that is recorded."""
    processes: Any = import_module("torch.multiprocessing")
    starter: Any = import_module("torch.multiprocessing.spawn")
    for name in ("spawn", "start_processes"):
        setattr(processes, name, _spawn)
        setattr(starter, name, _spawn)
    if int(os.environ["WORLD_SIZE"]) > 1:
        processes.Process = _process


def _spawn(fn: Any, args: Any = (), nprocs: int = 1, join: bool = True, *_: Any, **__: Any) -> Any:
    """Do ``torch.multiprocessing.spawn`` for this rank alone."""
    fn(_own_index(nprocs), *args)
    return None if join else SimpleNamespace(join=lambda *_, **__: True, processes=[])


def _own_index(count: int) -> int:
    """Return this rank's place among as many processes."""
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_node = int(os.environ["LOCAL_WORLD_SIZE"])
    if count not in (ranks, on_node):
        raise refusal(
            f"the script starts {count} ranks of its own, {ranks} are recorded",
            f"record {count} with -g {count}",
        )
    return rank if count == ranks else rank % on_node


class _RankProcess:
    """``torch.multiprocessing.Process`` of a rank: that which is recorded runs when the first is joined."""

    exitcode, pid, daemon = 0, None, False
    started: ClassVar[list["_RankProcess"]] = []
    made: ClassVar[int] = 0

    def __init__(self, target: Any, args: Any, kwargs: Any) -> None:
        self.run: Callable[[], Any] = lambda: target(*args, **(kwargs or {}))
        _RankProcess.made += 1

    def start(self) -> None:
        """Start with the others."""
        self.started.append(self)

    def join(self, timeout: Any = None) -> None:
        """Run the one that is recorded."""
        started = list(self.started)
        self.started.clear()
        if started:
            started[_own_index(len(started))].run()

    def is_alive(self) -> bool:
        """Return that it ended."""
        return False


def _process(group: Any = None, target: Any = None, name: Any = None, args: Any = (), kwargs: Any = None,
             **more: Any) -> Any:  # fmt: skip
    """Return a process of a rank, if its first argument counts ranks; else one of the machine."""
    if args and type(args[0]) is int and args[0] == _RankProcess.made:
        return _RankProcess(target, args, kwargs)
    return Process(group, target, name, args, kwargs or {}, **more)
