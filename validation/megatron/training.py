"""Megatron-LM's arguments in the options of `train`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringside.sim.training.memory.optimizers import OPTIMIZERS
from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.decoder_file import decoder_of
from ringside.validation.megatron.arguments import Arguments
from ringside.validation.megatron.known import PROGRAMS, REFUSED, is_ignored, is_unmodelled
from ringside.validation.megatron.model import Shape, shape_of

COUNTS = {
    "--tensor-model-parallel-size": "tp", "--pipeline-model-parallel-size": "pp",
    "--context-parallel-size": "cp", "--expert-model-parallel-size": "ep",
    "--micro-batch-size": "micro_batch",
}  # fmt: skip
"""Arguments that are numbers, 1 if left out, by their options."""

FLAGS = {
    "--overlap-grad-reduce": "overlap_grad_reduce", "--overlap-param-gather": "overlap_param_gather",
    "--sequence-parallel": "sequence_parallel", "--tp-comm-overlap": "async_tp",
    "--overlap-moe-expert-parallel-comm": "overlap_experts",
}  # fmt: skip
"""Arguments that are given or not, by their options."""

CONTEXT = {"p2p": None, "a2a": "ulysses", "allgather": "all-gather"}
"""Ways of context-parallel ranks, ``--cp-comm-type``, by `cp_method`; None is Megatron-LM's own."""

PRECISIONS = {"delayed": "fp8", "tensorwise": "fp8", "mxfp8": "mxfp8"}
"""Recipes of 8 bits, ``--fp8-recipe``, by `precision`."""

SHARDING = {
    "no_shard": "megatron_ddp", "optim": "distributed_optimizer", "optim_grads_params": "megatron_fsdp",
}  # fmt: skip
"""What Megatron-LM's own FSDP shards, by strategies with the same memory."""

LONGEST_FUSED = 4096
"""The longest sequence of local layers' fused softmax (megatron/core/fusions/fused_softmax.py)."""

_UNDERSTOOD = {
    *COUNTS, *FLAGS, "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split",
    "--apply-query-key-layer-scaling", "--attention-backend", "--attention-dropout",
    "--attention-softmax-in-fp32", "--bf16", "--clip-grad", "--cp-comm-type", "--cross-entropy-loss-fusion",
    "--data-parallel-sharding-strategy", "--decoder-first-pipeline-num-layers",
    "--decoder-last-pipeline-num-layers", "--decrease-batch-size-if-needed", "--deterministic-mode",
    "--disable-bias-linear", "--expert-tensor-parallel-size", "--ffn-hidden-size", "--fp16", "--fp8-format",
    "--fp8-recipe", "--global-batch-size", "--grad-reduce-in-bf16", "--group-query-attention",
    "--hidden-dropout", "--hidden-size", "--kv-channels", "--kv-lora-rank",
    "--microbatch-group-size-per-virtual-pipeline-stage", "--moe-expert-capacity-factor",
    "--moe-ffn-hidden-size", "--moe-grouped-gemm", "--moe-layer-freq", "--moe-permute-fusion",
    "--moe-shared-expert-intermediate-size", "--moe-token-dispatcher-type", "--mtp-num-layers",
    "--multi-latent-attention", "--no-create-attention-mask-in-dataloader",
    "--no-gradient-accumulation-fusion", "--no-masked-softmax-fusion", "--normalization",
    "--num-attention-heads", "--num-distributed-optimizer-instances", "--num-experts", "--num-layers",
    "--num-layers-per-virtual-pipeline-stage", "--num-query-groups", "--num-virtual-stages-per-pipeline-rank",
    "--optimizer", "--pipeline-model-parallel-layout", "--position-embedding-type", "--q-lora-rank",
    "--qk-head-dim", "--qk-layernorm", "--qk-pos-emb-head-dim", "--recompute-activations",
    "--recompute-granularity", "--recompute-method", "--recompute-modules", "--recompute-num-layers",
    "--seq-length", "--swiglu", "--untie-embeddings-and-output-weights", "--use-custom-fsdp",
    "--use-distributed-optimizer", "--use-flash-attn", "--use-megatron-fsdp",
    "--use-rotary-position-embeddings", "--v-head-dim",
}  # fmt: skip

