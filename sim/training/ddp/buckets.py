"""The buckets in which PyTorch's DistributedDataParallel reduces gradients, and PowerSGD, which narrows them.

As in PyTorch 2.13: torch/nn/parallel/distributed.py (``_BucketCapacityConfig``) and
torch/csrc/distributed/c10d/reducer.cpp (``compute_bucket_assignment_by_size``, ``rebuild_buckets``).

A first layout is made before anything is known about backward. A better one, in the order in which
gradients arrived, replaces it once, at the start of a later iteration:

===================================  ======================================  ===================
flags                                first layout                            replaced
===================================  ======================================  ===================
none                                 one bucket a dtype: no overlap          before iteration 2
``static_graph``                     one bucket a dtype                      before iteration 3
``find_unused_parameters`` alone     definition order, cut, list reversed    never
===================================  ======================================  ===================

With ``bucket_cap_mb_list`` every first layout is cut by that list, and replaced when it otherwise would be.

PowerSGD makes gradients products of two narrow matrices; ranks sum these instead of the gradients, as in
torch/distributed/algorithms/ddp_comm_hooks/powerSGD_hook.py of PyTorch 2.13, after Vogels, Karimireddy and
Jaggi (arXiv:1905.13727). A gradient of ``n`` rows and ``m`` columns becomes P Q^T of rank r: P = M Q is
summed and made orthonormal, Q = M^T P is averaged. So each bucket has three all-reduces, one after another:
of the uncompressed gradients, of all P, of all Q.

Products here are so narrow that reading the gradient takes longer than the arithmetic. Each step of the hook
takes the longer of its memory traffic and the host's time to launch its operators.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple

from ringside.sim.collective import ITEMSIZE
from ringside.sim.workload.workload import Tensor, Workload

MIB = 2**20
FIRST_BUCKET = MIB
"""Bytes after which the first bucket closes when no cap is given (``dist._DEFAULT_FIRST_BUCKET_BYTES``)."""

DEFAULT_CAP_MB = 25.0
"""MiB after which the other buckets close when no cap is given."""

BROADCAST_CHUNK = 250 * MIB
"""Bytes after which a chunk of coalesced buffers closes when they are broadcast before forward."""

SHOWN = 4
"""Parameters that an error message names."""

_NO_LIMIT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Bucket:
    """Gradients that are reduced together: positions of their parameters, in memory order."""

    parameters: tuple[int, ...]
    nbytes: int
    dtype: str


@dataclass(frozen=True, slots=True)
class Bucketing:
    """The arguments of DistributedDataParallel that shape its buckets.

    ``bucket_cap_mb`` is in MiB; any value, even 25, removes the small first bucket. ``bucket_cap_mb_list``
    has a cap for each bucket in turn; the last cap applies to all later ones. ``set_last_bucket_cap`` is the
    environment's ``DDP_SET_LAST_BUCKET_CAP=1``: the small bucket of a rebuilt layout is the last one.
    """

    bucket_cap_mb: float | None = None
    find_unused_parameters: bool = False
    static_graph: bool = False
    set_last_bucket_cap: bool = False
    bucket_cap_mb_list: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        for cap in (self.bucket_cap_mb, *self.bucket_cap_mb_list):
            if cap is not None and not (0 <= cap <= _NO_LIMIT / MIB):
                raise ValueError(f"a bucket cap of {cap} MiB; write 0 or more, for example 25")
        if self.bucket_cap_mb is not None and self.bucket_cap_mb_list:
            raise ValueError(
                f"a bucket cap of {self.bucket_cap_mb} MiB has no effect beside a list; remove one of them"
            )

    @property
    def limits(self) -> tuple[int, ...]:
        """Bytes at which the first bucket closes, and each one after it."""
        if self.bucket_cap_mb_list:
            return tuple(int(cap * MIB) for cap in self.bucket_cap_mb_list)
        if self.bucket_cap_mb is None:
            return FIRST_BUCKET, int(DEFAULT_CAP_MB * MIB)
        return (int(self.bucket_cap_mb * MIB),)

    @property
    def rebuilds_before(self) -> int | None:
        """The iteration, counted from 1, before whose forward the layout is replaced; None if never."""
        if self.static_graph:
            return 3
        return None if self.find_unused_parameters else 2


def layout(workload: Workload, bucketing: Bucketing, iteration: int) -> tuple[Bucket, ...]:
    """Return the buckets of an iteration, counted from 1, in launch order."""
    if iteration < 1:
        raise ValueError(f"iteration {iteration}; iterations are counted from 1")
    rebuilt = bucketing.rebuilds_before
    if rebuilt is None or iteration < rebuilt:
        return first_layout(workload.parameters, bucketing)
    return rebuilt_layout(workload.parameters, workload.arrival, bucketing)


def first_layout(parameters: Sequence[Tensor], bucketing: Bucketing) -> tuple[Bucket, ...]:
    """Return the buckets before the arrival order of gradients is known, in launch order."""
    cut = bucketing.find_unused_parameters and not bucketing.static_graph
    cut = cut or bool(bucketing.bucket_cap_mb_list)
    return assign(parameters, bucketing.limits if cut else (_NO_LIMIT,))[::-1]


def rebuilt_layout(
    parameters: Sequence[Tensor], arrival: Sequence[int], bucketing: Bucketing
) -> tuple[Bucket, ...]:
    """Return the buckets once gradients have arrived in the order ``arrival``, in launch order.

    With ``static_graph`` some may never arrive; these follow, in definition order.
    """
    missing = sorted(set(range(len(parameters))) - set(arrival))
    check_used([parameters[index].name for index in missing], bucketing)
    order = [*arrival, *missing]
    if bucketing.set_last_bucket_cap:
        return assign(parameters, bucketing.limits, order[::-1])[::-1]
    return assign(parameters, bucketing.limits, order)


def check_used(unused: Sequence[str], bucketing: Bucketing) -> None:
    """Raise ValueError where DistributedDataParallel stops because these parameters get no gradient."""
    if unused and not (bucketing.static_graph or bucketing.find_unused_parameters):
        names = ", ".join(unused[:SHOWN]) + (f" and {len(unused) - SHOWN} more" if unused[SHOWN:] else "")
        raise ValueError(
            f"no gradient arrives for {names}, which stops DistributedDataParallel in its second iteration; "
            "write `find_unused_parameters` or `static_graph`"
        )


def assign(
    tensors: Sequence[Tensor], limits: Sequence[int], order: Sequence[int] | None = None
) -> tuple[Bucket, ...]:
    """Cut the tensors, taken in ``order``, into buckets of one dtype each.

    A bucket closes when it holds at least its limit, so it may be far larger. Each dtype then moves on to its
    next limit, and stays with the last. A tensor with a sparse gradient is alone. Without ``order`` the
    tensors are used in their given order and the buckets sorted by their first tensor. With it buckets are in
    closing order; unclosed ones follow, that of the newest dtype first: reducer.cpp iterates over a
    std::unordered_map there, which libstdc++ keeps in that order because no two dtypes share a slot.
    """
    closed: list[Bucket] = []
    opened: dict[str, _Open] = {}
    for index in range(len(tensors)) if order is None else order:
        tensor = tensors[index]
        if tensor.sparse:
            closed.append(Bucket((index,), tensor.nbytes, tensor.dtype))
            continue
        bucket = opened.setdefault(tensor.dtype, _Open())
        bucket.parameters.append(index)
        bucket.nbytes += tensor.nbytes
        if bucket.nbytes >= limits[bucket.turn]:
            closed.append(Bucket(tuple(bucket.parameters), bucket.nbytes, tensor.dtype))
            opened[tensor.dtype] = _Open(turn=min(bucket.turn + 1, len(limits) - 1))
    closed += [
        Bucket(tuple(bucket.parameters), bucket.nbytes, dtype)
        for dtype, bucket in reversed(opened.items())
        if bucket.parameters
    ]
    return tuple(closed if order is not None else sorted(closed, key=lambda bucket: min(bucket.parameters)))


@dataclass(slots=True)
class _Open:
    """A bucket being filled; ``turn`` selects its limit."""

    parameters: list[int] = field(default_factory=list)
    nbytes: int = 0
    turn: int = 0


NARROW = ("float16", "bfloat16")
"""Types in which matrices of any rank are made orthonormal by Gram-Schmidt."""

FIRST_START = 2
"""Iterations that must pass before state is kept from one to the next: buckets are rebuilt in them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerSGD:
    """The arguments of ``PowerSGDState`` that change what a step costs.

    ``rank`` is the highest rank of an approximation (``matrix_approximation_rank``). In the first ``start``
    iterations (``start_powerSGD_iter``) gradients are averaged uncompressed. A matrix is compressed if that
    saves more than ``min_rate`` (``min_compression_rate``) times. ``error_feedback`` adds the error of an
    approximation to the next gradient; ``warm_start`` begins from the last Q, not a random one; ``batched``
    multiplies matrices of one shape together (``batch_tensors_with_same_shape``).
    """

    rank: int = 1
    start: int = 1000
    min_rate: float = 2.0
    error_feedback: bool = True
    warm_start: bool = True
    batched: bool = False

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"an approximation of rank {self.rank}; write 1 or more")
        if not (isfinite(self.min_rate) and self.min_rate > 0):
            raise ValueError(f"a compression rate of {self.min_rate}; write more than 0, for example 2")
        least = FIRST_START if self.error_feedback or self.warm_start else 0
        if self.start < least:
            raise ValueError(
                f"PowerSGD from iteration {self.start}; write {least} or more"
                + (", after buckets have been rebuilt" if least else "")
            )


