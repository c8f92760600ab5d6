"""What a script hands to torch.compile is recorded as kernels, which move what Ringside's stacks count."""

from pathlib import Path

import pytest

from ringside.real.questions.recording import counts, record
from ringside.sim.compute.kernels import Streaming
from ringside.sim.compute.stacks import find_stack
from ringside.sim.recorded.kernels import kernels
from tests.sim.compute.test_stacks import GPT, LLAMA, moved
from tests.tiers import slow_or_proof

SCRIPT = str(Path(__file__).parents[1] / "scripts/block.py")

TOKENS = WIDTH = 4096

TURNED = 1.25 * (sum(find_stack("eager").rotary) - sum(find_stack("compile").rotary))
"""Bytes of rotary positions by complex numbers, for which Inductor has no code, beyond those of `compile`."""


def layer(model, how):
    """Return a recorded layer, forward and backward, and the bytes that its kernels move besides products."""
    (one,) = record(SCRIPT, model, how, ranks=1).recorded
    operators = [one.actions[entry.action] for entry in one.entries]
    moving = [
        kernel
        for each in operators
        if each.kind == "operator" and "adamw" not in each.name
        for kernel in kernels(each)
        if isinstance(kernel, Streaming)
    ]
    return one, sum(kernel.nbytes for kernel in moving) / TOKENS / WIDTH, len(moving)


@pytest.mark.parametrize(
    ("model", "decoder", "turned"), slow_or_proof([("gpt", GPT, 0), ("llama", LLAMA, TURNED)])
)
def test_a_compiled_layer_moves_what_its_stack_counts_and_an_eager_one_too(model, decoder, turned):
    eager, of_eager, launched = layer(model, "eager")
    compiled, of_compiled, fused = layer(model, "compile")
    assert of_eager == pytest.approx(moved("eager", decoder), rel=0.06)
    assert of_compiled == pytest.approx(moved("compile", decoder) + turned, rel=0.08)
    assert fused < launched
    assert counts(compiled).peak_bytes <= counts(eager).peak_bytes
    assert sum(counts(compiled).peak.values()) > sum(compiled.held.values())
