"""One rank of a script, run for real: the device is the CPU, the backend Gloo; its calls are written down.

``torchrun ... gloo_rank.py FOLDER SCRIPT ARGS...``: rank R writes FOLDER/R.json, for each step a list of
calls: kind, bytes, ranks of the group, root or peer, whether it sends, whether the caller waits.
"""

import json
import os
import runpy
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

KINDS = {
    "c10d.allreduce_": ("all_reduce", 0),
    "c10d.allreduce_coalesced_": ("all_reduce", 0),
    "c10d._allgather_base_": ("all_gather", 0),
    "c10d.allgather_": ("all_gather", 0),
    "c10d.allgather_into_tensor_coalesced_": ("all_gather", 0),
    "c10d._reduce_scatter_base_": ("reduce_scatter", 1),
    "c10d.reduce_scatter_": ("reduce_scatter", 1),
    "c10d.broadcast_": ("broadcast", 0),
    "c10d.reduce_": ("reduce", 0),
    "c10d.alltoall_base_": ("all_to_all", 1),
    "c10d.alltoall_": ("all_to_all", 1),
    "c10d.send": ("send", 0),
    "c10d.recv_": ("recv", 0),
    "_c10d_functional.all_reduce": ("all_reduce", 0),
    "_c10d_functional.all_gather_into_tensor": ("all_gather", 0),
    "_c10d_functional.reduce_scatter_tensor": ("reduce_scatter", 0),
    "_c10d_functional.all_to_all_single": ("all_to_all", 0),
}
"""The kind of each operator, and the argument whose bytes count."""

steps: list[list[list[object]]] = [[]]
backwards: list[int] = []
"""The number of steps at each backward."""


class Calls(TorchDispatchMode):
    """Write down collectives and messages."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        from torch.distributed._functional_collectives import AsyncCollectiveTensor
        from torch.distributed.tensor import DTensor

        if any(issubclass(one, DTensor | AsyncCollectiveTensor) for one in types):
            return NotImplemented
        if str(func._overloadpacket) in KINDS and torch._C._get_dispatch_mode(_FAKE) is None:
            steps[-1].append(self.call(func, args, kwargs or {}))
        return func(*args, **(kwargs or {}))

    def call(self, func, args, kwargs):
        kind, place = KINDS[str(func._overloadpacket)]
        names = [one.name for one in func._schema.arguments]
        named = {one.name: one.default_value for one in func._schema.arguments} | dict(
            zip(names, args, strict=False)
        )
        if "process_group" in named:
            group = dist.ProcessGroup.unbox(named["process_group"])
        else:
            group = torch._C._distributed_c10d._resolve_process_group(named["group_name"])
        ranks = dist.get_process_group_ranks(group)
        tensors = [one for one in tree_leaves(args[place]) if isinstance(one, torch.Tensor)]
        nbytes = sum(one.numel() * one.element_size() for one in tensors)
        if str(func._overloadpacket) == "_c10d_functional.all_gather_into_tensor":
            nbytes *= len(ranks)
        other = next((named[one] for one in ("root_rank", "dst", "src") if one in named), None)
        waits = bool(func.namespace == "c10d" and not named.get("async_op", True))
        return [kind, nbytes, ranks, None if other is None else ranks[other], waits]


_FAKE = torch._C._TorchDispatchModeKey.FAKE


def on_cpu(value):
    """Return a device of the CPU for one of CUDA, also within lists."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    if isinstance(value, str) and value.startswith("cuda"):
        return "cpu"
    return type(value)(map(on_cpu, value)) if type(value) in (list, tuple) else value


class OnCpu(TorchFunctionMode):
    """Take every device for the CPU."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*map(on_cpu, args), **{name: on_cpu(one) for name, one in (kwargs or {}).items()})


def with_cpu(function):
    """Return a function whose arguments name the CPU in place of CUDA."""
    return lambda *args, **kwargs: function(
        *map(on_cpu, args), **{name: on_cpu(one) for name, one in kwargs.items()}
    )


def replace():
    """Put the CPU and Gloo in place of the device and NCCL."""
    import torch.distributed.device_mesh as meshes
    import torch.distributed.fsdp as fsdp
    import torch.distributed.pipelining as pipelining
    from torch.nn.parallel import DistributedDataParallel

    init, mesh = dist.init_process_group, meshes.init_device_mesh
    dist.init_process_group = lambda *_, **__: init("gloo")
    dist.init_device_mesh = meshes.init_device_mesh = with_cpu(mesh)
    torch.cuda.set_device = torch.cuda.synchronize = lambda *_: None
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self
    move = torch.nn.Module.to
    torch.nn.Module.to = lambda self, *args, **kwargs: move(
        self, *("cpu" if isinstance(one, int) else on_cpu(one) for one in args), **kwargs
    )
    torch.nn.Module.to_empty = lambda self, *, device, recurse=True: self._apply(
        lambda one: torch.empty_like(one, device="cpu"), recurse=recurse
    )
    made = DistributedDataParallel.__init__
    DistributedDataParallel.__init__ = lambda self, module, device_ids=None, **more: made(
        self, module, **more
    )
    sharded = fsdp.FullyShardedDataParallel.__init__
    fsdp.FullyShardedDataParallel.__init__ = lambda self, *args, **more: sharded(
        self, *args, **{**more, "device_id": torch.device("cpu"), "sync_module_states": False}
    )
    cast, scale = torch.autocast.__init__, torch.amp.GradScaler.__init__
    torch.autocast.__init__ = lambda self, device_type, **more: cast(self, "cpu", **more)
    torch.amp.GradScaler.__init__ = lambda self, device, **more: scale(self, "cpu", **more)
    stage = pipelining.PipelineStage.__init__
    pipelining.PipelineStage.__init__ = lambda self, *args, **more: stage(self, *map(on_cpu, args), **more)


def main():
    """Run the script."""
    folder, script = sys.argv[1:3]
    sys.argv = sys.argv[2:]
    torch.set_num_threads(1)
    replace()
    register_optimizer_step_post_hook(stepped)
    run = torch.autograd._engine_run_backward

    def backward(*args, **kwargs):
        backwards.append(len(steps))
        return run(*args, **kwargs)

    torch.autograd._engine_run_backward = backward
    with OnCpu(), Calls():
        runpy.run_path(script, run_name="__main__")
    Path(folder, f"{os.environ['RANK']}.json").write_text(json.dumps(steps))


def stepped(*_):
    """End a step: with the last optimizer step before the next backward, as some optimizers have others."""
    if len(steps) > 1 and backwards[-1] < len(steps):
        last = steps.pop()
        steps[-1] += last
    steps.append([])


if __name__ == "__main__":
    main()
