"""torch's own PowerSGD hook over a process group that records its all-reduces."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from ringside.sim.training.ddp.buckets import PowerSGD

EPSILON = 1e-8
"""Added to the norm of a column: sleeping layers have gradients of rank 1, whose other columns are zero."""


REPEATS = 5
"""Timed passes of the hook alone."""


@dataclass(slots=True)
class BucketAllReduces:
    """A bucket's all-reduces in one step: their parts, bytes and start times; and the end of the last."""

    parts: list[tuple[str, int, Any]] = field(default_factory=list)
    finish: Any = None

    def entries(self) -> list[dict[str, Any]]:
        """Return an entry per non-empty part, which ends when the next begins."""
        ends = [*(launch for _, _, launch in self.parts[1:]), self.finish]
        return [
            {"part": part, "nbytes": nbytes, "launch": launch, "finish": end}
            for (part, nbytes, launch), end in zip(self.parts, ends, strict=True)
            if nbytes
        ]


class Compressed:
    """PowerSGD over a process group; ``chains`` are those of the current step, by the bucket's index."""

    def __init__(self, powersgd: PowerSGD, group: Any, now: Callable[[], Any]) -> None:
        self.chains: dict[int, BucketAllReduces] = {}
        self._group = group
        self._now = now
        self._index = 0
        self._members: dict[int, list[torch.Tensor]] = {}
        self._before: dict[int, torch.Tensor] = {}
        self._powersgd = powersgd
        self._state = _state(self, powersgd)

    def begin(self) -> None:
        """Begin a step."""
        self.chains, self._members = {}, {}

    def reduce(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """Run the hook on a bucket."""
        self._index = index = bucket.index()
        chain = self.chains[index] = BucketAllReduces()
        self._members[index] = list(bucket.parameters())

        def finished(future: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            chain.finish = self._now()
            return future.value()

        done: torch.futures.Future[torch.Tensor] = powerSGD_hook(self._state, bucket).then(finished)
        return done

    def size(self) -> int:
        """Return the number of ranks; the hook calls this on its group."""
        return dist.get_world_size()

    def allreduce(self, tensors: Sequence[torch.Tensor], options: Any) -> Any:
        """All-reduce as a group of torch.distributed does; the tensor's storage identifies P or Q."""
        (data,) = tensors
        index, part = self._index, ""
        for word, kept in ((" P", self._state.p_memory_dict), (" Q", self._state.q_memory_dict)):
            for number, tensor in kept.items():
                if tensor is data:
                    index, part = number, word
        self.chains[index].parts.append((part, data.numel() * data.element_size(), self._now()))
        return self._group.allreduce(tensors, options)

    def alone(self, go: Callable[[], None]) -> list[list[float]]:
        """Return the seconds of the hook's own work per bucket, on the slowest rank, without communication.

        A stretch ends at each all-reduce, the last one with the hook. ``go`` starts all ranks at once.
        """
        seconds = []
        for index, members in sorted(self._members.items()):
            group, bucket = _Silent(self._now), _Bucket(index, members)
            state = _state(group, self._powersgd)
            state.iter = self._powersgd.start
            passes = []
            for _ in range(1 + REPEATS):
                go()
                group.stamps = [self._now()]
                powerSGD_hook(state, cast(Any, bucket)).wait()
                stamps = [*group.stamps, self._now()]
                passes.append([end - begin for begin, end in pairwise(stamps)])
            slowest = torch.tensor(passes[1:], dtype=torch.float64).median(0).values
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            seconds.append(slowest.tolist())
        return seconds

    def wrong(self, average: Callable[[torch.Tensor], torch.Tensor]) -> int:
        """Return the number of buckets whose average is not the compressed sum plus its residual.

        ``average`` gives a parameter's gradient averaged over all ranks. Without error feedback the residual
        is not kept; then all ranks must hold the same result.
        """
        return sum(self._is_wrong(index, average) for index in self._members)

    def _is_wrong(self, index: int, average: Callable[[torch.Tensor], torch.Tensor]) -> bool:
        taken = _flat([_gradient(one) for one in self._members[index]])
        if not self._state.use_error_feedback:
            first = taken.clone()
            dist.broadcast(first, 0)
            return not torch.equal(first, taken)
        left_out = torch.zeros_like(taken)
        if index in self._state.error_dict:
            error = self._state.error_dict[index]
            left_out = error - self._before.get(index, left_out)
            self._before[index] = error.clone()
        dist.all_reduce(left_out)
        expected = _flat([average(one) for one in self._members[index]])
        allowed = max(1e-3, 8 * torch.finfo(taken.dtype).eps) * float(expected.abs().max())
        # not >, which is false for NaN
        return not bool((taken + left_out / self.size() - expected).abs().max() <= allowed)


class _Silent:
    """A group that stamps each call, and whose all-reduces complete at once."""

    def __init__(self, now: Callable[[], Any]) -> None:
        self.stamps: list[Any] = []
        self._now = now

    def size(self) -> int:
        return dist.get_world_size()

    def allreduce(self, tensors: Sequence[torch.Tensor], options: Any) -> "_Silent":
        self.stamps.append(self._now())
        self._done: torch.futures.Future[Any] = torch.futures.Future()
        self._done.set_result(list(tensors))
        return self

    def get_future(self) -> torch.futures.Future[Any]:
        return self._done


class _Bucket:
    """A bucket with gradients of these parameters, as the hook sees one; its numbers have no meaning."""

    def __init__(self, index: int, members: Sequence[torch.Tensor]) -> None:
        self._index = index
        self._data = _flat([torch.rand_like(one) for one in members])
        self._gradients = [
            part.view_as(one)
            for part, one in zip(
                torch.split(self._data, [one.numel() for one in members]), members, strict=True
            )
        ]

    def index(self) -> int:
        return self._index

    def is_last(self) -> bool:
        return False

    def buffer(self) -> torch.Tensor:
        return self._data

    def gradients(self) -> list[torch.Tensor]:
        return self._gradients


def _state(group: Any, powersgd: PowerSGD) -> PowerSGDState:
    make: Any = PowerSGDState
    state: PowerSGDState = make(
        group,
        matrix_approximation_rank=powersgd.rank,
        start_powerSGD_iter=powersgd.start,
        min_compression_rate=powersgd.min_rate,
        use_error_feedback=powersgd.error_feedback,
        warm_start=powersgd.warm_start,
        orthogonalization_epsilon=EPSILON,
        batch_tensors_with_same_shape=powersgd.batched,
    )
    return state


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _flat(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
