"""A ``cuda`` device that does not exist: autograd accepts fake tensors on it, on a machine without GPUs.

Two tables of PyTorch's C++ say what ``cuda`` is: ``c10::impl::device_guard_impl_registry`` holds its guard,
and ``at::detail::getCUDAHooks()`` its hooks. The guard becomes that of a Python backend, which says CUDA;
both objects get a copy of their virtual table with a few other functions. Where these stand in it is read
from the headers in PyTorch's own package. See docs/decisions/0017-a-device-that-does-not-exist.md.
"""

import ctypes
import platform
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

SUPPORTED = ((2, 12), (2, 15))
"""The first and the last version of PyTorch on which recording was tried."""

_CUDA, _PYTHON_BACKEND = 1, 20
"""``c10::DeviceType`` of CUDA and of PrivateUse1, ``torch/headeronly/core/DeviceType.h``."""

_BEFORE_FUNCTIONS = 2
"""Words of a virtual table before its first function, by the Itanium C++ ABI."""

_ADDED_SLOTS = 64
"""Words of a table that are copied beyond the functions of the interface: those of derived classes."""

_alive: list[Any] = []
"""What C++ points to."""


class DeviceError(RuntimeError):
    """PyTorch on this machine cannot use the device; the message says why in one line."""


def check_platform(version: str) -> None:
    """Raise DeviceError for a machine or version of PyTorch on which the device cannot be."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise DeviceError(
            f"recording needs Linux on x86-64, this is {sys.platform} on {platform.machine()}; record there"
        )
    first, last = SUPPORTED
    match = re.match(r"(\d+)\.(\d+)", version)
    if match is None or not first <= (int(match[1]), int(match[2])) <= last:
        allowed = " to ".join(f"{major}.{minor}" for major, minor in SUPPORTED)
        raise DeviceError(f"recording needs PyTorch {allowed}, this is {version}; install one of these")


def install(index: int, count: int) -> None:
    """Add ``count`` devices, device ``index`` the current one; raise DeviceError if that fails."""
    check_platform(torch.__version__)
    package = Path(torch.__file__).parent
    try:
        _install_guard(package, index, count)
        _install_hooks(package, index, count)
    except (AttributeError, OSError, ValueError) as error:
        raise DeviceError(f"this PyTorch has other tables of devices: {error}") from None
    if str(torch._C._accelerator_getAccelerator()) != "cuda":
        raise DeviceError("this PyTorch has other tables of devices: its accelerator is not cuda")


def _install_guard(package: Path, index: int, count: int) -> None:
    base: Any = torch._C._acc.DeviceGuard

    class Guard(base):  # type: ignore[misc]
        def type_(self) -> Any:
            return torch._C._autograd.DeviceType.CUDA

    guard = Guard()
    _alive.append(guard)
    torch._C._acc.register_python_privateuseone_device_guard(guard)
    library = ctypes.CDLL(str(package / "lib/libc10.so"))
    registry = (ctypes.c_void_p * (_PYTHON_BACKEND + 1)).in_dll(
        library, "_ZN3c104impl26device_guard_impl_registryE"
    )
    registry[_CUDA] = registry[_PYTHON_BACKEND]
    slots = _slots(package / "include/c10/core/impl/DeviceGuardImplInterface.h", "DeviceGuardImplInterface")
    device = _CUDA | index << 8  # c10::Device in a register: its type, its index
    _replace(
        registry[_CUDA],
        slots,
        {
            "exchangeDevice": (ctypes.c_uint16, (ctypes.c_uint16,), lambda *_: device),
            "getDevice": (ctypes.c_uint16, (), lambda *_: device),
            "deviceCount": (ctypes.c_int8, (), lambda *_: count),
        },
    )


def _install_hooks(package: Path, index: int, count: int) -> None:
    library = ctypes.CDLL(str(package / "lib/libtorch_cpu.so"))
    get_hooks = library._ZN2at6detail12getCUDAHooksEv
    get_hooks.restype = ctypes.c_void_p
    slots = _slots(package / "include/ATen/detail/AcceleratorHooksInterface.h", "AcceleratorHooksInterface")
    number = ctypes.c_int8
    _replace(
        get_hooks(),
        slots,
        {
            "isBuilt": (ctypes.c_bool, (), lambda *_: True),
            "isAvailable": (ctypes.c_bool, (), lambda *_: True),
            "hasPrimaryContext": (ctypes.c_bool, (number,), lambda _, one: one == index),
            "init": (None, (), lambda *_: None),
            "deviceCount": (number, (), lambda *_: count),
            "setCurrentDevice": (None, (number,), lambda *_: None),
            "getCurrentDevice": (number, (), lambda *_: index),
            "exchangeDevice": (number, (number,), lambda *_: index),
            "maybeExchangeDevice": (number, (number,), lambda *_: index),
        },
    )


def _slots(header: Path, name: str) -> dict[str, int]:
    """Return the place of each virtual function of a class in its table; a destructor has two."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", header.read_text(encoding="utf-8"), flags=re.DOTALL)
    body = text[text.index("{", re.search(rf"\b(?:struct|class)\s+(?:\w+\s+)?{name}\b[^;{{]*", text).end()) :]  # type: ignore[union-attr]
    slots: dict[str, int] = {}
    place = 0
    for match in re.finditer(r"\bvirtual\b([^;{]*?)\(", body[: _end_of_block(body)]):
        function = re.search(r"(~?\w+)\s*$", match[1])
        if function is None:
            raise ValueError(f"{header.name} is not understood")
        slots[function[1]] = place
        place += 2 if function[1].startswith("~") else 1
    return slots


def _end_of_block(text: str) -> int:
    """Return where the block ends with which the text begins."""
    depth = 0
    for place, sign in enumerate(text):
        depth += (sign == "{") - (sign == "}")
        if depth == 0:
            return place
    raise ValueError("a header ends within a class")


def _replace(
    address: int | None,
    slots: Mapping[str, int],
    functions: Mapping[str, tuple[Any, tuple[Any, ...], Callable[..., Any]]],
) -> None:
    """Give the C++ object at the address a copy of its virtual table with other functions."""
    pointer = ctypes.c_void_p.from_address(address or 0)
    count = _BEFORE_FUNCTIONS + max(slots.values()) + _ADDED_SLOTS
    table = (ctypes.c_void_p * count)()
    word = ctypes.sizeof(ctypes.c_void_p)
    ctypes.memmove(table, (pointer.value or 0) - _BEFORE_FUNCTIONS * word, count * word)
    for name, (result, arguments, function) in functions.items():
        if name not in slots:
            raise ValueError(f"its headers have no {name}")
        callback = ctypes.CFUNCTYPE(result, ctypes.c_void_p, *arguments)(function)
        table[_BEFORE_FUNCTIONS + slots[name]] = ctypes.cast(callback, ctypes.c_void_p).value
        _alive.append(callback)
    _alive.append(table)
    pointer.value = ctypes.addressof(table) + _BEFORE_FUNCTIONS * word
