"""A training as a question: the meaning of its options, and their errors."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest

import ringside
from ringside.sim.compute.grids import RatesFile
from ringside.sim.workload.decoder import DECODERS, SHAPE, decoder
from ringside.validation.questions.kernels import OfKernels
from ringside.validation.questions.step_time import StepTime

SMALL = "llama3-8b:2048,layers=2"
MIXTURE = "mixtral-8x7b:2048,layers=2"


def step_s(model: str = SMALL, **options: Any) -> float:
    return ringside.train(model, "dgx-a100:1", **{"batch": 2, **options}).step_s


def test_a_kernel_of_attention_that_does_more_takes_longer() -> None:
    flash, full, unfused = (step_s(attention=kernel) for kernel in ("flash", "full", "unfused"))
    assert flash < full
    assert flash < unfused < step_s(attention="unfused", dropout=True)
    assert step_s(attention_efficiency=0.1) > flash > step_s(attention_efficiency=0.9)


@pytest.mark.parametrize("strategy", ["fsdp", "fsdp1"])
def test_fsdp_exchanges_bytes_of_the_types_that_are_said(strategy: str) -> None:
    def exchanged_s(**types: str) -> float:
        found = ringside.train(SMALL, "dgx-a100:2", batch=1, strategy=strategy, **types)
        return found.stages[0].communication_s

    narrow, usual, wide = (exchanged_s(param_dtype=one) for one in ("float8_e4m3fn", "bf16", "fp32"))
    assert narrow < usual < wide
    assert exchanged_s(reduce_dtype="bf16") < exchanged_s() == usual


def test_products_apart_hide_nothing_behind_them() -> None:
    tensor = {"strategy": "fsdp", "tp": 4, "sequence_parallel": True}
    assert step_s(**tensor, tp_style="dtensor") != step_s(**tensor, tp_style="megatron") == step_s(**tensor)


def test_no_sync_is_said_once_for_all() -> None:
    assert step_s("gpt2:256", accumulation=4, no_sync=True) < step_s("gpt2:256", accumulation=4)
    assert StepTime(model="gpt2", cluster="star:2", no_sync=True).ddp.no_sync


@pytest.mark.parametrize("name", DECODERS)
def test_a_shape_that_is_said_as_it_is_changes_nothing(name: str) -> None:
    known = asdict(DECODERS[name])
    shape = ",".join(f"{key}={known[key]}" for key in SHAPE if known[key])
    assert decoder(f"{name}:{known['sequence']},{shape}") == DECODERS[name]


def test_a_shape_keeps_what_hangs_together() -> None:
    found = decoder("gpt3-125m:512,width=1024,heads=16,positions=512")
    assert (found.key_value_heads, found.hidden, found.longest, found.sequence) == (16, 4096, 512, 512)
    grouped = decoder("llama3-8b:heads=64,layers=3")
    assert (grouped.key_value_heads, grouped.layers, grouped.sequence) == (8, 3, 8192)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": "llama2-7b:depth=3"}, "unknown part of a shape 'depth'; write width "),
        ({"model": "llama2-7b:layers=x"}, "layers is 'x'; write for example layers=32"),
        ({"model": "llama2-7b:heads=33"}, "does not divide by 33 heads"),
        (
            {"attention": "causal"},
            "unknown attention kernel 'causal'; write one of flash, fused, full, unfused",
        ),
        (
            {"model": "resnet50", "attention": "flash"},
            "`attention` flash of resnet50, whose kernels are its own; leave it out",
        ),
        ({"attention_efficiency": 1.5}, "write a share from 1e-06 to 1"),
        ({"tp_style": "dtensor"}, "`tp_style` needs tensor-parallel ranks; add `tp` 2"),
        ({"tp": 2, "tp_style": "ring"}, "write one of megatron, dtensor"),
        ({"param_dtype": "bf16"}, "fsdp or fsdp1 or hsdp or megatron_fsdp, not ddp; leave it out"),
        ({"strategy": "fsdp", "reduce_dtype": "float8_e4m3fn"}, "write float32 "),
        ({"strategy": "fsdp", "precision": "fp8"}, "has no peak for 'fp8'"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        step_s(**options)


TIMED = """
name: one layer
batch: 1
sample: image
parameters: {a: {count: 1024}}
layers: [{name: l, forward: 1ms, backward: 2ms, gradients: [a]}]
"""
RATES = RatesFile(
    device="half",
    source="",
    date="2026-11-26",
    products={"bf16": ((128, 128, 128, 1e12), (8192, 8192, 8192, 1e14))},
)  # fmt: skip


def answered(model: str, **options: Any) -> tuple[float, int]:
    """Return seconds of a plain step, and bytes of one under a stack that accumulates gradients."""
    sharded = ringside.train(model, "dgx-a100:1", batch=2, strategy="distributed_optimizer", **options)
    return step_s(model, **options), sharded.peak_nbytes


KERNELS = {
    "precision": "bf16", "stack": "te", "compute_efficiency": 0.4, "attention": "full", "dropout": True,
    "loss": "fused", "attention_efficiency": 0.4, "power_cap": 300.0, "products": "rates.json",
    "accumulation_fusion": False, "cublas_workspace": "1MiB", "sequential_experts": True,
    "attention_mask": True, "no_permute_fusion": True, "launch_ms": 50.0,
}  # fmt: skip


@pytest.mark.parametrize("name", [one.name for one in fields(OfKernels)])
def test_a_word_of_kernels_changes_the_answer_or_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("timed.yaml").write_text(TIMED, encoding="utf-8")
    Path("rates.json").write_text(RATES.dumps(), encoding="utf-8")
    fitting = {
        **dict.fromkeys(("sequential_experts", "no_permute_fusion"), MIXTURE),
        "attention_mask": "gpt2",
    }
    small = fitting.get(name, SMALL)
    for model in (small, "resnet50", "bert-base:64", "timed.yaml"):
        refusal = ""
        try:
            changed = answered(model, **{name: KERNELS[name]})
        except ValueError as error:
            refusal = str(error)
        if refusal:
            assert f"`{name}`" in refusal
            assert model != small
        else:
            plain = answered(model, **({"precision": "fp32"} if name == "precision" else {}))
            assert changed != plain, model


def test_rates_without_the_precision_of_products_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "rates.json"
    path.write_text(RATES.dumps(), encoding="utf-8")
    assert step_s(products=str(path), precision="fp16") > step_s(precision="fp16")
    with pytest.raises(ValueError, match="rates of half have no products in fp32; write `precision` bf16"):
        step_s(products=str(path), precision="fp32")
