"""Megatron-LM's arguments by what becomes of them: refused, named as not modelled, or of no effect here.

Names are those of ``megatron/training/arguments.py`` from core_v0.12.0 to d98e8a6.
"""

import re

REFUSED = {
    **dict.fromkeys(
        ("--hybrid-layer-pattern", "--hybrid-override-pattern", "--is-hybrid-model", "--mamba-state-dim"),
        "layers of Mamba",
    ),
    **dict.fromkeys(("--encoder-num-layers", "--encoder-seq-length"), "an encoder"),
    **dict.fromkeys(
        ("--model-provider", "--language-model-checkpoint", "--vision-pretraining", "--img-h"), "vision"
    ),
    "--use-torch-fsdp2": "torch's FSDP under Megatron-LM",
    **dict.fromkeys(("--export-kd-teacher-load", "--teacher-load"), "distillation from a second model"),
    **dict.fromkeys(
        ("--heterogeneous-layers-config-path", "--heterogeneous-layers-config-encoded-json"),
        "layers of different shapes",
    ),
    **dict.fromkeys(
        ("--cpu-offloading", "--optimizer-cpu-offload", "--fine-grained-activation-offloading"),
        "offloading to the host",
    ),
    "--no-use-layer-wise-param-layout": "whole parameters dealt out to ranks",
    "--perform-rl-step": "reinforcement learning",
    "--retro-add-retriever": "Retro",
    "--experimental-attention-variant": "attention of another kind",
}
"""Arguments without which an answer would be wrong, by what they ask for."""

PROGRAMS = {
    "pretrain_bert.py": "BERT", "pretrain_t5.py": "T5", "pretrain_mamba.py": "Mamba",
    "pretrain_hybrid.py": "Mamba", "pretrain_vlm.py": "vision", "pretrain_retro.py": "Retro",
    "pretrain_ict.py": "BERT", "pretrain_vision_classify.py": "vision",
    "train_rl.py": "reinforcement learning",
}  # fmt: skip
"""Programs that train other models."""

_UNMODELLED = re.compile(
    r"--(apply-residual-connection-post-layernorm|bias-swiglu-fusion|cuda-graph-impl|cuda-graph-scope"
    r"|cuda-graph-modules|ddp-bucket-size|ddp-num-buckets|defer-embedding-wgrad-compute"
    r"|delay-wgrad-compute|distribute-saved-activations|enable-cuda-graph|exp-avg-dtype|exp-avg-sq-dtype"
    r"|external-cuda-graph|first-last-layers-bf16|fp16-lm-cross-entropy|fp32-residual-connection"
    r"|fp8-param-gather|hierarchical-context-parallel-sizes|main-grads-dtype|main-params-dtype"
    r"|moe-enable-deepep|moe-extended-tp|moe-flex-dispatcher-backend|moe-layer-recompute"
    r"|moe-shared-expert-overlap|mtp-use-repeated-layer|no-bias-dropout-fusion|no-bias-gelu-fusion"
    r"|no-bias-swiglu-fusion|no-overlap-p2p-communication|no-persist-layer-norm"
    r"|no-rope-fusion|num-layers-at-(start|end)-in-bf16|offload-modules|openai-gelu|optimizer-offload-fraction"
    r"|overlap-moe-expert-parallel-comm|overlap-p2p-communication-warmup-flush"
    r"|overlap-param-gather-with-optimizer-step|quick-geglu|relative-attention-\S+|spec|squared-relu"
    r"|use-precision-aware-optimizer|use-transformer-engine-op-fuser|window-size)"
)
"""Arguments that matter to time or memory and change no answer."""

