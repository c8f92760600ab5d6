"""The kernels of compiled code, by rule: operators that memory bounds are fused as Inductor fuses them.

The rule is that of PyTorch's own compiler (``torch/_inductor/scheduler.py`` and
``torch/_functorch/partitioners.py``, PyTorch 2.13), on what was recorded:

- An operator joins the kernel that makes its inputs, or one that reads the same and has as many elements:
  reductions, over rows and columns too (``mix_order_reduction``). A kernel is launched before a product,
  attention, a collective or another library's operator reads of it.
- A kernel reads each tensor from outside once, and writes what others read.
- What another kernel needs, later or in backward, is computed there again if that moves fewer bytes than to
  write and read it. Results of reductions are kept.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ringside.real.record.rules.grouping import FusedKernel, Grouping
from ringside.real.record.rules.padding import padded
from ringside.real.record.rules.regions import BACKWARD, REGIONS, Flow, SeenTensor
from ringside.real.record.script.tape import TAPE, Posted
from ringside.sim.recorded.job import Action, Operator, Shaped
from ringside.sim.recorded.kernels import EMPTY, OVERWRITES, ROWS, VIEWS, short_name

SMALL = 1 / 4
"""Share of its input up to which a reduction's result is kept (``partitioners.py``)."""

NAMES = 4
"""Names of operators in a kernel's own."""


@dataclass(frozen=True)
class FusedStep:
    """A step's entries with fused kernels; ``places`` has the new number of each entry before.

    Storages in ``gone`` are never written; ``freed`` has the new number of the entry before which a storage
    is freed, where that is not when eager code frees it.
    """

    posted: list[Posted]
    places: Sequence[int]
    gone: frozenset[int] = frozenset()
    freed: Mapping[int, int] = field(default_factory=dict)


def fused(begin: int, end: int, born: set[int], freed: dict[int, int]) -> FusedStep:
    """Return the entries from ``begin`` to ``end``, numbered from zero, with compiled kernels fused.

    ``born`` are the storages that the step allocates once; ``freed`` has the number of entries before each is
    freed.
    """
    posted = [
        replace(one, after=tuple(earlier - begin for earlier in one.after if earlier >= begin))
        for one in TAPE.entries[begin:end]
    ]
    flows = {
        number - begin: flow for number, flow in REGIONS.flows.items() if begin <= number < end
    }  # fmt: skip
    if not any(flow.part for flow in flows.values()):
        return FusedStep(posted, range(len(posted)))
    actions = list(TAPE.actions)
    operators = [actions[one.action] for one in posted]
    grouping = Grouping()
    for number, (one, operator) in enumerate(zip(posted, operators, strict=True)):
        grouping.add(number, one, operator, flows.get(number))
    kernel_of = grouping.kernel_of
    for kernel in kernel_of.values():
        kernel.close()
    freed = {storage: number - begin for storage, number in freed.items()}
    return _Writing(operators, flows, kernel_of, born, freed).step(posted)


