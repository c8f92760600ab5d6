"""``ringside program DUMPS`` on the command line."""

import json
import random

import pytest

from tests.sim.flight.test_nccl_hangs import job_of, spoilt

SENTENCES = {
    "late": "rank 3 has not called all_reduce (train.py:14), call 3 of group 0 (default_pg), in which ranks "
    "0, 1, 2, 4 and 5 wait: rank 3's last call is all_reduce (train.py:13) of group 2 of ranks 1, 3, 5 "
    "(mesh_dp)",
    "order": "rank 3 calls all_reduce (train.py:14) of group 0 (default_pg) before all_reduce (train.py:13) "
    "of group 2 of ranks 1, 3, 5 (mesh_dp), ranks 1 and 5 after it: kernels of two communicators in "
    "different orders can keep each other from ending",
}


class Last(random.Random):
    """Chooses the sum of all ranks."""

    def choice(self, options):
        return options[1]


@pytest.mark.parametrize("way", SENTENCES)
def test_the_first_line_says_who_and_where(ringside, tmp_path, way):
    job = job_of(6)
    spoilt(way, job, 3, Last())
    job.write(tmp_path)
    code, out, _ = ringside("program", tmp_path, "--json")
    content = json.loads(out)
    assert (code, content["schema"]) == (1, "ringside.program-hang/1")
    assert content["headline"] == SENTENCES[way]
    code, text, _ = ringside("program", *sorted(tmp_path.iterdir()), "--plot", "hang.png")
    assert code == 1
    assert " ".join(text.split()).startswith(f"# {SENTENCES[way]}")


def test_dumps_in_which_all_has_ended_exit_0(silently, tmp_path):
    job_of(4).write(tmp_path)
    assert silently("program", tmp_path).startswith(
        "# nothing waits: every call in the dumps of ranks 0, 1, 2"
    )


def test_options_of_other_programs_and_files_that_are_none_are_refused(refused, tmp_path):
    job_of(2).write(tmp_path)
    assert "--cluster: dumps" in refused("program", tmp_path, "--cluster", "star:2")
    assert "write -g 2" in refused("program", tmp_path, "-g", "1")
    (tmp_path / "nccl_trace_rank_1").write_bytes(b'{"pg_config": {}}')
    assert "version: " in refused("program", tmp_path)