Options = dict[str, Any]


@dataclass(frozen=True, slots=True)
class MegatronLaunch:
    """What arguments start: a decoder and ``options`` of `train`; those ``unmodelled`` and ``unknown``."""

    decoder: Decoder
    options: Mapping[str, Any]
    unmodelled: Sequence[str]
    unknown: Sequence[str]

    @property
    def remarks(self) -> list[str]:
        """Sentences on the arguments that no option expresses."""
        remarks = {"not modelled": self.unmodelled, "not understood": self.unknown}
        return [f"{what}: {', '.join(dict.fromkeys(names))}" for what, names in remarks.items() if names]


def launched(given: Arguments, ranks: int) -> MegatronLaunch:
    """Return the training that the arguments start on this number of ranks; raise ValueError for another."""
    what = PROGRAMS.get(given.program)
    if what or given.text("--tokenizer-type").startswith("Bert"):
        raise ValueError(f"{given.program} trains {what or 'an encoder'}, and decoders alone are modelled")
    for name in given.values:
        if name in REFUSED:
            raise ValueError(f"{name} is not modelled: {REFUSED[name]}")
    shape = shape_of(given)
    options = _layout(given, shape, ranks) | _kernels(given)
    unmodelled = [name for name in given.values if is_unmodelled(name)] + _partly(given)
    others = given.values.keys() - _UNDERSTOOD - {*unmodelled}
    unknown = sorted(name for name in others if not is_ignored(name))
    return MegatronLaunch(decoder_of(shape, Path(given.name)), options, unmodelled, unknown)


def _layout(given: Arguments, shape: Shape, ranks: int) -> Options:
    options: Options = {word: given.count(name, 1) for name, word in COUNTS.items()}
    options |= {word: given.has(name) for name, word in FLAGS.items()}
    options["sequence_parallel"] &= options["tp"] > 1
    options["async_tp"] &= options["sequence_parallel"]
    shared = options["tp"] * options["pp"] * options["cp"]
    data, rest = divmod(ranks, shared)
    if rest:
        raise ValueError(
            f"{ranks} GPUs do not divide by tensor x pipeline x context ranks, {shared}; write -g"
        )
    options |= _optimizer(given, data) | _stages(given, shape["layers"], options["pp"])
    options["batch"] = _batch(given, data, options["micro_batch"])
    if options["cp"] > 1:
        method = given.text("--cp-comm-type", "p2p")
        if method not in CONTEXT:
            raise ValueError(f"--cp-comm-type {method} is not modelled; write {' or '.join(CONTEXT)}")
        options["cp_method"] = CONTEXT[method]
    if given.has("--num-experts"):
        options["etp"] = given.count("--expert-tensor-parallel-size", options["tp"])
        dispatcher = given.text("--moe-token-dispatcher-type", "allgather")
        options["dispatcher"] = "allgather" if dispatcher == "allgather" else "alltoall"
        if _is_deepep(given) and options["etp"] == 1:
            options["dispatcher"] = "deepep"
        if given.has("--moe-expert-capacity-factor"):
            options["capacity_factor"] = given.share("--moe-expert-capacity-factor", 1.0)
    return options | _recomputation(given)


def _optimizer(given: Arguments, data: int) -> Options:
    optimizer = given.text("--optimizer", "adam")
    if optimizer == "sgd":  # its --sgd-momentum is 0.9
        optimizer = "momentum"
    if optimizer == "dist_muon":
        optimizer = "muon"
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"--optimizer {optimizer} is not modelled; write adam, sgd or muon")
    is_distributed = given.has("--use-distributed-optimizer") or given.text("--optimizer") == "dist_muon"
    instances = given.count("--num-distributed-optimizer-instances", 1)
    if data % instances:
        raise ValueError(f"--num-distributed-optimizer-instances {instances} does not divide {data} replicas")
    strategy = "distributed_optimizer" if is_distributed else "megatron_ddp"
    if given.has("--use-megatron-fsdp") or given.has("--use-custom-fsdp"):
        sharded = given.text("--data-parallel-sharding-strategy", "no_shard")
        if sharded not in SHARDING:
            raise ValueError(
                f"--data-parallel-sharding-strategy {sharded} is not modelled; write {', '.join(SHARDING)}"
            )
        strategy = SHARDING[sharded]
    return {
        "strategy": strategy,
        "shard": data // instances if is_distributed and instances > 1 else None,
        "optimizer": optimizer,
        "clip": given.share("--clip-grad", 1.0) > 0,
        "reduce_dtype": "bfloat16" if given.has("--grad-reduce-in-bf16") else None,
    }


