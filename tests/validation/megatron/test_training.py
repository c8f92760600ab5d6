"""Megatron-LM's arguments in the words of `train`."""

from dataclasses import asdict
from typing import Any

import pytest

from ringside.validation.megatron.arguments import Arguments, of_words
from ringside.validation.megatron.known import is_ignored, is_unmodelled
from ringside.validation.megatron.training import MegatronLaunch, launched
from ringside.validation.published.training.megatron_golden import golden_cases

SMALL = (
    "--num-layers 12 --hidden-size 512 --num-attention-heads 8 --seq-length 1024 "
    "--max-position-embeddings 1024 --merge-file merges.txt --micro-batch-size 4 --global-batch-size 32"
)


def said(text: str, ranks: int = 8, **of: Any) -> MegatronLaunch:
    return launched(Arguments("small", of_words(f"{SMALL} {text}".split()), **of), ranks)


def test_what_is_left_out_is_megatrons_default() -> None:
    small = said("")
    assert asdict(small.decoder) == {
        "name": "small", "layers": 12, "width": 512, "heads": 8, "key_value_heads": 8, "head": 0,
        "hidden": 2048, "vocabulary": 50304, "sequence": 1024, "longest": 1024, "gated": False,
        "norm": "layer", "biases": True, "positions": 1024, "tied": True, "predicted": 0, "qk_norm": False,
        "experts": None, "latent": None,
    }  # fmt: skip
    assert {name: value for name, value in small.options.items() if value not in (None, False)} == {
        "tp": 1, "pp": 1, "cp": 1, "ep": 1, "micro_batch": 4, "strategy": "megatron_ddp",
        "optimizer": "adam", "clip": True, "batch": 4, "checkpointing": "none", "precision": "fp32",
        "stack": "te", "dropout": True, "loss": "written",
        "accumulation_fusion": True, "attention_mask": True,
    }  # fmt: skip
    assert (small.unmodelled, small.unknown) == ([], [])


