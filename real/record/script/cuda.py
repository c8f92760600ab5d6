"""``torch.cuda`` and ``torch.accelerator`` as a script meets them on a machine with GPUs."""

import contextlib
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import torch
import torch._subclasses.fake_tensor as fake_tensor

from ringside.real.record.script import streams
from ringside.real.record.script.refusal import refusal
from ringside.real.record.script.tape import TAPE

MEMORY = 80 * 2**30
NAME = "NVIDIA H100 80GB HBM3"
"""The GPU that scripts see, and its memory. It only affects the choice of an attention kernel."""

_PROPERTIES = {
    **{"name": NAME, "major": 9, "minor": 0, "total_memory": MEMORY, "multi_processor_count": 132},
    **{"warp_size": 32, "regs_per_multiprocessor": 65536, "max_threads_per_multi_processor": 2048},
    **{
        "shared_memory_per_block": 49152,
        "shared_memory_per_block_optin": 232448,
        "L2_cache_size": 50 * 2**20,
    },
    **{"shared_memory_per_multiprocessor": 233472, "is_integrated": 0, "is_multi_gpu_board": 0, "uuid": "0"},
    "gcnArchName": "",
}
"""NVIDIA's figures of the card (CUDA C++ Programming Guide, compute capability 9.0)."""

_NCCL_VERSION = (2, 28, 0)

_CUDA_VERSION = "13.0"
"""What PyPI's builds of PyTorch 2.12 to 2.15 use; torchvision checks it against its own."""


class _Runtime:
    """``torch.cuda.cudart()``: every function returns success."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: 0


class _NoGraph:
    """``torch.cuda.CUDAGraph``: what a graph replays is not seen."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise refusal("CUDA graphs hide what they replay", "have the script run without them")


