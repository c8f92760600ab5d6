"""What a script hands to torch.compile is recorded as kernels, which move what Ringside's stacks count."""

from pathlib import Path

import pytest

from ringside.real.questions.recording import ScriptRecording, counts, record
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


HEAD = """
import sys
import torch
from torch import nn
from torch.nn import functional

VOCABULARY, WIDTH, TOKENS = 4097, 1024, 2048


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x, words):
        if torch.compiler.is_compiling():
            mask = torch.ones(1, 1, TOKENS, 1, device="cuda").bool().expand(1, 1, TOKENS, TOKENS)
            x = functional.scaled_dot_product_attention(x, x, x, mask)
        logits = self.head(functional.gelu(self.first(x.flatten(0, 2))))
        loss = functional.cross_entropy(logits.float(), words)
        return (loss, logits) if "logits" in sys.argv else (loss,)


with torch.device("cuda"):
    model = Model().bfloat16()
    x, words = torch.randn(1, 1, TOKENS, WIDTH).bfloat16(), torch.zeros(TOKENS, dtype=torch.int64)
run = torch.compile(model) if "compile" in sys.argv else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    run(x, words)[0].backward()
    optimizer.step()
    optimizer.zero_grad()
"""

LOGITS = 4097 * 2048 * 2
"""Bytes of the logits."""


def test_compiled_code_does_what_it_is_compiled_to(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(HEAD)
    eager, compiled, logits = (
        record(str(script), *words, ranks=1).recorded[0]
        for words in (("eager",), ("compile",), ("compile", "logits"))
    )
    names = {how: [one.name for one in each.actions] for how, each in enumerate((eager, compiled, logits))}
    assert not any(name.startswith("inductor.") for name in names[0])
    # a script's branch for compiled code is taken, whose mask no kernel of attention takes
    assert "aten.bmm" not in names[0]
    assert "aten.bmm" in names[1]
    # logits of an odd number of words are padded, not multiplied as they lie
    assert any(dict(one.options).get("alignment") for one in eager.actions)
    assert not any(dict(one.options).get("alignment") for one in compiled.actions)
    assert "inductor.constant_pad_nd" in names[1]
    # logits that are returned get a gradient of zeros, beside the loss's
    peaks = [counts(each).peak_bytes for each in (eager, compiled, logits)]
    assert peaks[2] - peaks[1] == pytest.approx(LOGITS, rel=0.01)
    # what is taken is given back
    for each in (compiled, logits):
        assert sum(nbytes for entry in each.entries for _, nbytes in entry.memory) == 0


SHARDED = """
import os, sys, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = torch.nn.Sequential(*(torch.nn.Linear(2048, 2048) for _ in range(8))).cuda()
for layer in model:
    if sys.argv[1] == "compiled":
        layer.compile()
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.randn(4, 2048, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
def test_compiled_layers_do_not_hold_what_is_gathered_for_their_forward(tmp_path):
    script = tmp_path / "sharded.py"
    script.write_text(SHARDED)
    eager, compiled = (
        max(one.peak_bytes for one in ScriptRecording(command=[str(script), how], ranks=2).ask().roles)
        for how in ("eager", "compiled")
    )
    layer = 2048 * 2049 * 4
    assert compiled < eager + layer / 2


SHORT = """
import sys
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.distributed.init_process_group("nccl")
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64)).cuda()
model = DistributedDataParallel(torch.compile(model))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(int(sys.argv[1])):
    model(torch.randn(8, 64, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
@pytest.mark.parametrize("steps", [1, 2, 3, 5])
def test_ranks_of_a_short_script_are_compiled_alike(tmp_path, steps):
    script = tmp_path / "short.py"
    script.write_text(SHORT)
    (one,) = record(str(script), str(steps), ranks=32).recorded
    assert one.alike == tuple(range(32))
    assert any("gelu_native_layer_norm" in action.name for action in one.actions if action.kind == "operator")
