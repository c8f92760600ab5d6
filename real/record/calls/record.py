"""Put collectives and messages of the device on the tape."""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from ringside.real.record.calls import numbers, schemas
from ringside.real.record.calls.work import RecordedWork
from ringside.real.record.rules.regions import REGIONS
from ringside.real.record.script import answers, values
from ringside.real.record.script.refusal import refusal
from ringside.real.record.script.tape import TAPE
from ringside.sim.recorded.job import GroupCall, PeerMessage

_entries: dict[int, int] = {}
"""Entries of functional collectives by the storage of their result."""

written: dict[int, str] = {}
"""Storages that a collective wrote or read, and which one."""


def record(func: Any, args: Any, kwargs: Any) -> Any:
    """Post a call; return what its operator returns."""
    call = schemas.parse(func, args, kwargs, TAPE.batch)
    if call is None:
        raise refusal(f"{func} is not a known collective", "use those of torch.distributed")
    action = call.action
    is_beside = isinstance(action, PeerMessage) or not action.waits
    line = TAPE.line(_lane(action)) if is_beside else None
    entry = TAPE.post(action, line, TAPE.current.reached() if is_beside else ())
    REGIONS.see(entry, values.tensors_in((*args, *kwargs.values())), ())
    if not call.returns_work:
        return _functional(func, args, kwargs, call, entry)
    tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    for one in tensors:
        TAPE.keep(one.untyped_storage())
        if isinstance(action, GroupCall):
            _mark(one, action)
    arrive = numbers.exchange(call)
    is_barrier = isinstance(action, GroupCall) and action.name == "barrier"
    outputs = _outputs(func, call.arguments, tensors)
    work = RecordedWork(entry, outputs, is_host_wait=is_barrier, arrive=arrive)
    return returned(func, args, work)


def returned(func: Any, args: Any, work: RecordedWork) -> Any:
    """Return what an operator of c10d returns: its tensors with the work, or that alone."""
    boxed = work.boxed()
    return boxed if len(func._schema.returns) == 1 else (args[0], boxed)


def wait_tensor(func: Any, args: Any, kwargs: Any) -> Any:
    """Have the current stream wait for a functional collective."""
    (tensor,) = args
    storage = TAPE.number_of(tensor.untyped_storage())
    entry = None if storage is None else _entries.pop(storage, None)
    if entry is not None:
        TAPE.current.pending.add(entry)
    return tensor


def _lane(action: GroupCall | PeerMessage) -> str:
    """Return the lane of an asynchronous call.

    ``ProcessGroupNCCL`` has a stream for each group, and one for each pair of ranks with messages that are
    not of a batch.
    """
    if isinstance(action, GroupCall) or action.batch is not None:
        return action.group
    return f"{action.group}:{action.peer}"


def _functional(func: Any, args: Any, kwargs: Any, call: schemas.ParsedCall, entry: int) -> Any:
    result = answers.of(func, args, kwargs)
    for one in tree_leaves(result):
        storage = one.untyped_storage()
        TAPE.keep(storage)
        number = TAPE.number_of(storage)
        if number is not None:
            _entries[number] = entry
        assert isinstance(call.action, GroupCall)
        _mark(one, call.action)
    numbers.of_functional(call, result)
    return result


def _mark(tensor: torch.Tensor, action: GroupCall) -> None:
    number = TAPE.number_of(tensor.untyped_storage())
    if number is not None:
        written.setdefault(number, action.collective)


def _outputs(func: Any, arguments: dict[str, Any], tensors: list[Any]) -> list[Any]:
    for name in ("output_tensors", "output_tensor", "outputs", "output", "tensors"):
        if name in arguments:
            return [one for one in tree_leaves(arguments[name]) if isinstance(one, torch.Tensor)]
    return [one for one in tensors if isinstance(one, FakeTensor)]


def end_of_backward() -> None:
    """Have the current stream wait for what C++ waits for at the end of backward: DDP's buckets."""
    TAPE.current.pending |= set(TAPE.in_flight.values())
    TAPE.in_flight.clear()
