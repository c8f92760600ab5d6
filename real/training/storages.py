"""Live storages of one rank, and what they hold, counted as torch allocates and frees them.

A mode of torch's dispatcher sees every operator, so every storage that one makes; a weak reference tells when
the last tensor in it is gone. FSDP2 frees and refills whole parameters by resizing their storages, which is
no operator. What a kernel allocates and frees within itself no tracker of torch's sees either.
"""

import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ringside.real.training.memory import ACTIVATIONS, BUFFERS, GATHERED, GRADIENTS, TEMPORARIES

_READ_AND_WRITTEN = {
    "fsdp.all_gather_copy_in": (None, GATHERED),
    "fsdp.split_with_sizes_copy": (GATHERED, GATHERED),
    "fsdp.chunk_cat": (GRADIENTS, BUFFERS),
}
"""FSDP2's operators, by what they read and write."""


@dataclass(slots=True, eq=False)
class Storage:
    """A storage's bytes now, and what it holds as far as is known."""

    nbytes: int
    holds: str


@dataclass(slots=True)
class StoragePeak:
    """The most bytes at once, those of each storage then, and the operator that reached them."""

    nbytes: int = 0
    operator: str = ""
    live: dict[Storage, int] = field(default_factory=dict)

    def by_kind(self) -> Counter[str]:
        """Return its bytes by what they hold, as known by now."""
        sizes: Counter[str] = Counter()
        for storage, nbytes in self.live.items():
            sizes[storage.holds] += nbytes
        return sizes


class StorageRecorder(TorchDispatchMode):
    """Counts storages while it is entered.

    What autograd's nodes make is temporary, and other tensors are activations, unless more is known of them.
    """

    within_kernel = False
    """Whether operators run that stand for one kernel."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak = StoragePeak()
        self._nbytes = 0
        self._live: dict[int, Storage] = {}
        self._ends: dict[int, weakref.ref[torch.UntypedStorage]] = {}

    def __enter__(self) -> "StorageRecorder":
        recorder, original = self, torch.UntypedStorage.resize_
        self._original = original

        def resize(storage: torch.UntypedStorage, nbytes: int) -> Any:
            result = original(storage, nbytes)
            recorder._see(storage, GATHERED, "resize_")
            return result

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        torch.UntypedStorage.resize_ = self._original  # type: ignore[method-assign]

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operator, and see the storages that it makes."""
        if any(issubclass(one, DTensor | AsyncCollectiveTensor) for one in types):
            return NotImplemented  # it decomposes into plain tensors first
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        name = str(func._overloadpacket)
        read, written = _READ_AND_WRITTEN.get(name, (None, None))
        if read:
            self.tell(read, args)
        for tensor in _tensors((outputs, kwargs.get("out"))):
            self._see(tensor.untyped_storage(), written, name)
        return outputs

    def tell(self, holds: str, tensors: Any) -> None:
        """Say what the tensors in some containers hold."""
        for tensor in _tensors(tensors):
            self._see(tensor.untyped_storage(), holds)

    def start(self) -> None:
        """Begin a step: what is alive is held throughout, as buffers unless more is known of it."""
        for storage in self._live.values():
            if storage.holds in (ACTIVATIONS, TEMPORARIES):
                storage.holds = BUFFERS
        self.peak = StoragePeak()
        self._note("")

    def _see(self, storage: torch.UntypedStorage, holds: str | None, operator: str = "") -> None:
        place, nbytes = storage._cdata, storage.nbytes()
        if place not in self._live:
            in_backward = torch._C._current_autograd_node() is not None
            self._live[place] = Storage(0, TEMPORARIES if in_backward else ACTIVATIONS)
            self._ends[place] = weakref.ref(storage, lambda _: self._end(place))
        seen = self._live[place]
        seen.holds = holds or seen.holds
        self._nbytes += nbytes - seen.nbytes
        seen.nbytes = nbytes
        self._note(operator)

    def _end(self, place: int) -> None:
        self._nbytes -= self._live.pop(place).nbytes
        del self._ends[place]

    def _note(self, operator: str) -> None:
        if self._nbytes > self.peak.nbytes and not StorageRecorder.within_kernel:
            live = {one: one.nbytes for one in self._live.values()}
            self.peak = StoragePeak(self._nbytes, operator, live)


@contextmanager
def as_one_kernel() -> Iterator[None]:
    """Have operators stand for one kernel: what they allocate and free in between is no peak."""
    StorageRecorder.within_kernel = True
    try:
        yield
    finally:
        StorageRecorder.within_kernel = False


def _tensors(tree: Any) -> list[torch.Tensor]:
    """Return the plain tensors in a tree of containers."""
    return [_plain(one) for one in tree_leaves(tree) if isinstance(one, torch.Tensor)]


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the own part of a DTensor, and what is in a wrapper, whose own storage has no memory."""
    if isinstance(tensor, DTensor):
        tensor = tensor._local_tensor
    return tensor.elem if isinstance(tensor, AsyncCollectiveTensor) else tensor
