"""What a rank holds throughout a step: parameters, gradients, optimizer, and buffers of its software."""

from collections.abc import Iterable, Sequence

from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.mesh import DATA
from ringside.sim.training.strategies import MEGATRON

MESSAGES, INTERLEAVED = 3, 6
"""Tensors between stages that Megatron holds for receiving and sending, without and with several stages a
rank. Inferred from bytes after the step of its functional tests."""


def makes_gradients(job: ParallelJob) -> bool:
    """Return whether each step allocates gradients again: they are neither sharded nor parts of buckets."""
    whole = _alone(job) or job.layout.strategy == "ddp"
    return whole and job.ddp.set_to_none and not job.ddp.gradient_as_bucket_view


def held(job: ParallelJob, layers: Iterable[RankLayer], stages: Sequence[int]) -> dict[str, int]:
    """Return bytes by pool that a rank with the layers of these stages holds throughout.

    Parameters, gradients and optimizer are those of strategies that do not shard them; others hold their own.
    """
    layers = list(layers)
    nbytes = sum(layer.nbytes for layer in layers)
    by_pool = {"buffers": sum(buffer.nbytes for buffer in job.model.buffers)}
    frozen = job.model.frozen_nbytes // job.mesh.pipeline
    alone = _alone(job)
    if alone or job.layout.strategy in ("ddp", "data_parallel"):
        by_pool |= {"parameters": nbytes, "optimizer": job.optimizer.states * nbytes}
        if not makes_gradients(job):
            by_pool["gradients"] = nbytes
        has_buckets = job.layout.strategy == "ddp" and not alone
        if has_buckets and not job.ddp.gradient_as_bucket_view:
            own = sum(layer.expert_nbytes for layer in layers) if job.mesh.expert_data == 1 else 0
            by_pool["buckets"] = nbytes - own
    by_pool["parameters"] = by_pool.get("parameters", 0) + frozen
    if job.in_torchs_pipeline:
        by_pool["messages"] = _received(job, stages)
    return {pool: size for pool, size in (by_pool | _of_software(job, layers)).items() if size}


def _alone(job: ParallelJob) -> bool:
    return job.mesh.degree(*DATA) == 1 and job.layout.strategy not in MEGATRON


def _received(job: ParallelJob, stages: Sequence[int]) -> int:
    """Return the bytes of all that a rank's stages receive: torch has a tensor for each micro-batch.

    From torch/distributed/pipelining/stage.py, PyTorch 2.13: ``_prepare_forward_infra`` and
    ``_prepare_backward_infra``.
    """
    between = (0, *job.between_nbytes, 0)
    return job.micro_batches * sum(between[one] + between[one + 1] for one in stages)


def _of_software(job: ParallelJob, layers: list[RankLayer]) -> dict[str, int]:
    software, layout = job.model.software, job.layout
    if software is None:
        return {}
    by_pool = {"workspaces": software.workspaces, "buffer of scores": software.buffered_scores}
    if software.local_experts and layout.dispatcher == "allgather":
        # Megatron's GlobalMemoryBuffer (core/transformer/moe/token_dispatcher.py:298-301, core/utils.py:727)
        spread = layout.tp if layout.sequence_parallel else 1
        by_pool["gathered tokens"] = max(job.model.between_nbytes) * spread * layout.ep
    if layout.strategy in MEGATRON:
        by_pool["dummy gradients"] = software.dummies(layers)
        if job.mesh.pipeline > 1:
            count = INTERLEAVED if layout.virtual > 1 else MESSAGES
            by_pool["messages"] = count * max(job.model.between_nbytes)
    return by_pool
