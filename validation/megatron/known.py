"""Megatron-LM's arguments by what becomes of them: refused, named as not modelled, or of no effect here.

Names are those of ``megatron/training/arguments.py`` from core_v0.12.0 to d98e8a6.
"""

import re

REFUSED = {
    **dict.fromkeys(
        (
            "--hybrid-layer-pattern",
            "--hybrid-override-pattern",
            "--is-hybrid-model",
            "--mamba-state-dim",
            "--hybrid-attention-ratio",
            "--hybrid-mlp-ratio",
            "--mamba-head-dim",
            "--mamba-num-groups",
            "--mamba-num-heads",
            "--mtp-hybrid-override-pattern",
        ),
        "layers of Mamba",
    ),
    **dict.fromkeys(
        ("--encoder-num-layers", "--encoder-seq-length", "--decoder-num-layers", "--decoder-seq-length"),
        "an encoder",
    ),
    **dict.fromkeys(
        ("--model-provider", "--language-model-checkpoint", "--vision-pretraining", "--img-h"), "vision"
    ),
    "--use-torch-fsdp2": "torch's FSDP under Megatron-LM",
    **dict.fromkeys(("--export-kd-teacher-load", "--teacher-load"), "distillation from a second model"),
    **dict.fromkeys(
        ("--heterogeneous-layers-config-path", "--heterogeneous-layers-config-encoded-json", "--flextron"),
        "layers of different shapes",
    ),
    **dict.fromkeys(
        (
            "--cpu-offloading",
            "--optimizer-cpu-offload",
            "--fine-grained-activation-offloading",
            "--offload-optimizer-states",
        ),
        "offloading to the host",
    ),
    "--no-use-layer-wise-param-layout": "whole parameters dealt out to ranks",
    "--perform-rl-step": "reinforcement learning",
    "--retro-add-retriever": "Retro",
    **dict.fromkeys(
        ("--experimental-attention-variant", "--linear-attention-type"), "attention of another kind"
    ),
    **dict.fromkeys(("--enable-hyper-connections", "--num-residual-streams"), "several residual streams"),
    "--moe-latent-size": "experts of narrower tokens",
    "--outer-dp-sharding-strategy": "sharding within groups by Megatron-LM's FSDP",
    "--yaml-cfg": "a file with other arguments",
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
    r"--(apply-residual-connection-post-layernorm|attention-output-gate|batch-invariant-mode"
    r"|bias-swiglu-fusion|checkpoint-activations|cuda-graph-\S+|ddp-bucket-size|ddp-num-buckets"
    r"|ddp-reduce-scatter-with-fp32-accumulation|defer-embedding-wgrad-compute"
    r"|delay-wgrad-compute|distribute-saved-activations|dynamic-context-parallel|enable-cuda-graph"
    r"|exp-avg-dtype|exp-avg-sq-dtype|export-\S+"
    r"|external-cuda-graph|fallback-to-eager-attn|first-last-layers-bf16|fp16-lm-cross-entropy|fp4-\S+"
    r"|fp32-residual-connection|fp8-dot-product-attention|fp8-multi-head-attention"
    r"|fp8-param-gather|fsdp-double-buffer|hierarchical-context-parallel-sizes|hybrid-context-parallel"
    r"|keep-fp8-transpose-cache\S*|kitchen-\S+|main-grads-dtype|main-params-dtype|max-seqlen-per-dp-cp-rank"
    r"|megatron-fsdp-(main-params|main-grads|grad-comm)-dtype|mla-down-proj-fusion"
    r"|moe-apply-probs-on-input|moe-enable-deepep|moe-extended-tp|moe-flex-dispatcher-backend|moe-layer-recompute"
    r"|moe-shared-expert-gate|moe-shared-expert-overlap|moe-use-legacy-grouped-gemm|mtp-use-repeated-layer|no-bias-dropout-fusion|no-bias-gelu-fusion"
    r"|no-bias-swiglu-fusion|no-overlap-p2p-communication|no-persist-layer-norm"
    r"|no-rope-fusion|no-scatter-gather-tensors-in-pipeline|num-layers-at-(start|end)-in-bf16|offload-modules|openai-gelu|optimizer-offload-fraction"
    r"|overlap-moe-expert-parallel-comm|overlap-p2p-communication-warmup-flush"
    r"|overlap-param-gather-with-optimizer-step|qk-l2-norm|quant-recipe|quick-geglu|relative-attention-\S+|softmax-type|spec"
    r"|squared-relu|symmetric-ar-type|te-precision-config-file|use-fused-weighted-squared-relu|use-kitchen\S*"
    r"|use-legacy-models|use-nccl-ub|use-precision-aware-optimizer|use-sharp|use-te-activation-func"
    r"|use-transformer-engine-op-fuser|window-attn-skip-freq|window-size)"
)
"""Arguments that matter to time or memory and change no answer."""

