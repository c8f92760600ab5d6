"""``ringside validate``: its output, picture and exit code, with made-up measurements."""

import json
from dataclasses import replace

import pytest

from ringside.real.ddp.job import sleeping_layers
from ringside.real.launch.follow import MeasureError
from ringside.sim.program.groups import TimedGroup
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.validation.compare_ddp import ComparedSteps
from ringside.validation.emulated.plan import MIB, SHORT, num_cells
from ringside.validation.emulated.training import trials
from tests.made_up import CELL, ddp_record

KEYS = {"algorithm", "ranks", "bandwidth", "size_bytes", "placement", "oversubscription", "measured_s",
        "predicted_s", "repeats", "spread"}  # fmt: skip


def cell(error, **changes):
    return replace(CELL, predicted_s=0.1 * (1 + error), **changes)


@pytest.fixture
def measured(monkeypatch):
    """Replace measurements by cells, perhaps followed by an error."""

    def put(cells, error=None):
        def validate(plan, on_cell):
            for one in cells:
                on_cell(one)
            if error:
                raise error

        monkeypatch.setattr("ringside.validation.emulated.collectives.validate", validate)

    return put


def test_every_cell_and_family_is_there_for_people_and_programs(json_of, silently, measured, tmp_path):
    spine = cell(0.02, family="leaf-spine", ranks=8, oversubscription=4.0)
    measured([
        cell(0.01), cell(-0.01, size_bytes=2 * MIB, spread=0.2),
        spine, replace(spine, placement="interleaved"),
    ])  # fmt: skip
    out = silently("validate", "--short", "--plot", "page.png")
    assert "# pass  ring: 2 cells, 1 noisy left out: median 1.0% (at most 2%)" in out
    assert "# pass  leaf-spine: 2 cells: median 2.0% (at most 3%)" in out
    assert (tmp_path / "page.png").stat().st_size > 10_000
    content = json_of("validate", "--short")
    assert content["schema"] == "ringside.validation/1"
    assert all(set(one) >= KEYS for one in content["rows"])
    assert [one["noisy"] for one in content["rows"]] == [False, True, False, False]
    assert content["planned_cells"] == num_cells(SHORT)
    assert content["inputs"] == {"short": True, "family": []}
    assert not content["complete"]


def test_past_a_tolerance_it_fails_and_names_the_family(ringside, measured):
    measured([cell(0.05), cell(0.0, family="tree")])
    code, out, err = ringside("validate", "--short")
    assert (code, err) == (1, "ringside: past the tolerance: ring\n")
    assert "# FAIL  ring" in out
    assert out.startswith("# FAIL: 1 of 2 figures are within their tolerance, 2 cases\n")
    assert f"# interrupted: 2 of {num_cells(SHORT)} cells\n" in out
    assert "# pass  tree" in out


def test_what_was_measured_before_it_was_cut_off_is_printed(ringside, measured):
    measured([cell(0.01)], MeasureError("rank 1 was killed by SIGKILL"))
    code, out, err = ringside("validate", "--json")
    assert (code, err) == (1, "ringside: rank 1 was killed by SIGKILL\n")
    assert len(json.loads(out)["rows"]) == 1


def test_bad_words_are_refused_before_anything_runs(ringside, refused):
    assert ringside("validate", "weather")[::2] == (
        2,
        "ringside: unknown validation 'weather'; "
        "write one of collectives, ddp, training, recordings, memory, disturbances\n",
    )  # fmt: skip
    assert "not a picture format" in refused("validate", "--plot", "page.bmp")


def test_training_steps_are_judged_by_step_and_by_bucket(ringside, silently, monkeypatch, tmp_path):
    def judged(factor):
        step = simulate_step(sleeping_layers(), TimedGroup(4, lambda _: 0.05), DataParallel())
        buckets = tuple(replace(b, finish_s=b.finish_s * factor) for b in step.buckets)
        slower = replace(step, step_s=step.step_s * factor, buckets=buckets)
        return ComparedSteps(ddp_record(sleeping_layers(), 4, slower, way="ring"), step)

    def judge(factor):
        def put(plan, on_judged):
            on_judged(trials()[0], judged(factor))

        monkeypatch.setattr("ringside.validation.emulated.training.judge", put)

    judge(1.01)
    (row,) = json.loads(silently("validate ddp --json --plot worst.svg --html page.html"))["rows"]
    assert row["error"] == pytest.approx(1 / 1.01 - 1)
    assert (row["bucket_cap_mb"], row["workers"], row["bandwidth"]) == (1, 2, 12.5e6)
    assert "100 Mb/s, 1 MiB, 2 workers, predicted" in (tmp_path / "worst.svg").read_text()
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<p class="headline">The step is predicted with an error of -1.0%.</p>' in page
    assert page.count('class="plotly-graph-div"') == 2
    judge(1.1)
    code, out, err = ringside("validate", "ddp")
    assert code == 1
    assert err.startswith("ringside: past the tolerance: median error of step times, worst error")
    assert "# FAIL  median error of step times: 9.1% (at most 2%)" in out
    (row,) = [line.split() for line in out.splitlines() if not line.startswith("#")]
    assert row[:3] == ["100", "2", "1"]
