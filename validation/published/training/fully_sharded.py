"""Fully sharded steps of a decoder on NVIDIA's machines, as tables predict them."""

from functools import cache

from sim.program.jobs import Job, simulate
from sim.program.libraries import Libraries
from sim.training.ddp.job import expected_maximum
from sim.training.ddp.usual import SPREAD, contention
from sim.training.fsdp import FlatPolicy, fsdp_program
from sim.training.mesh import Mesh
from sim.training.tensor import Numerics, rank_layers
from sim.workload.decoder import Decoder
from sim.workload.devices import Device, Roofline


def sharded_s(
    decoder: Decoder,
    gpu: Device,
    cluster: str,
    gpus: int,
    efficiency: float,
    *,
    micro_batch: int,
    micro_batches: int = 1,
    stored: str = "float32",
    reduced: str = "bfloat16",
    checkpointing: str = "none",
    fused: bool = False,
) -> float:
    """Seconds of a step under FSDP1 in bfloat16 on machines of eight, the slowest GPU waited for.

    Products reach the share ``efficiency`` of the peak. Parameters are ``stored`` and gradients ``reduced``
    in these types, which each micro-batch does. A ``fused`` update streams through memory at the data
    sheet's rate, others at what kernels usually reach.
    """
    libraries = _libraries(cluster, gpus)
    own_nbytes = decoder.num_parameters / gpus * (2 if stored == "bfloat16" else 4)
    whole, slowest = gpu.roofline("bfloat16", 1.0), 1 + SPREAD * expected_maximum(gpus)
    pace = Roofline(whole.flops_per_s * efficiency / slowest, whole.bytes_per_s / slowest, whole.itemsize)
    program = fsdp_program(
        decoder.name,
        rank_layers(
            decoder, pace, micro_batch=micro_batch,
            numerics=Numerics(dtype=stored, checkpointing=checkpointing),
        ),
        Mesh(shard=gpus),
        FlatPolicy(
            param_dtype="bfloat16", reduce_dtype=reduced, memory_bandwidth=gpu.streaming, no_sync=False
        ),
        micro_batches=micro_batches,
        # Adam reads gradients, and reads and writes parameters and two moments
        optimizer_s=7 * own_nbytes / (gpu.memory_bandwidth if fused else gpu.streaming),
        clips=True,
    )  # fmt: skip
    job = Job(program, tuple(range(gpus)), (0,) * gpus)
    taken = contention(libraries.of(job.hosts), gpu)
    return simulate([job], libraries, taken)[0].makespan_s


@cache
def _libraries(cluster: str, gpus: int) -> Libraries:
    return Libraries("nccl", f"{cluster}:{gpus // 8}", {}, gpus)
