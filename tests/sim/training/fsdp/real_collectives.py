"""A small language model under fully_shard on Gloo, and every collective that PyTorch calls.

Run as a file, one process a rank: ``real_collectives.py RANK RANKS FOLDER CASES``. Rank 0 prints its record
of each case, one JSON object. A collective is its kind, the bytes of its whole buffer, its type, its ranks,
and whether it is waited for at once.
"""

import json
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional_collectives
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining.stage import _PipelineStageBase

WIDTH, WORDS, BLOCKS = 8, 11, 3
HIDDEN = 7
"""Rows of a block's second weight, which no even number of ranks divides."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@dataclass
class Recorder:
    """Every collective that torch.distributed is asked for."""

    seen: list[tuple[str, int, str, int, bool]] = field(default_factory=list)

    @contextmanager
    def recording(self):  # type: ignore[no-untyped-def]
        kept = {
            name: getattr(dist, name) for name in ("all_gather_single", "reduce_scatter_single", "all_reduce")
        }
        dist.all_gather_single = self._wrap("all_gather", kept["all_gather_single"], 0)
        dist.reduce_scatter_single = self._wrap("reduce_scatter", kept["reduce_scatter_single"], 1)
        dist.all_reduce = self._wrap("all_reduce", kept["all_reduce"], 0)
        functional = functional_collectives.all_reduce
        functional_collectives.all_reduce = self._wrap("all_reduce", functional, 0)
        try:
            yield
        finally:
            functional_collectives.all_reduce = functional
            for name, function in kept.items():
                setattr(dist, name, function)

    def _wrap(self, kind: str, function: Callable[..., Any], place: int) -> Callable[..., Any]:
        names = {"all_gather": "output_tensor", "reduce_scatter": "input", "all_reduce": "tensor"}

        def call(*arguments: Any, **named: Any) -> Any:
            tensor = named[names[kind]] if names[kind] in named else arguments[place]
            group = named.get("group")
            if isinstance(group, tuple):  # a mesh and its dimension
                group = group[0].get_group(group[1])
            ranks = dist.get_world_size(group)
            waits = not named.get("async_op", False)
            self.seen.append((kind, tensor.nbytes, str(tensor.dtype).removeprefix("torch."), ranks, waits))
            return function(*arguments, **named)

        return call


def trained(case: dict[str, Any]) -> list[tuple[str, int, str, int, bool]]:
    """Return the collectives of a second step."""
    torch.manual_seed(0)
    model = Model()
    options: dict[str, Any] = {}
    ranks = dist.get_world_size()
    if case.get("replicas"):
        options["mesh"] = init_device_mesh(
            "cpu", (case["replicas"], ranks // case["replicas"]), mesh_dim_names=("replicate", "shard")
        )
    if "param_dtype" in case:
        options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    reshard = {"reshard_after_forward": case["reshard"]} if "reshard" in case else {}
    if case.get("ends"):
        fully_shard(model.embedding, **options, **reshard)
    for block in model.blocks:
        fully_shard(block, **options, **reshard)
    if case.get("ends"):
        fully_shard(model.head, reshard_after_forward=False, **options)
    fully_shard(model, **options)
    if case.get("forward_prefetch"):
        for one, following in zip(model.blocks, list(model.blocks)[1:], strict=False):
            one.set_modules_to_forward_prefetch([following])
    if case.get("backward_prefetch"):
        for place, one in enumerate(model.blocks):
            one.set_modules_to_backward_prefetch(list(model.blocks)[:place][-2:][::-1])
    tokens = torch.randint(WORDS, (2, 5))
    step(model, tokens, case)
    recorder = Recorder()
    with recorder.recording():
        (driven if case.get("driven") else step)(model, tokens, case)
    return recorder.seen


def step(model: Model, tokens: torch.Tensor, case: dict[str, Any]) -> None:
    assert isinstance(model, FSDPModule)
    count = case.get("micro_batches", 1)
    for number in range(count):
        last = number == count - 1
        model.set_requires_gradient_sync(last or bool(case.get("sync")))
        model.set_reshard_after_backward(last or case.get("reshard_after_backward", True))
        model(tokens).sum().backward()
    if case.get("clips"):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    model.zero_grad()


def driven(model: Model, tokens: torch.Tensor, case: dict[str, Any]) -> None:
    """Drive a stage as a pipeline's runtime does: gathered once, summed once."""
    units = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for handle in [unit.unshard(async_op=True) for unit in units]:
        assert handle is not None
        handle.wait()
    model.set_is_last_backward(False)
    model.set_reshard_after_backward(False)
    model.set_requires_gradient_sync(False)
    losses = [model(tokens).sum() for _ in range(case["micro_batches"])]
    for loss in losses:
        loss.backward()
    for unit in units:
        unit.reshard()
    _PipelineStageBase.perform_reduce_grad(SimpleNamespace(submod=model), 1)


def main() -> None:
    rank, ranks, folder, cases = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], json.loads(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=ranks)
    found = {name: trained(case) for name, case in cases.items()}
    if rank == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
