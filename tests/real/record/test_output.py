"""What ``ringside record`` prints and writes, and that both are the same again."""

import subprocess
import sys

import pytest

HERE = __file__.rpartition("/record/")[0]

PRINTED = """\
# a step of 8 ranks of accumulation.py: 137 operators, 2 collectives of 129.3
#   KiB; memory peaks at 779.5 KiB
# --all also prints bytes
# rank ranks alike operators collectives     bytes    memory  waits messages
#                                            (all)    (peak) (host)
     0           8       137           2 129.3 KiB 779.5 KiB      2        0
# recorded ranks: 0; checked against them: 7
"""

UNSTEADY = """
import torch
model = torch.nn.Linear(4, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(9):
    model(torch.randn(2 + step, 4, device="cuda")).sum().backward()
    optimizer.step()
"""


def ringside(folder, *arguments):
    """Return what ringside prints, without errors."""
    done = subprocess.run(
        [sys.executable, "-m", "ringside", "record", *arguments], cwd=folder, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.slow
def test_a_recording_says_what_it_is_and_is_the_same_again(tmp_path):
    first, second = (
        ringside(tmp_path, "-g", "8", "-o", f"{name}.json", f"{HERE}/scripts/accumulation.py")
        for name in "ab"
    )
    assert first == second == PRINTED
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.slow
def test_steps_that_differ_are_said(written, tmp_path):
    written(UNSTEADY, "unsteady.py")
    printed = ringside(tmp_path, "-g", "1", "--steps", "3", "unsteady.py")
    assert printed.startswith("# a step of 1 rank of unsteady.py: 9 operators")
    says = "# rank 0's steps are not steady: entry 0 of 9 was aten.randn([4, 4]), is aten.randn([5, 4])\n"
    assert says in printed.replace("\n#   ", " ")


@pytest.mark.proof
def test_fully_sharded_parameters_are_recorded_the_same_again(tmp_path):
    for name in "ab":
        ringside(
            tmp_path, "-g", "8", "-o", f"{name}.json", f"{HERE}/scripts/decoder.py", "fsdp2", "checkpoint"
        )
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
