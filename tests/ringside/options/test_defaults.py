"""Defaults are the library's own: those of the installed torch, read from its signatures."""

import inspect
import re
import warnings
from dataclasses import fields
from pathlib import Path

import pytest
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.experimental._context_parallel._attention import _ContextParallelOptions
from torch.nn.parallel import DistributedDataParallel

from ringside.commands.train import command as train
from ringside.sim.training.ddp import buckets
from ringside.sim.training.ddp.buckets import Bucketing, PowerSGD
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.flat_shard import FlatPolicy
from ringside.sim.training.fsdp_policy import FullyShardPolicy
from ringside.sim.training.strategies import CLIPPING, STRATEGIES, SYNCING
from ringside.validation.questions.layout import ByLayout

PAGE = (Path(__file__).parents[3] / "docs/defaults.md").read_text(encoding="utf-8")

NOT_OF_A_FRAMEWORK = {
    "context", "model", "cluster", "settings", "ranks", "placement", "library", "global_batch", "device",
    "compute_efficiency", "measured", "straggler", "slow_link", "jitter", "os_noise", "late", "draws", "seed",
    "products", "power_cap", "spread", "contention", "host_ms", "launch_ms", "network", "calibration",
    "anchor", "sweep", "must_fit", "search", "top", "fixed", "reserve", "plot", "html", "trace", "force",
    "all_columns", "json", "megatron", "memory", "plot_memory", "animate", "by",
}  # fmt: skip
"""What says where and how is asked, and nothing that a framework has a default for."""


def theirs(function: object, name: str) -> object:
    """Return the default of a parameter of torch."""
    return inspect.signature(function).parameters[name].default  # type: ignore[arg-type]


def test_distributed_data_parallel() -> None:
    ours, wrapper = DataParallel(), DistributedDataParallel.__init__
    for name in ("find_unused_parameters", "static_graph"):
        assert getattr(ours.bucketing, name) == theirs(wrapper, name)
    assert ours.gradient_as_bucket_view == theirs(wrapper, "gradient_as_bucket_view")
    assert theirs(wrapper, "bucket_cap_mb") is ours.bucketing.bucket_cap_mb is None
    assert theirs(wrapper, "bucket_cap_mb_list") is None
    assert not ours.bucketing.bucket_cap_mb_list
    # both None, which torch takes for true
    assert theirs(wrapper, "broadcast_buffers") is theirs(wrapper, "forward_sync_buffers") is None
    assert ours.broadcast_buffers
    assert buckets.FIRST_BUCKET == dist._DEFAULT_FIRST_BUCKET_BYTES  # type: ignore[attr-defined]
    assert "no_sync" in dir(DistributedDataParallel)
    assert not ours.no_sync
    assert Bucketing() == ours.bucketing


def test_powersgd() -> None:
    ours = PowerSGD()
    assert {
        "matrix_approximation_rank": ours.rank, "start_powerSGD_iter": ours.start,
        "min_compression_rate": ours.min_rate, "use_error_feedback": ours.error_feedback,
        "warm_start": ours.warm_start, "batch_tensors_with_same_shape": ours.batched,
    } == {
        name: theirs(PowerSGDState.__init__, name)
        for name in (
            "matrix_approximation_rank", "start_powerSGD_iter", "min_compression_rate", "use_error_feedback",
            "warm_start", "batch_tensors_with_same_shape",
        )
    }  # fmt: skip


def test_fsdp() -> None:
    flat, wrapper = FlatPolicy(), FullyShardedDataParallel.__init__
    for name in ("forward_prefetch", "limit_all_gathers", "use_orig_params"):
        assert getattr(flat, name) == theirs(wrapper, name)
    assert f"BACKWARD_{str(flat.backward_prefetch).upper()}" == theirs(wrapper, "backward_prefetch").name  # type: ignore[attr-defined]
    assert theirs(wrapper, "sharding_strategy") is None  # which is FULL_SHARD
    assert flat.strategy == "full_shard"
    ours, policy = FullyShardPolicy(), theirs(fully_shard, "mp_policy")
    assert isinstance(policy, MixedPrecisionPolicy)
    assert (ours.param_dtype, ours.reduce_dtype) == (policy.param_dtype, policy.reduce_dtype)
    assert ours.reshard_after_forward == theirs(fully_shard, "reshard_after_forward")
    assert not ours.no_sync
    assert not flat.no_sync


def test_zero_redundancy_optimizer_has_neither_option() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit, as it imports itself
        from torch.distributed.optim import ZeroRedundancyOptimizer

    for name in ("parameters_as_bucket_view", "overlap_with_ddp"):
        assert theirs(ZeroRedundancyOptimizer.__init__, name) is False


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_words_left_out_are_the_frameworks(strategy: str) -> None:
    layout = ByLayout(strategy=strategy).layout()
    assert layout.syncs_each is (strategy in SYNCING)
    assert layout.clip is (strategy in CLIPPING)
    assert not layout.overlap_grad_reduce
    assert not layout.overlap_param_gather
    if strategy in ("ddp", "fsdp", "fsdp1", "hsdp"):
        assert ByLayout(strategy=strategy, cp=2).layout().cp_method == "all-gather"


def test_context_parallel_ranks_of_torch_gather_and_balance() -> None:
    options = _ContextParallelOptions()
    assert (options.rotate_method.name, options.enable_load_balance) == ("ALL_GATHER", True)


def test_every_option_of_a_training_stands_on_the_page() -> None:
    """A new option says whose its default is."""
    listed = set(
        re.findall(r"`--([a-z-]+)`", "".join(row.split("|")[1] for row in PAGE.splitlines() if "|" in row))
    )
    options = set(inspect.signature(train.command).parameters) - NOT_OF_A_FRAMEWORK
    assert {name.replace("_", "-") for name in options} == listed
    assert {one.name for one in fields(ByLayout)} <= options