class _Device:
    """``torch.cuda.device`` as a context: all is on one device."""

    def __init__(self, *_: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


_TorchGenerator: Any = torch.Generator


class _Generator(_TorchGenerator):  # type: ignore[misc]
    """A generator of random numbers; one of the device is on the CPU."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return super().__new__(cls, "cpu")


def install(index: int, count: int) -> None:
    """Put the functions in place, for device ``index`` of ``count``."""
    names = {**_facts(index, count), **_of_memory(), **_of_random_numbers(count), **_of_streams()}
    names |= _of_tools()
    for name, value in names.items():
        setattr(torch.cuda, name, value)
    vars(torch.cuda.memory).update(_of_memory())
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(torch.cuda.nvtx, name, _nothing)
    vars(torch.cuda.nvtx)["range"] = _no_context
    vars(torch.cuda.profiler).update(start=_nothing, stop=_nothing, profile=_no_context)
    vars(torch.autograd.profiler)["emit_nvtx"] = _no_context
    vars(torch.compiler)["cudagraph_mark_step_begin"] = _nothing
    for name in ("preferred_linalg_library", "preferred_blas_library", "preferred_rocm_fa_library"):
        setattr(torch.backends.cuda, name, _nothing)
    vars(torch.version)["cuda"] = torch.version.cuda or _CUDA_VERSION
    torch.backends.cuda.is_built = lambda: True
    vars(torch).update(Generator=_Generator, Stream=streams.Stream, Event=streams.Event)
    _install_accelerator(names)
    packed = ((_NCCL_VERSION[0] << 32 | _NCCL_VERSION[1]) << 16) << 16
    vars(torch._C).update(
        _nccl_version=lambda: packed,
        _cuda_getDeviceCount=lambda: count,
        _cuda_getDevice=lambda: index,
        _cuda_setDevice=_nothing,
        _cuda_getCurrentRawStream=lambda *_: 0,
        _cuda_getDefaultStream=lambda *_: (0, 0, 1),
    )
    torch.cuda.nccl.version = lambda: _NCCL_VERSION
    vars(fake_tensor)["init_gpu_context"] = _nothing


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _no_context(*_: Any, **__: Any) -> Any:
    return contextlib.nullcontext()


def _facts(index: int, count: int) -> dict[str, Any]:
    return {
        "is_available": lambda: True,
        "device_count": lambda: count,
        "current_device": lambda: index,
        "set_device": _nothing,
        "get_device_name": lambda *_: NAME,
        "get_device_properties": lambda *_: SimpleNamespace(**_PROPERTIES),
        "get_device_capability": lambda *_: (9, 0),
        "is_bf16_supported": lambda *_, **__: True,
        "is_tf32_supported": lambda: True,
        "is_initialized": lambda: True,
        "get_arch_list": lambda: ["sm_90"],
        "can_device_access_peer": lambda *_: True,
        "current_blas_handle": lambda: 0,
        "utilization": lambda *_: 0,
        "is_current_stream_capturing": lambda: False,
        "device": _Device,
        "device_of": _Device,
        **dict.fromkeys(("init", "_lazy_init", "_lazy_call", "ipc_collect"), _nothing),
        "_is_in_bad_fork": lambda: False,
        "_exchange_device": lambda one: one,
        "_maybe_exchange_device": lambda one: one,
    }


def _of_memory() -> dict[str, Any]:
    # not 0, since scripts divide by it
    some = lambda *_, **__: 1  # noqa: E731
    return {
        **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved"), some),
        **dict.fromkeys(("max_memory_reserved", "memory_cached", "max_memory_cached"), some),
        **dict.fromkeys(("empty_cache", "reset_peak_memory_stats", "reset_max_memory_allocated"), _nothing),
        **dict.fromkeys(("set_per_process_memory_fraction", "reset_accumulated_memory_stats"), _nothing),
        **dict.fromkeys(("reset_max_memory_cached", "_record_memory_history", "_dump_snapshot"), _nothing),
        "memory_stats": lambda *_, **__: defaultdict(int),
        "memory_stats_as_nested_dict": lambda *_, **__: {},
        "memory_summary": lambda *_, **__: "",
        "memory_snapshot": lambda *_, **__: [],
        "_snapshot": lambda *_, **__: {"segments": [], "device_traces": []},
        "get_memory_info": lambda *_: (MEMORY, MEMORY),
        "mem_get_info": lambda *_: (MEMORY, MEMORY),
    }


def _of_random_numbers(count: int) -> dict[str, Any]:
    state = torch.zeros(16, dtype=torch.uint8)
    return {
        **dict.fromkeys(("manual_seed", "manual_seed_all", "seed", "seed_all"), _nothing),
        **dict.fromkeys(("set_rng_state", "set_rng_state_all"), _nothing),
        "initial_seed": lambda: 0,
        "get_rng_state": lambda *_: state.clone(),
        "get_rng_state_all": lambda: [state.clone()] * count,
        "default_generators": tuple(torch.Generator() for _ in range(count)),
    }


def _of_tools() -> dict[str, Any]:
    """Return tools to see and to speed up a program: none of them changes its work on the device."""
    zero = lambda *_: 0  # noqa: E731
    return {
        "cudart": _Runtime,
        **dict.fromkeys(("temperature", "power_draw", "clock_rate", "memory_usage"), zero),
        "get_sync_debug_mode": zero,
        "set_sync_debug_mode": _nothing,
        "get_allocator_backend": lambda: "native",
        "CUDAGraph": _NoGraph,
        "graph": _NoGraph,
        "make_graphed_callables": _not_graphed,
        "graph_pool_handle": lambda: (0, 0),
    }


def _not_graphed(callables: Any, *_: Any, **__: Any) -> Any:
    TAPE.notes["torch.cuda.make_graphed_callables is recorded without graphs"] += 1
    return callables


def _of_streams() -> dict[str, Any]:
    return {
        "Stream": streams.Stream,
        "Event": streams.Event,
        "ExternalStream": streams.Stream,
        "stream": streams.StreamContext,
        "StreamContext": streams.StreamContext,
        "current_stream": streams.current_stream,
        "default_stream": streams.default_stream,
        "set_stream": streams.set_stream,
        "synchronize": streams.synchronize,
    }


def _install_accelerator(names: dict[str, Any]) -> None:
    face: Any = torch.accelerator
    face.current_accelerator = lambda *_, **__: torch.device("cuda")
    for name in ("set_device_index", "set_device_idx"):
        setattr(face, name, _nothing)
    face.current_device_index = face.current_device_idx = names["current_device"]
    for name in (
        "is_available",
        "device_count",
        "synchronize",
        "current_stream",
        "set_stream",
        *_of_memory(),
    ):
        if hasattr(face, name):
            setattr(face, name, names[name])
