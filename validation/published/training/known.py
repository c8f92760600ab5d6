"""Well-known figures of trainings beside the answers of `train` without them; they judge nothing.

Llama team, arXiv:2407.21783, table 4: Llama 3 405B on 8,192 and 16,384 H100 at 430 and 400 TFLOP/s a GPU (43
and 41 % of the peak), tensor parallelism of 8, pipelines of 16, sequences of 8,192 tokens, 16 million tokens
a step, nothing recomputed (section 3.3.2). FLOPs are taken with attention's whole square. Parameters stay
gathered in their FSDP, as under Megatron's distributed optimizer. Neither their kernels nor their
stages per rank are published; TransformerEngine's and four are taken.

DeepSeek-AI, arXiv:2412.19437, table 1: 180,000 hours of H800 for a trillion tokens of DeepSeek-V3, which is
1,543 tokens/s of each of 2,048 GPUs; section 3: FP8, pipelines of 16, experts over 64 GPUs, 15,360 sequences
of 4,096 tokens a step; section 3.2.2: kernels that became DeepEP, hidden behind other micro-batches.
DualPipeV stands for DualPipe.

NVIDIA's DGX Cloud benchmarks (dgxc.csv): GPT-3 175B on 128 H100, which judges there.
"""

from collections.abc import Iterator
from functools import partial

from ringside.sim.workload.decoder import decoder
from ringside.validation.published.training import dgxc
from ringside.validation.published.training.steps import whole_s
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import SHOWN, alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

PIPELINE = 16
LLAMA, LLAMA_SEQUENCES, LLAMA_TFLOPS = "llama3.1-405b:8192", (1 << 24) // 8192, {8192: 430, 16_384: 400}
DEEPSEEK_TOKENS_PER_S, DEEPSEEK_GPUS, DEEPSEEK_SEQUENCES = 1e12 / 180_000 / 3600, 2048, 15_360


def llama(gpus: int, micro_batches: int) -> StepTime:
    """Return the training of Llama 3 405B with this number of micro-batches of one sequence."""
    return StepTime(
        model=LLAMA, cluster=f"dgx-h100:{gpus // 8}", precision="bf16", dtype="bf16", stack="te",
        strategy="distributed_optimizer", tp=8, sequence_parallel=True, pp=PIPELINE,
        schedule="interleaved1f1b", virtual=4, batch=micro_batches, micro_batch=1, overlap_grad_reduce=True,
        overlap_param_gather=True,
    )  # fmt: skip


def _llama_s(gpus: int, micro_batches: int) -> float:
    return llama(gpus, micro_batches).step().step_s


def deepseek(micro_batches: int) -> StepTime:
    """Return the training of DeepSeek-V3 with this number of micro-batches of one sequence."""
    return StepTime(
        model="deepseek-v3", cluster=f"hgx-h800:{DEEPSEEK_GPUS // 8}", precision="fp8", dtype="bf16",
        stack="te", ep=64, dispatcher="deepep", overlap_experts=True, pp=PIPELINE,
        schedule="dualpipev", batch=micro_batches, micro_batch=1, no_sync=True,
    )  # fmt: skip


def _rows() -> Iterator[JudgedRow]:
    for gpus, tflops in LLAMA_TFLOPS.items():
        replicas = gpus // 8 // PIPELINE
        step_s = LLAMA_SEQUENCES * decoder(LLAMA).training_flops() / gpus / tflops / 1e12
        predicted_s = whole_s(partial(_llama_s, gpus), LLAMA_SEQUENCES // replicas, PIPELINE)
        what = f"Llama 3 405B on {gpus:,} H100"
        yield alone("arXiv:2407.21783", what, step_s, predicted_s, llama(gpus, PIPELINE), SHOWN)
    for row in dgxc.steps():
        if (row.model, row.framework, row.gpus) == ("gpt3-175b", "nemo", 128):
            what = f"GPT-3 175B in {row.precision} on 128 H100, {row.release}"
            yield alone("dgxc", what, row.step_s, row.predicted_s(None), row.training(None), SHOWN)
    tokens = DEEPSEEK_SEQUENCES * 4096
    predicted_s = whole_s(
        lambda count: deepseek(count).step().step_s,
        DEEPSEEK_SEQUENCES * PIPELINE // DEEPSEEK_GPUS,
        2 * PIPELINE,
    )
    step_s = tokens / DEEPSEEK_GPUS / DEEPSEEK_TOKENS_PER_S
    what = f"DeepSeek-V3 on {DEEPSEEK_GPUS:,} H800"
    yield alone("arXiv:2412.19437", what, step_s, predicted_s, deepseek(PIPELINE), SHOWN)


TABLE = JudgedTable(
    name="known",
    title="Trainings that many know",
    source="arXiv:2407.21783, table 4; arXiv:2412.19437, table 1; dgxc",
    absolute=lambda: list(_rows()),
)
