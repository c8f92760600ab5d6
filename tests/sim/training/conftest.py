from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ringside.real.model.architecture import architecture
from ringside.sim.training.ddp.buckets import Bucketing
from ringside.sim.workload.workload import Layer, Workload


@dataclass
class Watched:
    """What a real DistributedDataParallel did: the parameters of each bucket it reduced, by iteration."""

    workload: Workload
    log: dict[str, str]
    buckets: list[list[tuple[int, ...]]] = field(default_factory=list)


Watch = Callable[[nn.Module, tuple[torch.Tensor, ...], Bucketing], Watched]


@pytest.fixture(scope="session")
def process_group() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    torch.set_num_threads(threads)


@pytest.fixture
def watch(process_group: None, monkeypatch: pytest.MonkeyPatch) -> Watch:
    def watch(module: nn.Module, inputs: tuple[torch.Tensor, ...], bucketing: Bucketing) -> Watched:
        monkeypatch.setenv("DDP_SET_LAST_BUCKET_CAP", str(int(bucketing.set_last_bucket_cap)))
        return train(module, inputs, bucketing)

    return watch


def train(module: nn.Module, inputs: tuple[torch.Tensor, ...], bucketing: Bucketing) -> Watched:
    position = {id(p): i for i, p in enumerate(p for p in module.parameters() if p.requires_grad)}
    ddp = DistributedDataParallel(
        module,
        bucket_cap_mb=bucketing.bucket_cap_mb,
        bucket_cap_mb_list=list(bucketing.bucket_cap_mb_list),
        find_unused_parameters=bucketing.find_unused_parameters,
        static_graph=bucketing.static_graph,
    )
    buckets: list[list[tuple[int, ...]]] = []

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        buckets[-1].append(tuple(position[id(p)] for p in bucket.parameters()))
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    ddp.register_comm_hook(None, hook)
    for _ in range(4 if bucketing.static_graph else 3):
        buckets.append([])
        ddp(*inputs).abs().sum().backward()
    log = ddp._get_ddp_logging_data()
    arrival = tuple(int(text) for text in log["prev_iteration_grad_ready_order_indices"].split(","))
    return Watched(
        Workload("watched", architecture(module).parameters, (Layer("all", arrival),)), log, buckets
    )
