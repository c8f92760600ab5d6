"""What becomes of numbers that ranks exchange: others have what this one has, unless they send theirs."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from ringside.real.record.calls import mailbox
from ringside.real.record.calls.schemas import ParsedCall
from ringside.real.record.script import values
from ringside.sim.recorded.job import GroupCall, PeerMessage


def exchange(call: ParsedCall) -> Callable[[], None] | None:
    """Take known numbers to where a call brings them; return what is to do when its end is waited for."""
    if isinstance(call.action, PeerMessage):
        return _message(call, call.action)
    own = call.arguments
    match call.action.collective:
        case "all_reduce":
            for one in _tensors(own.get("tensors")):
                _reduced(one, call.action.redop, call.group.size())
        case "all_gather":
            _gathered(own, call.group.size())
        case "broadcast":
            _broadcast(call, call.action)
        case "all_to_all" if own.get("input") is not None:
            _spread(call, own["input"], own["output"])
        case _:
            for name in ("output_tensors", "output_tensor", "outputs", "output"):
                for one in _tensors(own.get(name)):
                    _unknown(one)
    return None


def of_functional(call: ParsedCall, result: Any) -> None:
    """Give the result of a functional collective the numbers that it has if all ranks have this one's."""
    assert isinstance(call.action, GroupCall)
    ranks = call.group.size()
    inputs = _tensors(call.arguments.get("input")) or _tensors(call.arguments.get("inputs"))
    for one, output in zip(inputs, tree_leaves(result), strict=False):
        known = values.twin(one) if isinstance(one, FakeTensor) else one
        if known is None:
            continue
        if call.action.collective == "all_reduce":
            values.learn(output, known * ranks if call.action.redop == "sum" else known.clone())
        elif call.action.collective == "all_gather" and known.dim():
            values.learn(output, torch.cat([known] * ranks))
        elif call.action.collective == "broadcast":
            values.learn(output, known.clone())
        elif call.action.collective == "all_to_all":
            _spread(call, one, output)


def _message(call: ParsedCall, action: PeerMessage) -> Callable[[], None] | None:
    tensors = [one for one in call.arguments["tensors"] if _travels(one)]
    if not tensors:
        for one in [] if action.is_send else call.arguments["tensors"]:
            _unknown(one)
        return None
    if action.is_send:
        mailbox.send(action.peer, action.group, [_real(one) for one in tensors])
        return None

    letter = mailbox.expect(action.peer, action.group)

    def arrive() -> None:
        for one, numbers in zip(tensors, letter(), strict=True):
            _learn(one, numbers)

    return arrive


def _travels(tensor: torch.Tensor) -> bool:
    """Return whether a message may be of numbers that steer its receiver: shapes, counts, flags."""
    return tensor.numel() <= values.SMALL and not tensor.is_floating_point() and not tensor.is_complex()


def _broadcast(call: ParsedCall, action: GroupCall) -> None:
    """Have what the root has, if it is known there."""
    assert action.root is not None
    for one in filter(_travels, _tensors(call.arguments.get("tensors"))):
        if action.root == dist.get_rank():
            mailbox.publish(action.group, _real(one))
        else:
            _learn(one, mailbox.read(action.root, action.group))


def _learn(tensor: torch.Tensor, numbers: torch.Tensor | None) -> None:
    """Have the numbers that another rank sent, None if it knows none."""
    if numbers is None:
        _unknown(tensor)
    elif isinstance(tensor, FakeTensor):
        values.learn(tensor, numbers.reshape(tensor.shape))
    else:
        tensor.copy_(numbers.reshape(tensor.shape))


def _real(tensor: torch.Tensor) -> torch.Tensor | None:
    known = values.twin(tensor) if isinstance(tensor, FakeTensor) else tensor
    return None if known is None else known.detach().clone()


def _reduced(tensor: torch.Tensor, redop: str, ranks: int) -> None:
    known = values.twin(tensor) if isinstance(tensor, FakeTensor) else tensor
    if known is not None and redop == "sum":
        with torch.no_grad():
            known.mul_(ranks)


def _gathered(arguments: dict[str, Any], ranks: int) -> None:
    for name, own in (("output_tensor", "input_tensor"), ("output_tensors", "input_tensors")):
        if name not in arguments:
            continue
        (source, *others), outputs = _tensors(arguments[own]), _tensors(arguments[name])
        known = values.twin(source) if isinstance(source, FakeTensor) else source
        for one in outputs:
            if known is None or others:
                _unknown(one)
                continue
            repeated = (
                known.detach().flatten().repeat(one.numel() // max(known.numel(), 1)).reshape(one.shape)
            )
            if isinstance(one, FakeTensor):
                values.learn(one, repeated)
            else:
                with torch.no_grad():
                    one.copy_(repeated)


def _spread(call: ParsedCall, source: torch.Tensor, output: torch.Tensor) -> None:
    """Have of each rank what this one sends to itself, where all parts are equally large."""
    known, ranks = values.twin(source) if isinstance(source, FakeTensor) else source, call.group.size()
    if known is None or source.shape != output.shape or not source.dim() or len(source) % ranks:
        _unknown(output)
        return
    own = known.detach().chunk(ranks)[call.group.rank()]
    repeated = own.repeat(ranks, *[1] * (own.dim() - 1))
    if isinstance(output, FakeTensor):
        values.learn(output, repeated)
    else:
        output.copy_(repeated)


def _unknown(tensor: torch.Tensor) -> None:
    if isinstance(tensor, FakeTensor):
        values.forget(tensor)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [one for one in tree_leaves(value) if isinstance(one, torch.Tensor)]
