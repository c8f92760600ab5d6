"""Collectives of the host's tensors: they are not recorded; their results are as if all ranks agreed."""

from typing import Any

from torch.utils._pytree import tree_leaves

from ringside.real.record.calls import numbers, schemas
from ringside.real.record.calls.record import returned
from ringside.real.record.calls.work import RecordedWork
from ringside.real.record.script.tape import TAPE


def answer(func: Any, args: Any, kwargs: Any) -> Any:
    """Return what an operator of a process group returns for tensors of the host."""
    if func.__name__.startswith("monitored_barrier"):
        return None
    call = schemas.parse(func, args, kwargs, None)
    if call is None or not call.returns_work:
        return func(*args, **kwargs)
    if func.__name__.startswith("barrier"):
        from ringside.real.record.calls.record import record

        return record(func, args, kwargs)
    TAPE.notes["collectives of the host's tensors are not recorded"] += 1
    arrive = numbers.exchange(call)
    tensors = [one for one in tree_leaves((args, kwargs)) if hasattr(one, "untyped_storage")]
    return returned(func, args, RecordedWork(None, tensors, arrive=arrive))
