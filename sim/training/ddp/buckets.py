"""The buckets in which PyTorch's DistributedDataParallel reduces gradients.

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
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

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
