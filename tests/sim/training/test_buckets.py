import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ringside.sim.training.ddp.buckets import (
    BROADCAST_CHUNK,
    DEFAULT_CAP_MB,
    FIRST_BUCKET,
    Bucket,
    Bucketing,
    assign,
    layout,
)
from ringside.sim.workload.workload import Layer, Tensor, Workload

DTYPES = ("float32", "float16", "bfloat16", "float64", "complex64")
Watch = Callable[..., Any]


def random_tensors(rng: random.Random, largest: int = 3 * 2**20) -> list[Tensor]:
    dtypes = rng.sample(DTYPES, rng.choice((1, 1, 2, 3, 5)))
    return [
        Tensor(
            f"p{index}",
            rng.choice((1, 2 ** rng.randint(0, 18), rng.randint(1, 1000), rng.randint(1, largest))),
            rng.choice(dtypes),
            rng.random() < 0.05,
        )
        for index in range(rng.randint(1, 60))
    ]


def torch_assignment(tensors: list[Tensor], limits: list[int], order: list[int]) -> list[list[int]]:
    real = [torch.empty(tensors[i].count, dtype=getattr(torch, tensors[i].dtype)) for i in order]
    sparse = [tensor.sparse for tensor in tensors]
    indices, _ = dist._compute_bucket_assignment_by_size(real, limits, sparse, order)
    return indices


@pytest.mark.parametrize("seed", range(200))
def test_assignment_is_pytorchs_own(seed: int) -> None:
    rng = random.Random(seed)
    tensors = random_tensors(rng)
    limits = rng.choice(
        ([FIRST_BUCKET, 25 * FIRST_BUCKET], [2 ** rng.randint(0, 22)], [10**5, 10**6, 4 * 10**6])
    )
    order = rng.sample(range(len(tensors)), len(tensors))

    assert [list(b.parameters) for b in assign(tensors, limits, order)] == torch_assignment(
        tensors, limits, order
    )
    assert [list(b.parameters) for b in assign(tensors, limits)] == dist._compute_bucket_assignment_by_size(
        [torch.empty(t.count, dtype=getattr(torch, t.dtype)) for t in tensors],
        limits,
        [t.sparse for t in tensors],
    )[0]


def test_constants_are_pytorchs_own(process_group: None) -> None:
    ddp = DistributedDataParallel(nn.Linear(1, 1))
    assert dist._DEFAULT_FIRST_BUCKET_BYTES == FIRST_BUCKET
    assert ddp.bucket_bytes_cap == DEFAULT_CAP_MB * 2**20
    assert ddp.broadcast_bucket_size == BROADCAST_CHUNK


class Scattered(nn.Module):
    """Parameters of any size and dtype, used in an order of their own; some not at all."""

    def __init__(self, tensors: list[Tensor], used: list[int]) -> None:
        super().__init__()
        self.tensors = nn.ParameterList()
        for tensor in tensors:
            self.tensors.append(nn.Parameter(torch.ones(tensor.count, dtype=getattr(torch, tensor.dtype))))
        self.used = used

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for index in self.used:
            x = x + self.tensors[index].sum().abs().to(torch.float32)
        return x


@pytest.mark.filterwarnings("ignore:You passed find_unused_parameters")
@pytest.mark.parametrize("seed", range(60))
def test_random_models_are_bucketed_as_by_ddp(seed: int, watch: Watch) -> None:
    rng = random.Random(seed)
    tensors = [Tensor(t.name, t.count, t.dtype) for t in random_tensors(rng, largest=20000)]
    caps = rng.choices((0.0, 0.002, 0.005, 0.02, 0.1), k=rng.choice((0, 0, 1, 2, 4)))
    bucketing = Bucketing(
        bucket_cap_mb=None if caps else rng.choice((0.0, 0.005, 0.02, 0.1, None)),
        bucket_cap_mb_list=tuple(caps),
        find_unused_parameters=rng.random() < 0.4,
        static_graph=rng.random() < 0.4,
        set_last_bucket_cap=rng.random() < 0.3,
    )
    may_skip = bucketing.find_unused_parameters or bucketing.static_graph
    used = rng.sample(range(len(tensors)), rng.randint(1, len(tensors)) if may_skip else len(tensors))

    watched = watch(Scattered(tensors, used), (torch.ones(1),), bucketing)

    for iteration, reduced in enumerate(watched.buckets, 1):
        assert reduced == shapes(layout(watched.workload, bucketing, iteration))


def shapes(buckets: tuple[Bucket, ...]) -> list[tuple[int, ...]]:
    return [bucket.parameters for bucket in buckets]


def three_tensors(arrival: tuple[int, ...]) -> Workload:
    parameters = (Tensor("a", 300_000), Tensor("b", 300_000), Tensor("c", 300_000))
    return Workload("three tensors", parameters, (Layer("all", arrival),))


def test_a_parameter_without_gradient_needs_a_flag() -> None:
    with pytest.raises(ValueError, match=r"no gradient arrives for b.*write `find_unused"):
        layout(three_tensors((2, 0)), Bucketing(), iteration=2)
    assert shapes(layout(three_tensors((2, 0)), Bucketing(static_graph=True), iteration=3)) == [(2,), (0, 1)]


@pytest.mark.parametrize("cap", [-1.0, float("nan"), float("inf")])
def test_an_impossible_cap_is_refused(cap: float) -> None:
    with pytest.raises(ValueError, match=r"bucket cap.*write 0 or more"):
        Bucketing(bucket_cap_mb=cap)
    with pytest.raises(ValueError, match=r"bucket cap.*write 0 or more"):
        Bucketing(bucket_cap_mb_list=(1, cap))


def test_a_cap_beside_a_list_of_them_is_refused() -> None:
    with pytest.raises(ValueError, match="no effect beside a list; remove one of them"):
        Bucketing(5, bucket_cap_mb_list=(1, 5))


def test_iterations_are_counted_from_one() -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        layout(three_tensors((2, 1, 0)), Bucketing(), iteration=0)