_IGNORED = re.compile(
    r"--(accumulate-allreduce-grads-in-fp32|adam-\S+|adlr-\S+|add-qkv-bias|app-tag-\S+|apply-layernorm-1p"
    r"|async-\S+|auto-detect-ckpt-format"
    r"|bert-no-binary-head|binary-mask|calculate-per-token-loss|check-\S+|ckpt-\S+|config-logger-dir"
    r"|cross-entropy-fusion-impl|data-\S+|dataloader-\S+|dataset-\S+|decoupled-\S+|decrease-batch-size-if-needed"
    r"|disable-bf16-reduced-precision-matmul|disable-gloo-process-groups"
    r"|disable-straggler-on-startup|dist-ckpt-\S+|distributed-\S+|embedding-init-method-std"
    r"|empty-unused-memory-level|enable-experimental|enable-ft-package|enable-one-logger|end-weight-decay"
    r"|eod-mask-loss|error-injection-\S+|eval-\S+|exit-\S+|fim-\S+|finetune|fp8-amax-\S+|fp8-interval"
    r"|fp8-margin|full-validation|hysteresis|inference-\S+|init-method-\S+|initial-loss-scale"
    r"|iterations-to-skip|lazy-mpu-init|load|local-rank|log-\S+|logging-level|loss-scale\S*|lr|lr-\S+"
    r"|make-vocab-size-divisible-by|manual-gc\S*|mask-prob|max-position-embeddings|merge-file|min-loss-scale"
    r"|min-lr|mock-data|moe-aux-loss-coeff|moe-input-jitter-eps|moe-grouped-gemm|moe-pad-expert-input-to-capacity"
    r"|moe-per-layer-logging|moe-router-\S+|moe-token-drop-policy|moe-z-loss-coeff"
    r"|mscale\S*|mtp-loss-scaling-factor|mup-\S+|muon-\S+|nccl-communicator-config-path|no-align-\S+"
    r"|no-async-tensor-model-parallel-allreduce|no-barrier-with-level-1-timing|no-check-\S+|no-ckpt-\S+"
    r"|no-clone-scatter-output-in-embedding|no-data-sharding"
    r"|no-fp8-wgrad|no-gradient-accumulation-fusion|no-gradient-reduce-div-fusion|no-initialization"
    r"|no-load-\S+|no-log-\S+|no-manual-gc-eval|no-mmap-bin-files|no-one-logger|no-position-embedding"
    r"|no-save-\S+|no-use-tokenizer-model-from-checkpoint-args|norm-epsilon"
    r"|non-persistent-\S+|num-dataset-builder-threads|num-workers|one-logger-\S+|override-opt\S+"
    r"|per-split-data-args-path|pretrained-checkpoint|profile\S*|qk-clip\S*|rampup-batch-size"
    r"|record-memory-history|memory-snapshot-path|rerun-\S+|reset-attention-mask|reset-position-ids|rope-\S+"
    r"|rotary-\S+|run-workload-inspector-server|sample-rate|save|save-\S+|seed|sgd-momentum"
    r"|short-seq-prob|skip-train|split|start-weight-decay|step-batch-size-schedule|straggler-\S+"
    r"|suggested-communication-unit-size|te-rng-tracker|tensorboard-\S+|test-data-path|test-mode"
    r"|tiktoken-\S+|timing-log-\S+|tokenizer-\S+|tp-comm-\S+|train-\S+|transformer-impl"
    r"|use-checkpoint-\S+|use-cpu-initialization|use-dist-ckpt|use-mcore-models|use-mp-args-\S+|use-mup"
    r"|use-persistent-ckpt-worker|use-pytorch-profiler|use-ring-exchange-p2p|use-rope-scaling"
    r"|use-tp-pp-dp-mapping|valid-data-path|verify-integrity|vocab-extra-ids|vocab-file|vocab-size|wandb-\S+|weight-decay\S*"
    r"|weight-hash-\S+|wgrad-deferral-limit)"
)
"""Arguments without effect on the time or memory of a step, and those that others' meaning takes in."""


def is_unmodelled(name: str) -> bool:
    """Return whether an argument matters, and no answer knows it."""
    return bool(_UNMODELLED.fullmatch(name))


def is_ignored(name: str) -> bool:
    """Return whether an argument changes neither the time of a step nor its memory."""
    return bool(_IGNORED.fullmatch(name))
