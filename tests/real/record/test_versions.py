"""Recording with each release of PyTorch, in an environment of its own: those of PyPI are builds for CUDA."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from ringside.sim.recorded.file import read_job
from ringside.sim.recorded.job import GroupCall

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "tests" / "real" / "scripts"
RELEASES = ["2.12.*", "2.13.*", "2.13.0+cpu", "2.14.*", "newest"]


@pytest.fixture(scope="module", params=RELEASES)
def python(request, tmp_path_factory):
    """The Python of an environment with a release of PyTorch, and this environment's other packages."""
    folder = tmp_path_factory.mktemp("torch")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    own = folder / "bin" / "python"
    wanted = "torch" if request.param == "newest" else f"torch=={request.param}"
    pip = [own, "-m", "pip", "install", "-q", "--no-compile", wanted]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{wanted}: {done.stderr.strip().splitlines()[-1]}")
    site = subprocess.run(
        [own, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    (Path(site) / "others.pth").write_text(sysconfig.get_path("purelib"))
    return own


def calls(python, script, ranks, folder):
    """Return PyTorch's version, and the collectives of rank 0's step: kind, bytes, and whether they wait."""
    out = folder / f"{python.parents[1].name}.json"
    command = [python, "-m", "ringside", "record", "-g", str(ranks), "-o", out, SCRIPTS / script]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    job = read_job(out)
    first = job.recorded[0]
    assert first.unsteady == ""
    actions = [first.actions[one.action] for one in first.entries]
    return job.torch, [
        (one.collective, one.nbytes, one.waits) for one in actions if isinstance(one, GroupCall)
    ]


@pytest.mark.versions
@pytest.mark.parametrize("script", ["ddp.py", "fsdp2.py"])
def test_every_release_records_the_same_collectives(python, script, tmp_path):
    here, expected = calls(Path(sys.executable), script, 4, tmp_path)
    version, own = calls(python, script, 4, tmp_path)
    print(f"PyTorch {version}: {len(own)} collectives of {script}, as with {here}")
    assert own == expected
