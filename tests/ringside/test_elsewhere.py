"""Predictions need Python and its portable modules alone: on macOS and Windows they work without PyTorch."""

import pytest

from tests.processes import python

ABSENT = ("fcntl", "grp", "posix_ipc", "pty", "pwd", "pyroute2", "resource", "termios", "torch", "tty")
"""Modules of POSIX or Linux alone, and PyTorch, which only real runs need."""

BLOCK = f"""
import sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

for name in {ABSENT!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Refusing())
"""

LINES = [
    "simulate all_reduce --cluster dgx-h100:2 --size 64M",
    "simulate all_reduce --cluster star --nodes 2,4 --algorithm ring --size 1M --plot ring.png",
    "pick all_reduce --cluster dgx-h100 --nodes 2 -b 1M -e 64M",
    "train --model resnet50 --cluster dgx-a100:2",
    "train --model gpt2 --cluster dgx-a100:2 --strategy fsdp --batch 4 --html page.html",
    "whatif all_reduce --cluster star:4 --size 1M",
    "goodput bloom-176b --trials 10",
    "topo dgx-h100:2 -o cluster.yaml",
]


@pytest.mark.slow
@pytest.mark.parametrize("line", LINES)
def test_a_prediction_needs_neither_torch_nor_posix(line, tmp_path):
    code = f"{BLOCK}\nsys.argv = {['ringside', *line.split()]!r}\nfrom ringside.cli import app; app()"
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# ")


def test_what_is_absent_is_refused():
    assert "No module named 'fcntl'" in python("-c", f"{BLOCK}\nimport fcntl", check=False).stderr