def _batch(given: Arguments, data: int, micro_batch: int) -> int:
    """Return the samples of a replica; the first step of a schedule has the batch that it begins with."""
    schedule = re.match(r"0:(\d+)", given.text("--step-batch-size-schedule"))
    usual = int(schedule[1]) if schedule else micro_batch * data
    samples = given.count("--global-batch-size", usual)
    if given.has("--decrease-batch-size-if-needed"):
        samples -= samples % (micro_batch * data)
    if samples % (micro_batch * data):
        raise ValueError(
            f"--global-batch-size {samples} does not divide by {data} x --micro-batch-size {micro_batch}"
        )
    return samples // data


def _stages(given: Arguments, layers: int, pp: int) -> Options:
    """Return the schedule of a pipeline, and its layout where stages differ."""
    if pp == 1:
        return {}
    layout = given.text("--pipeline-model-parallel-layout") or None
    virtual = given.count("--num-virtual-stages-per-pipeline-rank", 1)
    if given.has("--num-layers-per-virtual-pipeline-stage"):
        virtual = layers // pp // given.count("--num-layers-per-virtual-pipeline-stage")
    if layout:
        virtual = _parts(layout) // pp
    options: Options = {"schedule": "interleaved1f1b" if virtual > 1 else "1f1b"}
    if virtual > 1:
        options["virtual"] = virtual
        options["microbatch_group"] = given.count("--microbatch-group-size-per-virtual-pipeline-stage", pp)
    options["pp_layout"] = layout or _uneven(given, layers, pp, virtual)
    return options


def _parts(layout: str) -> int:
    """Return the number of stages of a pipeline's layout, ``Et*2|(tt|)*4tL``."""
    whole = re.sub(r"\(([^()]*)\)\*(\d+)", lambda part: part[1] * int(part[2]), layout)
    return whole.count("|") + 1


