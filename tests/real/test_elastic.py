"""A real job under torchrun with a killed rank restarts, reads its checkpoint and ends correctly."""

import json

import pytest

pytest.importorskip("torch")
from ringside.real.elastic.job import ElasticJob
from ringside.real.elastic.measure import Kill, measure_elastic, seeded_kills
from ringside.real.launch.follow import MeasureError
from ringside.real.questions.elastic_measurement import ElasticMeasurement


@pytest.mark.slow
@pytest.mark.gloo
def test_a_rank_is_killed_and_the_job_ends_with_the_right_sum():
    answer = ElasticMeasurement(interval=(10,), steps=30, kills=1, checkpoint="1M", timeout=30.0).ask()
    (row,) = answer.rows
    line = json.loads(answer.runs[0].line())
    assert line["schema"] == "ringside.elastic/1"
    ((after_s, rank),) = line["kills"]
    (restart,) = line["restarts"]
    assert 0 <= rank < 2
    assert min(restart.values()) >= 0
    assert restart["import_s"] > 0.1
    assert len(line["steps_s"]) == 30 + line["redone"]
    assert 0 <= line["redone"] < 10
    # killed between a save and its note, the ranks do nothing anew, and of the save nothing is known
    assert (len(line["saves_s"]), line["redone"]) == (2, 0) or len(line["saves_s"]) == 3
    assert line["wall_s"] > row["first_start_s"] + after_s + sum(restart.values())
    assert 0 < line["goodput"] < 1


@pytest.mark.slow
@pytest.mark.gloo
def test_a_rank_that_dies_of_itself_ends_the_run_with_its_last_words(tmp_path):
    (tmp_path / "checkpoint.pt").write_text("no checkpoint")
    with pytest.raises(MeasureError, match="first to fail: rank"):
        measure_elastic(ElasticJob(folder=str(tmp_path), steps=2, interval=1), 2, [])


def test_kills_are_seeded_and_lie_within_the_work():
    kills = seeded_kills(3, 20.0, 4, seed=5)
    assert kills == seeded_kills(3, 20.0, 4, seed=5) != seeded_kills(3, 20.0, 4, seed=6)
    assert all(2.5 <= kill.after_s <= 7.5 and 0 <= kill.rank < 4 for kill in kills)
    assert seeded_kills(0, 20.0, 2, seed=0) == []
    assert isinstance(kills[0], Kill)
