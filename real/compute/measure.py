"""Rates of this machine's CPU or GPU: products, causal attention and streams, each timed alone."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import fmean, median
from typing import Any, NamedTuple

import torch
from torch.nn.functional import scaled_dot_product_attention

from ringside.real.machine import cpu_model
from ringside.topologies.units import format_size

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""The type of factors by precision."""

BATCH_S = 5e-3
"""Seconds of launches between two looks at the clock, so that a look costs nothing."""

LEAST_BATCHES = 3


class MeasuredRate(NamedTuple):
    """A measured rate: FLOP/s of ``products`` and ``attention``, bytes/s of ``streaming``."""

    kind: str
    precision: str
    sizes: tuple[int, ...]
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeJob:
    """What to measure: products of all combinations of ``sizes``, and attention of ``heads`` heads of 128.

    Each takes ``seconds``, or three launches. A stream copies and adds tensors of ``stream`` bytes.
    """

    device: str
    precisions: Sequence[str]
    sizes: Sequence[int]
    heads: Sequence[int]
    head_dims: Sequence[int]
    sequences: Sequence[int]
    stream: int
    seconds: float

    @property
    def points(self) -> int:
        """The number of points to measure."""
        attention = len(self.heads) * len(self.head_dims) * len(self.sequences)
        return len(self.precisions) * len(self.sizes) ** 3 + attention + 1


def chosen_device(device: str | None) -> str:
    """Return the device to measure, by default a GPU if there is one; raise ValueError without one."""
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        raise ValueError("`device` cuda, but PyTorch finds no CUDA GPU here; write cpu")
    return device or ("cuda" if has_gpu else "cpu")


def name_of(device: str) -> str:
    """Return the device's name."""
    return torch.cuda.get_device_name() if device == "cuda" else cpu_model()


def measure_compute(job: ComputeJob) -> Iterator[MeasuredRate]:
    """Measure each point in turn; raise ValueError for sizes that do not fit into memory."""
    _check_room(job)
    with torch.inference_mode():
        for precision in job.precisions:
            with _tensor_float_32(precision == "tf32"):
                for m, n, k in product(job.sizes, repeat=3):
                    seconds = _seconds(_product(job.device, DTYPES[precision], m, n, k), job)
                    yield MeasuredRate("products", precision, (m, n, k), 2.0 * m * n * k / seconds)
        precision = job.precisions[0]
        for heads, sequence, size in product(job.heads, job.sequences, job.head_dims):
            seconds = _seconds(_attention(job.device, DTYPES[precision], heads, sequence, size), job)
            flops = 2.0 * heads * sequence**2 * size
            yield MeasuredRate("attention", precision, (heads, sequence, size), flops / seconds)
        yield MeasuredRate("streaming", "", (job.stream,), _streaming(job))


def _check_room(job: ComputeJob) -> None:
    widest = max(DTYPES[precision].itemsize for precision in job.precisions)
    needed = 3 * max(max(job.sizes) ** 2 * widest, job.stream)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if job.device == "cuda":
        memory = torch.cuda.mem_get_info()[0]
    if needed > memory:
        raise ValueError(
            f"three tensors of {format_size(needed // 3)} need more than the {format_size(memory)} of "
            f"{name_of(job.device)}; write a smaller `size` or `stream`"
        )


@contextmanager
def _tensor_float_32(is_on: bool) -> Iterator[None]:
    """Let products of float32 use TensorFloat-32, or not."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if is_on else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _product(device: str, dtype: torch.dtype, m: int, n: int, k: int) -> Callable[[], Any]:
    """Return the launch of a layer's product: activations times transposed weights, of random numbers."""
    activations, weights = (torch.randn(rows, k, device=device, dtype=dtype) for rows in (m, n))
    return partial(torch.mm, activations, weights.t(), out=torch.empty(m, n, device=device, dtype=dtype))


def _attention(device: str, dtype: torch.dtype, heads: int, sequence: int, size: int) -> Callable[[], Any]:
    queries, keys, values = torch.randn(3, 1, heads, sequence, size, device=device, dtype=dtype)
    return partial(scaled_dot_product_attention, queries, keys, values, is_causal=True)


def _streaming(job: ComputeJob) -> float:
    """Return the mean bytes/s of a copy and of an addition."""
    elements = job.stream // torch.float32.itemsize
    first, second, result = (torch.ones(elements, device=job.device) for _ in range(3))
    copy = 2 * job.stream / _seconds(partial(result.copy_, first), job)
    return fmean((copy, 3 * job.stream / _seconds(partial(torch.add, first, second, out=result), job)))


def _seconds(launch: Callable[[], Any], job: ComputeJob) -> float:
    """Return the median seconds of a launch, after one to warm up."""
    on_gpu = job.device == "cuda"

    def timed(count: int) -> Callable[[], float]:
        run = _graph(launch, count) if on_gpu else partial(_repeat, launch, count)
        run()
        return partial(_wall_s, run, torch.cuda.synchronize if on_gpu else _finished)

    launch()
    count = max(1, int(BATCH_S / timed(1)()))
    batch = timed(count)
    batches = max(LEAST_BATCHES, int(job.seconds / max(batch(), BATCH_S)))
    return median(batch() for _ in range(batches)) / count


def _wall_s(run: Callable[[], Any], finish: Callable[[], Any]) -> float:
    finish()
    begin = time.perf_counter()
    run()
    finish()
    return time.perf_counter() - begin


def _repeat(launch: Callable[[], Any], count: int) -> None:
    for _ in range(count):
        launch()


def _graph(launch: Callable[[], Any], count: int) -> Callable[[], Any]:
    """Return what replays ``count`` launches, recorded once: small kernels would wait for the host."""
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _repeat(launch, count)
    return graph.replay


def _finished() -> None:
    """Return at once: a CPU has finished when the call returns."""