class _Writing:
    """Decides which tensors kernels write, and makes the operators that they are."""

    def __init__(
        self, operators: Sequence[Action], flows: dict[int, Flow], kernel_of: dict[int, FusedKernel],
        born: set[int], freed: dict[int, int],
    ) -> None:  # fmt: skip
        self._operators = operators
        self._flows = flows
        self._kernel_of = kernel_of
        self._born = born
        self._freed = freed
        self._makers: dict[int, list[int]] = defaultdict(list)
        self._tensors: dict[int, Shaped] = {}
        """The largest tensor in each storage."""
        for number, flow in flows.items():
            for seen in flow.writes:
                self._makers[seen.storage].append(number)
            for seen in (*flow.reads, *flow.writes):
                if seen.tensor.nbytes >= self._size(seen.storage):
                    self._tensors[seen.storage] = seen.tensor
        self._needs = {kernel: self._needed(kernel) for kernel in dict.fromkeys(kernel_of.values())}
        self._ends = {flow.part: number for number, flow in flows.items() if flow.part}
        """The last operator of each part of a call."""
        self._kept = self._read_by_others()
        self._instead: dict[tuple[FusedKernel, int], set[int]] = {}
        for kernel, needed in self._needs.items():
            self._choose(kernel, needed)

    def _read_by_others(self) -> set[int]:
        """Return the storages that must be written: others than kernels of the same call use them."""
        kept = {
            storage
            for storage, makers in self._makers.items()
            if storage not in self._born or storage in REGIONS.returned
            or not all(one in self._kernel_of for one in makers)
            or self._is_gradient(storage, makers[0])
        }  # fmt: skip
        for number in self._flows:
            kernel = self._kernel_of.get(number)
            for storage in self._read(number):
                makers = {
                    self._kernel_of[one] for one in self._makers.get(storage, ()) if one in self._kernel_of
                }
                if kernel is None or any(one.part[0] != kernel.part[0] for one in makers):
                    kept.add(storage)
        return kept

    def _is_gradient(self, storage: int, maker: int) -> bool:
        """Return whether what backward makes outlives it: a gradient."""
        part = self._flows[maker].part
        return (
            part is not None and part[1] == BACKWARD
            and self._freed.get(storage, 2**63) > self._ends[part] + 1
        )  # fmt: skip

    def _read(self, number: int) -> dict[int, list[SeenTensor]]:
        """Return what an operator reads, by storage."""
        operator, flow = self._operators[number], self._flows[number]
        name = short_name(operator) if isinstance(operator, Operator) else ""
        reads: dict[int, list[SeenTensor]] = defaultdict(list)
        if name in EMPTY or name in VIEWS:
            return reads
        for place, seen in enumerate(flow.reads):
            if place == 0 and name in OVERWRITES:
                continue
            if place == 0 and name in ROWS and flow.writes:
                rows = Shaped(flow.writes[0].tensor.shape, seen.tensor.dtype)
                seen = seen._replace(place=(number,), tensor=rows)
            reads[seen.storage].append(seen)
        return reads

    def _needed(self, kernel: FusedKernel) -> dict[int, list[SeenTensor]]:
        """Return what a kernel reads that others made, by storage."""
        needed: dict[int, list[SeenTensor]] = defaultdict(list)
        for number in kernel.members:
            for storage, some in self._read(number).items():
                makers = [one for one in self._makers.get(storage, ()) if one < number]
                if not makers or any(self._kernel_of.get(one) is not kernel for one in makers):
                    needed[storage] += some
        return needed

    def _choose(self, kernel: FusedKernel, needed: dict[int, list[SeenTensor]]) -> None:
        """Have a kernel read what it needs, or compute it from what is there."""
        there = {one for one in needed if one in self._kept or one not in self._makers}
        for storage in needed:
            if storage in there or storage in self._kept:
                continue
            sources = self._sources(storage)
            more = sum(self._size(one) for one in sources - there)
            if more < 2 * self._size(storage):
                self._kept |= {one for one in sources if one in self._makers}
                self._instead[kernel, storage] = sources
                there |= sources
            else:
                self._kept.add(storage)
                there.add(storage)

    def _sources(self, storage: int) -> set[int]:
        """Return written storages, and small ones, from which fused operators compute one."""
        sources: set[int] = set()
        seen, ahead = {storage}, [storage]
        while ahead:
            for maker in self._makers[ahead.pop()]:
                reads = self._read(maker)
                largest = max((self._size(one) for one in reads), default=0)
                for one in reads.keys() - seen:
                    seen.add(one)
                    is_there = one in self._kept or one not in self._makers
                    if is_there or self._size(one) <= SMALL * largest:
                        sources.add(one)
                    else:
                        ahead.append(one)
        return sources

    def _size(self, storage: int) -> int:
        return self._tensors[storage].nbytes if storage in self._tensors else 0

    def step(self, posted: Sequence[Posted]) -> FusedStep:
        """Return the step; a kernel stands where its last operator stood."""
        last: dict[int, int] = {}
        for number, one in self._kernel_of.items():
            assert one.place is not None
            last[number] = one.place
        pads = {
            number: pair
            for number, flow in self._flows.items()
            if (pair := padded(self._operators[number], flow))
        }
        places, count = [], 0
        for number in range(len(posted)):
            count += number in pads
            places.append(count)
            count += last.get(number, number) == number
        written = []
        for number in range(len(posted)):
            if last.get(number, number) != number:
                continue
            kernel = self._kernel_of.get(number)
            members = kernel.members if kernel else [number]
            after = {
                places[last.get(earlier, earlier)] for member in members for earlier in posted[member].after
            } - {places[number]}
            entry = replace(posted[number], after=tuple(sorted(after)))
            if number in pads:
                copy, product = pads[number]
                written.append(replace(entry, action=_number(copy)))
                entry = replace(entry, action=_number(product), after=())
            elif kernel and not self._is_as_recorded(kernel):
                entry = replace(entry, action=_number(self._operator(kernel)))
            written.append(entry)
        gone = frozenset(
            storage for storage, makers in self._makers.items()
            if storage not in self._kept and makers[0] in self._kernel_of
        )  # fmt: skip
        return FusedStep(written, places, gone, self._ended(places, last))

    def _ended(self, places: Sequence[int], last: Mapping[int, int]) -> dict[int, int]:
        """Return where storages are freed: compiled code holds what it makes until its last kernel reads it.

        Eager code holds what autograd saved, whether its backward will read that or compute from something
        else. What a call returns is held at least as long as the script does.
        """
        ends: dict[int, int] = {}
        for number, flow in self._flows.items():
            kernel = self._kernel_of.get(number)
            used: Iterable[int] = (seen.storage for seen in (*flow.reads, *flow.writes))
            if kernel:
                needed = self._needs[kernel]
                used = {seen.storage for seen in flow.writes}.union(
                    *(self._instead.get((kernel, one), {one}) for one in needed)
                )
            end = places[last.get(number, number)] + 1
            ends.update((one, max(end, ends.get(one, 0))) for one in used)
        freed = {}
        for storage, makers in self._makers.items():
            eager = self._freed.get(storage)
            if storage not in self._born or eager is None or storage not in ends:
                continue
            is_held = storage in REGIONS.returned or self._is_gradient(storage, makers[0])
            if is_held or not all(self._flows[one].part for one in makers):
                before = places[min(eager, len(places) - 1)]
                if ends[storage] <= before:
                    continue
            freed[storage] = ends[storage]
        return freed

    def _is_as_recorded(self, kernel: FusedKernel) -> bool:
        written = {seen.storage for number in kernel.members for seen in self._flows[number].writes}
        instead = any((kernel, storage) in self._instead for storage in self._needs[kernel])
        return len(kernel.members) == 1 and not instead and written <= self._kept

    def _operator(self, kernel: FusedKernel) -> Operator:
        """Return a kernel as an operator: what it reads from others, and what others read of it."""
        needed, reads, more = self._needs[kernel], list[Shaped](), set[int]()
        for storage, some in needed.items():
            instead = self._instead.get((kernel, storage))
            if instead is None:
                reads += _distinct(some)
            else:
                more |= instead - needed.keys()
        reads += [self._tensors[one] for one in sorted(more)]
        writes: dict[int, list[SeenTensor]] = defaultdict(list)
        for number in kernel.members:
            for seen in self._flows[number].writes:
                if seen.storage in self._kept:
                    writes[seen.storage].append(seen)
        names = dict.fromkeys(
            short_name(one)
            for number in kernel.members
            if isinstance(one := self._operators[number], Operator)
        )
        return Operator(
            f"inductor.{'_'.join([name.strip('_') for name in names][:NAMES])}",
            tuple(reads if writes else ()),  # what others compute again is not launched
            tuple(one for some in writes.values() for one in _distinct(some)),
        )


def _number(operator: Operator) -> int:
    """Return the number of an action, a new one if it has none."""
    return TAPE.actions.setdefault(operator, len(TAPE.actions))


def _distinct(some: Sequence[SeenTensor]) -> list[Shaped]:
    """Return each part of a storage once, and no more than is in it."""
    distinct = {(seen.place, seen.tensor): seen.tensor for seen in some}
    if sum(one.nbytes for one in distinct.values()) <= some[0].whole:
        return list(distinct.values())
    tensor = max(distinct.values(), key=lambda one: one.nbytes)
    return [Shaped((some[0].whole * tensor.elements // tensor.nbytes,), tensor.dtype)]
