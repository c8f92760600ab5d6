"""Packages that shims stand in for, and ``record --without``: those that they do not replace."""

import pytest

from ringside.real.questions.recording import ScriptRecording
from ringside.real.record.processes import RecordingError

SCRIPT = """
import torch
try:
    import apex
    kind = torch.nn.RMSNorm
except ImportError:
    kind = torch.nn.LayerNorm
model = kind(4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    model(torch.randn(2, 4, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_script_does_not_find_a_package_that_its_job_does_without(written):
    file = str(written(SCRIPT, "script.py"))
    job = ScriptRecording(command=[file], ranks=1, without=["apex"], timeout=250.0).ask().job
    names = {one.name for one in job.recorded[0].actions}
    assert "aten.native_layer_norm" in names


BUILDER = """
class OpBuilder:
    _loaded_ops = {}
    def load(self): return self._loaded_ops[self.NAME]
"""

OFFLOADED = """
import torch
from deepspeed.ops.op_builder.builder import OpBuilder
class Adam(OpBuilder): NAME = "fused_adam"
class HostAdam(OpBuilder): NAME = "cpu_adam"
HostAdam().load().create_adam(0, 0.1)
model = torch.nn.Linear(4, 4, bias=False).cuda()
class Optimizer(torch.optim.Optimizer):
    def step(self):
        lists = [[one] for one in (model.weight.grad, model.weight.data, *self.moments)]
        Adam().load().multi_tensor_adam(2048, None, lists, 0.1, 0.9, 0.99, 1e-8, 1, 1, 1, 0.0)
optimizer = Optimizer(model.parameters(), {})
optimizer.moments = [torch.zeros_like(model.weight) for _ in range(2)]
for _ in range(5):
    model(torch.randn(2, 4, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_deepspeed_finds_its_optimizers_built(written, tmp_path):
    (tmp_path / "deepspeed" / "ops" / "op_builder").mkdir(parents=True)
    written(BUILDER, "deepspeed/ops/op_builder/builder.py")
    job = ScriptRecording(command=[str(written(OFFLOADED, "script.py"))], ranks=1, timeout=250.0).ask().job
    (adam,) = (one for one in job.recorded[0].actions if one.name == "deepspeed.adam")
    assert (len(adam.inputs), len(adam.outputs)) == (4, 3)
    assert any("on the host takes no time" in note for note in job.notes)


@pytest.mark.slow
def test_only_what_has_a_shim_can_be_left_out(written):
    file = str(written(SCRIPT, "script.py"))
    with pytest.raises(
        RecordingError, match="there is no shim of numpy; do `without` apex, deepspeed, flash_attn"
    ):
        ScriptRecording(command=[file], ranks=1, without=["numpy"], timeout=250.0).ask()
