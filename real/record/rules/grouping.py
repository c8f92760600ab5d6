"""Which operators of compiled code are one kernel, by rule: that of ``torch/_inductor/scheduler.py``."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ringside.real.record.rules.regions import Flow
from ringside.real.record.script.tape import Posted
from ringside.sim.recorded.job import Action, Operator
from ringside.sim.recorded.kernels import COPIES, products, short_name

EXTERN = (
    *("sort", "topk", "nonzero", "bincount", "histc", "multinomial", "kthvalue", "median", "mode"),
    *("randperm", "_grouped_mm", "_scaled_grouped_mm", "_scaled_mm", "_embedding_bag"),
    "embedding_dense_backward",
)
"""Operators for which Inductor calls PyTorch's own kernels (``make_fallback`` in ``lowering.py``)."""


def is_fused(action: Action) -> bool:
    """Return whether Inductor makes kernels of its own for an operator."""
    if not isinstance(action, Operator) or not action.name.startswith("aten."):
        return False
    name = short_name(action)
    if name in EXTERN or name in COPIES or name.startswith(("_foreach_", "_fused_ad", "_fused_sgd")):
        return False
    if any(one.dtype.startswith("complex") for one in (*action.inputs, *action.outputs)):
        return False  # for which Inductor has no code (``unsupported_input_tensor``)
    return not products(action)


@dataclass(eq=False)
class FusedKernel:
    """Operators that are one kernel, by their numbers."""

    part: tuple[int, int]
    lane: str
    elements: int
    members: list[int] = field(default_factory=list)
    place: int | None = None
    """The entry in whose place it is launched, once another operator reads of it."""

    def close(self) -> None:
        """Have it launched after its last member so far."""
        if self.place is None:
            self.place = self.members[-1]

    def takes(self, makers: "Sequence[tuple[int, FusedKernel | None]]", after: Sequence[int]) -> bool:
        """Return whether an operator could be launched with it: all that it waits for was before."""
        assert self.place is not None
        return all(kernel is self or maker < self.place for maker, kernel in makers) and all(
            one < self.place for one in after
        )


class Grouping:
    """Makes kernels of operators, one operator after another."""

    def __init__(self) -> None:
        self.kernel_of: dict[int, FusedKernel] = {}
        self._makers: dict[int, tuple[int, FusedKernel | None]] = {}
        """The last entry that wrote each storage, and the kernel that it is in."""
        self._readers: dict[int, FusedKernel] = {}
        self._part: tuple[int, int] | None = None

    def add(self, number: int, posted: Posted, operator: Action, flow: Flow | None) -> None:
        """Add an entry."""
        for earlier in posted.after:
            if earlier in self.kernel_of:
                self.kernel_of[earlier].close()
        part = flow.part if flow else None
        if part is None or part != self._part:
            self._makers.clear()
            self._readers.clear()
            self._part = part
        if flow is None or part is None:
            return
        if is_fused(operator):
            self._fuse(number, posted, FusedKernel(part, posted.lane, _elements(flow)), flow)
            return
        for storage in _touched(flow):
            kernel = self._makers.get(storage, (0, None))[1]
            if kernel is not None:
                kernel.close()
        self._makers.update((seen.storage, (number, None)) for seen in flow.writes)

    def _fuse(self, number: int, posted: Posted, own: FusedKernel, flow: Flow) -> None:
        makers = [self._makers[one] for one in _touched(flow) if one in self._makers]
        beside = [self._readers[one.storage] for one in flow.reads if one.storage in self._readers]
        some = [kernel for _, kernel in makers if kernel]
        some += [one for one in beside if one.elements == own.elements]
        some = [one for one in some if one.lane == own.lane]
        joined = {id(one): one for one in some if one.place is None}
        if not joined:
            written = {one.storage for one in flow.writes} & self._makers.keys()
            late = [one for one in some if one.takes(makers, posted.after) and not written]
            joined = {id(one): one for one in late[-1:]}
        first, *others = joined.values() if joined else [own]
        for other in others:
            self._merge(first, other)
        first.elements = max(first.elements, own.elements)
        first.members = sorted([*first.members, number])
        self.kernel_of[number] = first
        self._makers.update((seen.storage, (number, first)) for seen in flow.writes)
        self._readers.update((seen.storage, first) for seen in flow.reads)

    def _merge(self, into: FusedKernel, other: FusedKernel) -> None:
        into.members += other.members
        into.elements = max(into.elements, other.elements)
        self.kernel_of.update(dict.fromkeys(other.members, into))
        for storage, (maker, kernel) in self._makers.items():
            if kernel is other:
                self._makers[storage] = maker, into
        for storage, kernel in self._readers.items():
            if kernel is other:
                self._readers[storage] = into


def _touched(flow: Flow) -> set[int]:
    return {seen.storage for seen in (*flow.reads, *flow.writes)}


def _elements(flow: Flow) -> int:
    return max((seen.tensor.elements for seen in (*flow.reads, *flow.writes)), default=0)