class Matrix(NamedTuple):
    """A compressed gradient: its rows, columns, and the rank of its approximation."""

    rows: int
    columns: int
    rank: int


class Batch(NamedTuple):
    """Matrices of one shape that are multiplied in one operator, and their number."""

    matrix: Matrix
    alike: int


@dataclass(frozen=True, slots=True)
class HookWork:
    """A stretch of the hook: elements that it reads and writes, and operators that it launches."""

    elements: int
    operators: int


@dataclass(frozen=True, slots=True)
class Compression:
    """PowerSGD's view of a bucket: elements of uncompressed tensors, and compressed matrices."""

    bucket: Bucket
    powersgd: PowerSGD
    whole: tuple[int, ...]
    matrices: tuple[Matrix, ...]

    @property
    def uncompressed(self) -> int:
        """Elements that are summed uncompressed."""
        return sum(self.whole)

    @property
    def left(self) -> int:
        """Elements of all P."""
        return sum(one.rows * one.rank for one in self.matrices)

    @property
    def right(self) -> int:
        """Elements of all Q."""
        return sum(one.columns * one.rank for one in self.matrices)

    @property
    def kept_nbytes(self) -> int:
        """Bytes kept until the next step: P and Q, and with error feedback the errors."""
        kept = self.left + self.right if self.powersgd.warm_start else 0
        return kept * self._itemsize + (self.bucket.nbytes if self.powersgd.error_feedback else 0)

    @property
    def working_nbytes(self) -> int:
        """Further bytes while the bucket is reduced: a copy of it, and the new error."""
        kept = 0 if self.powersgd.warm_start else self.left + self.right
        narrow = (self.uncompressed + kept) * self._itemsize
        return narrow + (2 * self.bucket.nbytes if self.powersgd.error_feedback else 0)

    @property
    def stretches(self) -> tuple[HookWork, HookWork, HookWork, HookWork]:
        """Return the work before the first all-reduce, and after each."""
        return self._approximate(), self._unpack(), self._project(), self._decompress()

    def _approximate(self) -> HookWork:
        """Add the error, keep a copy, make Q orthonormal, P = M Q, and pack the uncompressed gradients."""
        feedback = self.powersgd.error_feedback
        drawn = 0 if self.powersgd.warm_start else len(self._batches)
        orthonormal = self._orthonormal(rows=False)
        return HookWork(
            (5 * self._count if feedback else 0)
            + 2 * self.uncompressed + self._stacked + orthonormal.elements + self._product,
            (2 if feedback else 0)
            + bool(self.whole) + len(self._stacks) + drawn + orthonormal.operators + len(self._batches),
        )  # fmt: skip

    def _unpack(self) -> HookWork:
        """Divide the uncompressed gradients and copy them back."""
        return HookWork(4 * self.uncompressed, 1 + len(self.whole))

    def _project(self) -> HookWork:
        """Make P orthonormal, and Q = M^T P."""
        orthonormal = self._orthonormal(rows=True)
        return HookWork(orthonormal.elements + self._product, orthonormal.operators + len(self._batches))

    def _decompress(self) -> HookWork:
        """Divide Q, M = P Q^T, and keep the error for the next step."""
        feedback = self.powersgd.error_feedback
        return HookWork(
            2 * self.right + self._product + self._stacked + (3 * self._count if feedback else 0),
            1 + len(self._batches) + sum(batch.alike for batch in self._stacks) + feedback,
        )

    @property
    def _itemsize(self) -> int:
        return ITEMSIZE[self.bucket.dtype]

    @property
    def _count(self) -> int:
        return self.bucket.nbytes // self._itemsize

    @property
    def _batches(self) -> list[Batch]:
        """Matrices that are multiplied in one operator."""
        if self.powersgd.batched:
            return [Batch(one, count) for one, count in Counter(self.matrices).items()]
        return [Batch(one, 1) for one in self.matrices]

    @property
    def _stacks(self) -> list[Batch]:
        """Batches of several matrices, which are copied into one stack and back."""
        return [batch for batch in self._batches if batch.alike > 1]

    @property
    def _stacked(self) -> int:
        """Elements read and written to copy the stacks once."""
        return sum(2 * one.rows * one.columns * count for one, count in self._stacks)

    @property
    def _product(self) -> int:
        """Elements of M, P and Q of all matrices."""
        return sum(one.rows * one.columns for one in self.matrices) + self.left + self.right

    def _orthonormal(self, *, rows: bool) -> HookWork:
        """Return the work for all P (``rows``) or Q: column-wise Gram-Schmidt, from rank 3 on Householder QR.

        A column is normed and divided, and four operators subtract it from each that follows. A reflection
        is computed and applied to the columns that follow, and applied again to build Q.
        """
        elements = operators = 0
        for one, count in self._batches:
            size, rank = (one.rows if rows else one.columns) * count, one.rank
            if rank <= 2 or self.bucket.dtype in NARROW:
                elements += size * (3 * rank + 9 * rank * (rank - 1) // 2)
                operators += 2 * rank + 4 * (rank - 1)
            else:
                elements += 2 * size * rank * rank
                operators += 4 * rank
        return HookWork(elements, operators)


def compression(bucket: Bucket, parameters: Sequence[Tensor], powersgd: PowerSGD) -> Compression:
    """Return PowerSGD's view of a bucket of these parameters, each seen as a matrix of its rows."""
    whole, matrices = [], []
    for index in bucket.parameters:
        tensor = parameters[index]
        rows = tensor.count if tensor.rows is None else tensor.rows
        columns = tensor.count // rows if rows else 0
        rank = min(rows, columns, powersgd.rank)
        if (rows + columns) * rank * powersgd.min_rate < rows * columns:
            matrices.append(Matrix(rows, columns, rank))
        else:
            whole.append(tensor.count)
    return Compression(bucket, powersgd, tuple(whole), tuple(matrices))