_IGNORED = re.compile(
    r"--(accumulate-allreduce-grads-in-fp32|activation-func-clamp-value|adam-\S+|adlr-\S+|add-qkv-bias|app-tag-\S+|apply-layernorm-1p"
    r"|async-\S+|auto-detect-ckpt-format"
    r"|bert-no-binary-head|binary-mask|cache-mla-latents|calc-ft-timeouts|calculate-per-token-loss|check-\S+|ckpt-\S+|config-logger-dir"
    r"|create-all-gather-group|cross-entropy-fusion-impl|data-\S+|ddp-average-in-collective"
    r"|ddp-pad-buckets-for-high-nccl-busbw|dataloader-\S+|dataset-\S+|decoupled-\S+"
    r"|disable-bf16-reduced-precision-matmul|disable-gloo-process-groups"
    r"|disable-straggler-on-startup|disable-tp-comm-\S+|dsa-\S+|dist-ckpt-\S+|distributed-\S+|embedding-init-method-std"
    r"|empty-unused-memory-level|enable-experimental|enable-ft-package|enable-msc|encoder-(tensor|pipeline)-\S+|enable-one-logger|end-weight-decay"
    r"|eod-mask-loss|error-injection-\S+|eval-\S+|exit-\S+|fim-\S+|filter-warnings|finetune|flash-decode|fp8-amax-\S+|fp8-interval"
    r"|fp8-margin|full-validation|glu-linear-offset|gpu-sniff-test-interval|grpo-\S+"
    r"|high-priority-stream-groups|hysteresis|inference-\S+|init-method-\S+|init-model-with-meta-device"
    r"|initial-loss-scale|inprocess-\S+"
    r"|iterations-to-skip|langrl-\S+|layernorm-\S+|lazy-mpu-init|legacy-tokenizer|load|local-rank|log-\S+|logging-level|loss-scale\S*|lr|lr-\S+"
    r"|make-vocab-size-divisible-by|manual-gc\S*|mask-prob|max-position-embeddings|max-tokens-to-oom|memory-keys"
    r"|merge-file|min-loss-scale|min-lr|mock-data|modules-to-filter|moe-deepep-num-sms"
    r"|moe-flex-dispatcher-num-sms|moe-hybridep-num-sms|moe-pad-experts-for-cuda-graph-inference"
    r"|moe-routing-trace-\S+|moe-use-upcycling|mrope-section|multiple-validation-sets|moe-aux-loss-coeff|moe-input-jitter-eps|moe-grouped-gemm|moe-pad-expert-input-to-capacity"
    r"|moe-per-layer-logging|moe-router-\S+|moe-token-drop-policy|moe-z-loss-coeff"
    r"|mscale\S*|mtp-loss-scaling-factor|mup-\S+|muon-\S+|nccl-communicator-config-path|no-align-\S+"
    r"|no-async-tensor-model-parallel-allreduce|no-barrier-with-level-1-timing|no-check-\S+|no-ckpt-\S+"
    r"|no-clone-scatter-output-in-embedding|no-data-sharding"
    r"|no-fp8-wgrad|no-gradient-accumulation-fusion|no-gradient-reduce-div-fusion|no-initialization"
    r"|no-load-\S+|no-log-\S+|no-manual-gc-eval|no-mmap-bin-files|no-one-logger|no-position-embedding"
    r"|no-pin-cpu-\S+|no-rope-freq|no-save-\S+|no-weight-decay-cond-type|no-use-tokenizer-model-from-checkpoint-args|norm-epsilon"
    r"|non-persistent-\S+|num-dataset-builder-threads|num-workers|one-logger-\S+|overlap-cpu-optimizer-d2h-h2d|override-opt\S+|packing-buffer-size"
    r"|per-split-data-args-path|phase-transition-iterations|pipeline-model-parallel-comm-backend|pretrained-checkpoint"
    r"|profile\S*|qk-clip\S*|rampup-batch-size|refit-method|replication\S*|result-rejected-tracker-filename|rl-\S+"
    r"|record-memory-history|memory-snapshot-path|rerun-\S+|reset-attention-mask|reset-position-ids|rope-\S+"
    r"|rotary-\S+|run-workload-inspector-server|runtime-time-unit|s3-cache-path|sample-rate|save|save-\S+"
    r"|seed|set-level-for-all-loggers|sft\S*|sgd-momentum"
    r"|short-seq-prob|skip-train|split|start-eval-at-iter|start-weight-decay|step-batch-size-schedule|straggler-\S+"
    r"|suggested-communication-unit-size|te-rng-tracker|tensorboard-\S+|test-data-path|test-mode"
    r"|throughput-window-size|tiktoken-\S+|timing-log-\S+|tokenizer-\S+|tp-comm-\S+|train-\S+|transformer-impl"
    r"|use-checkpoint-\S+|use-cpu-initialization|use-dist-ckpt|use-mcore-models|use-mp-args-\S+|use-mup"
    r"|use-persistent-ckpt-worker|use-pytorch-profiler|use-ring-exchange-p2p|use-rope-scaling"
    r"|use-torch-optimizer-for-cpu-offload|use-tp-pp-dp-mapping|valid-data-path|validation-set-names|verify-integrity|vocab-extra-ids|vocab-file|vocab-size|wandb-\S+|warmup|weight-decay\S*"
    r"|weight-hash-\S+|wgrad-deferral-limit)"
)
"""Arguments without effect on the time or memory of a step, and those that others' meaning takes in."""


def is_unmodelled(name: str) -> bool:
    """Return whether an argument matters, and no answer knows it."""
    return bool(_UNMODELLED.fullmatch(name))


def is_ignored(name: str) -> bool:
    """Return whether an argument changes neither the time of a step nor its memory."""
    return bool(_IGNORED.fullmatch(name))
