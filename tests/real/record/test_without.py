"""``record --without``: packages that their shims do not replace."""

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


@pytest.mark.slow
def test_only_what_has_a_shim_can_be_left_out(written):
    file = str(written(SCRIPT, "script.py"))
    with pytest.raises(RecordingError, match="there is no shim of numpy; do `without` apex, flash_attn"):
        ScriptRecording(command=[file], ranks=1, without=["numpy"], timeout=250.0).ask()