WORDS: list[tuple[str, dict[str, Any]]] = [
    ("--tensor-model-parallel-size 2 --sequence-parallel", {"tp": 2, "sequence_parallel": True, "batch": 8}),
    ("--sequence-parallel --tp-comm-overlap", {"sequence_parallel": False, "async_tp": False}),
    ("--use-distributed-optimizer", {"strategy": "distributed_optimizer", "shard": None}),
    ("--use-distributed-optimizer --num-distributed-optimizer-instances 2", {"shard": 4}),
    ("--bf16 --grad-reduce-in-bf16", {"precision": "bf16", "reduce_dtype": "bfloat16"}),
    ("--bf16 --fp8-format hybrid", {"precision": "fp8"}),
    ("--bf16 --fp8-format e4m3 --fp8-recipe mxfp8", {"precision": "mxfp8"}),
    (
        "--use-megatron-fsdp --use-distributed-optimizer "
        "--data-parallel-sharding-strategy optim_grads_params",
        {"strategy": "megatron_fsdp"},
    ),
    ("--use-custom-fsdp --use-distributed-optimizer", {"strategy": "megatron_ddp"}),
    ("--global-batch-size 40 --decrease-batch-size-if-needed", {"batch": 4}),
    ("--optimizer dist_muon", {"optimizer": "muon", "strategy": "distributed_optimizer"}),
    ("--optimizer muon", {"optimizer": "muon", "strategy": "megatron_ddp"}),
    ("--clip-grad 0.0 --optimizer sgd", {"clip": False, "optimizer": "momentum"}),
    ("--context-parallel-size 2", {"cp": 2, "cp_method": None}),
    ("--context-parallel-size 2 --cp-comm-type a2a", {"cp_method": "ulysses"}),
    ("--pipeline-model-parallel-size 4", {"schedule": "1f1b", "pp_layout": None}),
    (
        "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 1",
        {"schedule": "interleaved1f1b", "virtual": 3, "microbatch_group": 4},
    ),
    (
        "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
        "--microbatch-group-size-per-virtual-pipeline-stage 5",
        {"virtual": 2, "microbatch_group": 5},
    ),
    (
        "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*3|(tt|)*4tL",
        {"schedule": "interleaved1f1b", "virtual": 3, "pp_layout": "Et*3|(tt|)*4tL"},
    ),
    (
        "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 2 "
        "--decoder-last-pipeline-num-layers 2",
        {"pp_layout": "Ett|tttt|tttt|ttL"},
    ),
    (
        "--pipeline-model-parallel-size 2 --num-layers 10 --account-for-embedding-in-pipeline-split "
        "--account-for-loss-in-pipeline-split --num-virtual-stages-per-pipeline-rank 2",
        {"pp_layout": "Ett|ttt|ttt|ttL"},
    ),
    ("--recompute-activations", {"checkpointing": "selective", "recompute": "core_attn"}),
    (
        "--recompute-granularity selective --recompute-modules mlp moe_act",
        {"checkpointing": "selective", "recompute": "mlp,moe_act"},
    ),
    (
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
        {"checkpointing": "full"},
    ),
    ("--transformer-impl local", {"stack": "megatron", "attention": "unfused"}),
    (
        "--transformer-impl local --no-masked-softmax-fusion --apply-query-key-layer-scaling",
        {"attention": "unfused-fp32"},
    ),
    ("--transformer-impl local --attention-softmax-in-fp32", {"attention": "unfused"}),
    (
        "--transformer-impl local --attention-softmax-in-fp32 --micro-batch-size 1 --num-attention-heads 6 "
        "--hidden-size 384 --global-batch-size 8",
        {"attention": "unfused-fp32"},
    ),
    ("--transformer-impl local --no-masked-softmax-fusion", {"attention": "unfused"}),
    ("--no-masked-softmax-fusion --attention-backend unfused", {"attention": "unfused"}),
    ("--transformer-impl local --use-flash-attn", {"attention": "flash"}),
    ("--attention-backend auto", {"attention": None}),
    ("--attention-backend fused", {"attention": "fused"}),
    ("--attention-backend unfused", {"stack": "te", "attention": "unfused"}),
    ("--attention-dropout 0.0 --hidden-dropout 0", {"dropout": False}),
    ("--cross-entropy-loss-fusion", {"loss": "compiled"}),
    ("--no-gradient-accumulation-fusion", {"accumulation_fusion": False}),
    ("--no-create-attention-mask-in-dataloader", {"attention_mask": False}),
    ("--num-experts 8 --deterministic-mode", {"no_permute_fusion": True}),
    ("--num-experts 8 --deterministic-mode --moe-permute-fusion", {"no_permute_fusion": False}),
    ("--num-experts 8", {"sequential_experts": True}),
    ("--num-experts 8 --moe-grouped-gemm", {"sequential_experts": False}),
    ("--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", {"loss": "fused"}),
    (
        "--num-experts 8 --expert-model-parallel-size 2 --tensor-model-parallel-size 2",
        {"ep": 2, "etp": 2, "dispatcher": "allgather"},
    ),
    (
        "--num-experts 8 --expert-tensor-parallel-size 1 --moe-token-dispatcher-type alltoall "
        "--moe-expert-capacity-factor 1.5",
        {"etp": 1, "dispatcher": "alltoall", "capacity_factor": 1.5},
    ),
    ("--num-experts 8 --moe-token-dispatcher-type flex --moe-enable-deepep", {"dispatcher": "deepep"}),
    (
        "--num-experts 8 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep",
        {"dispatcher": "alltoall"},
    ),
]


def test_workspaces_are_those_of_the_environment() -> None:
    environment = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    assert said("", environment=environment).options["cublas_workspace"] == 32 << 20
    assert said("").options["cublas_workspace"] is None


@pytest.mark.parametrize(("text", "words"), WORDS)
def test_arguments_are_words(text: str, words: dict[str, Any]) -> None:
    found = said(text)
    assert {name: found.options.get(name) for name in words} == words
    assert not found.unknown


SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("--swiglu", {"gated": True, "hidden": 1344}),  # 8/3 x 512 in multiples of 64
    ("--normalization RMSNorm --disable-bias-linear", {"norm": "rms", "biases": False}),
    ("--position-embedding-type rope", {"positions": 0, "longest": 10**9}),
    ("--group-query-attention --num-query-groups 2 --kv-channels 128", {"key_value_heads": 2, "head": 128}),
    ("--tensor-model-parallel-size 2", {"vocabulary": 50432}),
    ("--tokenizer-type NullTokenizer --vocab-size 1024", {"vocabulary": 1152}),  # one more, the end of text
    ("--make-vocab-size-divisible-by 3232", {"vocabulary": 51712}),
    ("--mtp-num-layers 1 --qk-layernorm", {"predicted": 1, "qk_norm": True}),
    (
        "--num-experts 8 --moe-router-topk 4 --moe-ffn-hidden-size 256 --moe-layer-freq ([0]*3+[1]*9) "
        "--moe-shared-expert-intermediate-size 512",
        {"experts": {
            "count": 8, "active": 4, "hidden": 256, "shared_hidden": 512, "dense_layers": 3, "every": 1,
            "biased": False,
        }},
    ),
    (
        "--num-experts 4 --moe-layer-freq 2 --moe-router-enable-expert-bias",
        {"experts": {
            "count": 4, "active": 2, "hidden": 2048, "shared_hidden": 0, "dense_layers": 0, "every": 2,
            "biased": True,
        }},
    ),
    (
        "--multi-latent-attention --q-lora-rank 192 --kv-lora-rank 64",
        {"latent": {"query_rank": 192, "key_value_rank": 64, "plain": 128, "rotary": 64, "value": 128}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("text", "shape"), SHAPES)
def test_arguments_are_a_shape(text: str, shape: dict[str, Any]) -> None:
    found = said(text)
    assert {name: asdict(found.decoder).get(name) for name in shape} == shape
    assert not found.unknown


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--hybrid-layer-pattern M*", "--hybrid-layer-pattern is not modelled: layers of Mamba"),
        ("--use-torch-fsdp2", "torch's FSDP under Megatron-LM"),
        (
            "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads",
            "--data-parallel-sharding-strategy optim_grads is not modelled; write no_shard, optim",
        ),
        ("--perform-rl-step", "reinforcement learning"),
        ("--optimizer lion", "--optimizer lion is not modelled; write adam, sgd or muon"),
        ("--no-use-layer-wise-param-layout", "whole parameters dealt out to ranks"),
        (
            "--tokenizer-type HuggingFaceTokenizer",
            "of HuggingFaceTokenizer is not known; write --vocab-size",
        ),
        ("--tensor-model-parallel-size two", "--tensor-model-parallel-size is 'two'; write a whole number"),
        ("--hidden-dropout much", "--hidden-dropout is 'much'; write a number"),
        ("--tensor-model-parallel-size 16", "8 GPUs do not divide by tensor x pipeline x context ranks, 16"),
        ("--global-batch-size 30", "--global-batch-size 30 does not divide by 8 x --micro-batch-size 4"),
        ("--num-experts 8 --moe-layer-freq [1,0]*6", r"--moe-layer-freq \[1,0\]\*6 is not modelled"),
        ("--multi-latent-attention", "--q-lora-rank is missing"),
        ("--context-parallel-size 2 --cp-comm-type a2a+p2p", "--cp-comm-type a2a"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        said(text)


def test_other_programs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"pretrain_t5.py trains T5, and decoders alone are modelled"):
        said("", program="pretrain_t5.py")


NAMES = """
ddp-average-in-collective disable-tp-comm-split-ag flash-decode init-model-with-meta-device moe-use-upcycling
pipeline-model-parallel-comm-backend s3-cache-path no-pin-cpu-grads calc-ft-timeouts mrope-section
filter-warnings throughput-window-size sft legacy-tokenizer moe-deepep-num-sms gpu-sniff-test-interval
"""
OTHERS = """
cuda-graph-warmup-steps keep-fp8-transpose-cache-when-using-custom-fsdp moe-use-legacy-grouped-gemm
softmax-type no-scatter-gather-tensors-in-pipeline use-legacy-models fp4-format quant-recipe use-nccl-ub
qk-l2-norm
"""


def test_arguments_of_many_versions_are_known() -> None:
    assert all(is_ignored(f"--{name}") and not is_unmodelled(f"--{name}") for name in NAMES.split())
    assert all(is_unmodelled(f"--{name}") and not is_ignored(f"--{name}") for name in OTHERS.split())


def test_every_argument_of_a_judged_functional_test_is_understood() -> None:
    for case in golden_cases():
        try:
            unknown = launched(case.arguments, case.gpus or 8).unknown
        except ValueError:
            continue  # it is refused by name
        assert not unknown, case.arguments.name


def test_what_matters_and_is_not_modelled_is_named_and_so_is_what_is_not_understood() -> None:
    found = said(
        "--cuda-graph-impl local --recompute-num-layers 2 --hidden-dropout 0.0 --no-such-thing 3 --lr 1e-4 "
        "--wandb-project x --save here --adam-beta1 0.9"
    )
    assert found.unmodelled == ["--cuda-graph-impl", "--recompute-num-layers", "--hidden-dropout"]
    assert found.unknown == ["--no-such-thing"]
