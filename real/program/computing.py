"""Work of a given duration, on a CPU or a GPU."""

import time
from collections.abc import Callable
from statistics import median

import torch

from ringside.real.clock import stamps

_SIDE = {"cpu": 128, "cuda": 1024}
"""The size of the matrices to multiply: one product takes some ten microseconds."""

_REPEATS = 9


def computing(kind: str, device: torch.device) -> Callable[[float], None]:
    """Return a stand-in for ``compute(seconds)``: sleep, or matrix products, whose duration is measured now.

    Sleep on a GPU keeps its current stream busy for the corresponding number of cycles.
    """
    if kind == "matmul":
        side = _SIDE[device.type]
        one, other, product = (torch.ones(side, side, device=device) for _ in range(3))
        return _repeated(lambda count: _multiply(one, other, product, count), device)
    if device.type == "cuda":
        return _repeated(lambda count: torch.cuda._sleep(1000 * count), device)  # type: ignore[no-untyped-call]
    return time.sleep


def _multiply(one: torch.Tensor, other: torch.Tensor, product: torch.Tensor, count: int) -> None:
    for _ in range(count):
        torch.mm(one, other, out=product)


def _repeated(work: Callable[[int], object], device: torch.device) -> Callable[[float], None]:
    """Repeat the work for a given time, by its median duration when nothing else ran."""
    clock, count, seconds = stamps(device), 256, []
    for _ in range(_REPEATS + 1):
        clock.begin()
        begin = clock.now()
        work(count)
        seconds.append(clock.seconds(clock.now()) - clock.seconds(begin))
    each = median(seconds[1:]) / count

    def compute(wanted: float) -> None:
        work(round(wanted / each))

    return compute
