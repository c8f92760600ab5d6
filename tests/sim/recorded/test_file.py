"""Files of recorded jobs."""

import json
from pathlib import Path

import pytest

from ringside.sim.recorded.file import is_job_file, read_job
from ringside.sim.recorded.job import JobFileError

DDP = Path(__file__).parents[3] / "examples/recorded.json"


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"version": 2}, "version"),
        ({"ranks": -1}, "ranks"),
        ({"recorded": []}, "stand for 0 ranks"),
        ({"ranks": 10**9}, "stand for 16 ranks, not for each of 1000000000"),
        ({"unknown": 1}, "unknown"),
    ],
)
def test_a_file_that_holds_no_sound_job_is_refused(change, what, tmp_path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(json.loads(DDP.read_text()) | change))
    with pytest.raises(JobFileError, match=what):
        read_job(path)


def test_a_file_that_ends_too_early_is_refused(tmp_path) -> None:
    path = tmp_path / "job.json"
    path.write_text(DDP.read_text()[:400])
    assert is_job_file(path)
    with pytest.raises(JobFileError, match="EOF"):
        read_job(path)