def _uneven(given: Arguments, layers: int, pp: int, virtual: int) -> str | None:
    """Return the layout of a pipeline whose first and last stages differ; None if all are alike."""
    embedding, loss = (given.has(f"--account-for-{what}-in-pipeline-split") for what in ("embedding", "loss"))
    first, last = (given.count(f"--decoder-{end}-pipeline-num-layers", 0) for end in ("first", "last"))
    if not (embedding or loss or first or last):
        return None
    inner, rest = divmod(
        layers + embedding + loss - first - last, (pp - bool(first) - bool(last)) * virtual or 1
    )
    if rest or (first % virtual) or (last % virtual):
        raise ValueError(f"{layers} layers do not divide among the pipeline's other stages")
    counts = [
        (first // virtual if rank == 0 and first else last // virtual if rank == pp - 1 and last else inner)
        for _ in range(virtual)
        for rank in range(pp)
    ]
    counts[0] -= embedding
    counts[-1] -= loss
    return f"E{'|'.join('t' * count for count in counts)}L"


def _recomputation(given: Arguments) -> Options:
    usual = "selective" if given.has("--recompute-activations") else ""
    kind = given.text("--recompute-granularity", usual)
    if not kind or (kind == "full" and not given.count("--recompute-num-layers", 1)):
        return {"checkpointing": "none"}
    modules = ",".join(given.text("--recompute-modules", "core_attn").split())
    return {"checkpointing": kind} | ({"recompute": modules} if kind == "selective" else {})


def _kernels(given: Arguments) -> Options:
    precision = "bf16" if given.has("--bf16") else "fp16" if given.has("--fp16") else "fp32"
    if given.has("--fp8-format"):
        precision = PRECISIONS.get(given.text("--fp8-recipe", "delayed"), "fp8")
    loss = "written"
    if given.has("--cross-entropy-loss-fusion"):
        loss = "fused" if given.text("--cross-entropy-fusion-impl") == "te" else "compiled"
    return {
        "precision": precision,
        "stack": "megatron" if _is_local(given) else "te",
        "attention": _attention(given),
        "dropout": any(given.share(f"--{what}-dropout", 0.1) > 0 for what in ("hidden", "attention")),
        "loss": loss,
        "accumulation_fusion": not given.has("--no-gradient-accumulation-fusion"),
        "cublas_workspace": _workspace(given.environment.get("CUBLAS_WORKSPACE_CONFIG")),
        "attention_mask": not given.has("--no-create-attention-mask-in-dataloader"),
        "no_permute_fusion": given.has("--num-experts") and _keeps_outputs(given),
        "sequential_experts": given.has("--num-experts") and not given.has("--moe-grouped-gemm"),
    }


def _keeps_outputs(given: Arguments) -> bool:
    """Return whether experts' outputs are kept (megatron/core/transformer/moe/moe_utils.py, ``unpermute``).

    ``--deterministic-mode`` adds them up with ``index_add_``, whose source autograd keeps.
    """
    return given.has("--deterministic-mode") and not given.has("--moe-permute-fusion")


def _is_local(given: Arguments) -> bool:
    return given.text("--transformer-impl", "transformer_engine") == "local"


def _attention(given: Arguments) -> str | None:
    """Return the kernel of attention; None for the one that TransformerEngine chooses for the GPU."""
    if given.has("--use-flash-attn"):
        return "flash"
    if _is_local(given):
        return "unfused-fp32" if _softmax_in_fp32(given) else "unfused"
    backend = given.text("--attention-backend", "auto")
    return {"local": "unfused", "unfused": "unfused", "flash": "flash", "fused": "fused"}.get(backend)


def _softmax_in_fp32(given: Arguments) -> bool:
    """Return whether attention of local layers converts its scores to float32.

    That is what ``FusedScaleMaskSoftmax`` (megatron/core/fusions/fused_softmax.py) does where its kernel does
    not apply, and ``--apply-query-key-layer-scaling`` sets ``--attention-softmax-in-fp32``.
    """
    rows = given.count("--micro-batch-size", 1) * given.count("--num-attention-heads")
    rows //= given.count("--tensor-model-parallel-size", 1)
    sequence = given.count("--seq-length")
    is_fused = not given.has("--no-masked-softmax-fusion") and 16 < sequence <= LONGEST_FUSED
    wanted = given.has("--attention-softmax-in-fp32") or given.has("--apply-query-key-layer-scaling")
    return wanted and not (is_fused and sequence % 4 == 0 and rows % 4 == 0)


def _is_deepep(given: Arguments) -> bool:
    """Return whether DeepEP's kernels send the tokens of experts, and drop none."""
    backend = given.text("--moe-flex-dispatcher-backend", "deepep")
    is_flex = given.text("--moe-token-dispatcher-type") == "flex"
    return is_flex and backend == "deepep" and not given.has("--moe-expert-capacity-factor")


def _workspace(config: str | None) -> int | None:
    """Return the bytes of cuBLAS's workspaces by ``CUBLAS_WORKSPACE_CONFIG``, pairs of KiB and counts."""
    pairs = re.findall(r":(\d+):(\d+)", config or "")
    return sum(int(kib) * int(count) << 10 for kib, count in pairs) if pairs else None


def _partly(given: Arguments) -> list[str]:
    """Return arguments whose values the options express only in part."""
    values = {
        "--fp8-recipe": given.text("--fp8-recipe", "delayed") not in PRECISIONS,
        "--moe-token-dispatcher-type": given.text("--moe-token-dispatcher-type") == "flex"
        and not _is_deepep(given),
        "--recompute-method": given.text("--recompute-method") == "block",
        "--recompute-num-layers": given.text("--recompute-num-layers", "1") not in ("0", "1"),
        "--hidden-dropout": (given.share("--hidden-dropout", 0.1) > 0)
        != (given.share("--attention-dropout", 0.1) > 0),
    }
    return [name for name, is_partly in values.items() if is_partly]
