"""Messages and collectives that go together: batches of isend and irecv, and coalesced calls."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from ringside.real.record.script.patches import everywhere
from ringside.real.record.script.tape import TAPE

_coalescing = c10d._coalescing_manager


def install() -> None:
    """Replace the functions of torch.distributed."""
    everywhere(dist.batch_isend_irecv, _batch_isend_irecv)
    everywhere(c10d._coalescing_manager, _coalescing_manager)


@contextmanager
def _batch() -> Iterator[None]:
    before = TAPE.batch
    if before is None:
        TAPE.batch, TAPE.batches = TAPE.batches, TAPE.batches + 1
    try:
        yield
    finally:
        TAPE.batch = before


def _batch_isend_irecv(p2p_op_list: list[Any]) -> list[Any]:
    with _batch():
        own = []
        for one in p2p_op_list:
            peer = {"group_dst": one.group_peer} if one.op is dist.isend else {"group_src": one.group_peer}
            own.append(one.op(one.tensor, group=one.group, tag=one.tag, **peer))
        return [work for work in own if work is not None]


@contextmanager
def _coalescing_manager(group: Any = None, device: Any = None, async_ops: bool = False) -> Iterator[Any]:
    """Post calls in a block together; with a device PyTorch has its backend group them."""
    if device is None:
        with _coalescing(group, device, async_ops) as manager:
            yield manager
        return
    manager = c10d._CoalescingManager()
    with _batch():
        yield manager
