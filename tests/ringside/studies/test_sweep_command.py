"""`ringside sweep`: its output and its files, also on other Dask clusters."""

import os
import re
import socket
import time
from pathlib import Path

import pytest

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")

import pandas as pd
import yaml
from distributed import Client, LocalCluster, Security

import ringside as package
from ringside import console
from ringside.commands.sweep.command import EXAMPLE
from ringside.studies.study import loads, made
from tests.ringside.studies.sweeps import rows

PAGE = (Path(__file__).parents[3] / "docs" / "sweep.md").read_text(encoding="utf-8")

STUDY = """
ask: simulate
options: {collective: all_reduce, cluster: "star:{ranks}"}
grid:
  ranks: [2, 3, 4]
  algorithm: [ring, tree, nonsense]
  size: [4K, 1M]
"""


@pytest.fixture
def file(written):
    return written(STUDY, "study.yaml")


def test_the_example_is_a_study(silently, json_of, tmp_path):
    assert silently("sweep", "--example") == EXAMPLE
    Path("study.yaml").write_text(EXAMPLE, encoding="utf-8")
    told = json_of("sweep", "study.yaml", "--dry-run")
    assert told["points"] == loads(EXAMPLE, "example").count == 96
    assert told["estimate_s"] > 0
    assert [file.name for file in tmp_path.iterdir()] == ["study.yaml"]


def test_a_study_is_asked_kept_shown_and_once_more_only_shown(
    ringside, json_of, refused, printed, file, tmp_path, monkeypatch
):
    monkeypatch.setattr(console, "PERIOD_S", 0.01)
    code, out, err = ringside("sweep", file, "-o", "out", "--workers", 2)
    assert code == 0, err
    assert "; 12 of 18 points answered, 6 refused." in out
    assert re.search(r"refused most often: unknown algorithm 'nonsense'.*\(6 times\)", out)
    assert re.search(r"\d+ of 18 points, about .* left", err)
    found = rows("out")
    assert list(found["point"]) == list(range(18))
    assert list(found["error"].notna()) == [value == "nonsense" for value in found["algorithm"]]
    assert found["time_s"][found["error"].isna()].gt(0).all()
    page = (tmp_path / "out/study.html").read_text(encoding="utf-8")
    assert "size matters most: mean time_s is" in page
    assert page.count('class="plotly-graph-div"') == 1
    assert page.partition('<h2 id="table-2">')[2].count("<tr>") == 18 + 1
    heads = re.findall(r"<th[^>]*>\s*<button[^>]*>(\w+)", page.partition('<h2 id="table-2">')[2])
    assert len(re.findall(r"<td data-order=[^>]*>[\d.]+ [mu]?s</td>", page)) == 12 * 3 + 18
    # the answer before what is said of it
    assert heads[:5] == ["point", "ranks", "algorithm", "size", "time_s"]
    before = sorted(path.name for path in Path("out").iterdir())

    told = json_of("sweep", file, "-o", "out")
    assert (told["points"], told["answered"], told["failed"], told["asked_now"]) == (18, 12, 6, 0)
    assert told["effects"][0]["parameter"] == "size"
    assert sorted(path.name for path in Path("out").iterdir()) == before
    assert rows("out").equals(found)

    file.write_text(STUDY.replace("1M", "2M"), encoding="utf-8")
    said = refused("sweep", file, "-o", "out")
    assert "it contains another study, whose grid differs; write a new folder after -o" in said
    assert rows("out").equals(found)


def test_the_time_left_is_that_of_points_and_not_of_the_start(monkeypatch, file, tmp_path):
    from ringside.commands.sweep import command as sweep
    from ringside.studies import folder, run

    clock, told = iter([100.0, 101.0, 102.0]), []
    monkeypatch.setattr(sweep, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(console.Ticker, "moved", lambda _, done, what: told.append(what))

    def ask(_, keep, **__):
        for count in (1, 1, 8):
            keep([{}] * count)

    monkeypatch.setattr(run, "run", ask)
    with folder.opened(tmp_path / "out", loads(STUDY, "study")) as found:
        sweep._run_missing(found, None, None)
    assert told == ["1 of 18 points", "2 of 18 points, about 16 s left", "10 of 18 points, about 1.8 s left"]


def test_a_value_of_no_words_is_seen(ringside, file):
    options = "{collective: all_reduce, cluster: star:8, size: 1M}"
    grid = "{way: [{}, {algorithm: tree}]}"
    file.write_text(f"ask: simulate\noptions: {options}\ngrid: {grid}", encoding="utf-8")
    _, out, err = ringside("sweep", file, "-o", "out", "--workers", 1)
    assert "# least: point 0, way '', time_s" in out, err
    assert re.search(
        r"way matters most: mean time_s is \S+ \S+ at '' and \S+ \S+ at\s+#?\s*algorithm=tree", out
    )
    assert re.search(r"^ +way +\S+ +'' +\S+ +algorithm=tree$", out, re.MULTILINE)


def test_a_study_without_an_answer_ends_with_1_and_keeps_its_rows(ringside, file):
    file.write_text(STUDY.replace("star:", "stern:"), encoding="utf-8")
    code, out, err = ringside("sweep", file, "-o", "out", "--workers", 1)
    assert code == 1
    assert "no point was answered; the first error: unknown cluster 'stern'" in err.replace("\n", " ")
    assert "0 of 18 points answered, 18 refused" in out
    assert len(rows("out")) == 18


@pytest.mark.slow
def test_rows_are_the_same_from_python_for_any_number_of_workers(ringside, file):
    one = package.sweep(file, "one", workers=1)
    two = package.sweep(yaml.safe_load(STUDY), Path("two"), workers=2)
    assert one.drop(columns="elapsed_s").equals(two.drop(columns="elapsed_s"))
    assert rows("one").equals(rows("two"))
    assert package.sweep(file, "one").equals(one)


@pytest.mark.slow
def test_rows_that_take_long_are_kept_before_their_file_is_full(tmp_path, monkeypatch):
    from ringside.studies import run

    options = {"collective": "all_reduce", "cluster": "star:4", "size": "{n}K"}
    study = {"ask": "simulate", "options": options, "grid": {"n": list(range(70))}}
    usual = package.sweep(study, tmp_path / "usual", workers=1)
    monkeypatch.setattr(run, "MOST_S", 0.0)
    slow = package.sweep(study, tmp_path / "slow", workers=2)
    assert slow.drop(columns="elapsed_s").equals(usual.drop(columns="elapsed_s"))
    parts = [len(list((tmp_path / name).glob("*.parquet"))) for name in ("usual", "slow")]
    assert parts == [1 + 35, 70]


@pytest.mark.slow
def test_a_point_that_kills_its_process_is_a_row_and_the_others_are_answered(ringside):
    script = (
        "def main(dist):\n    dist.get_world_size() == 3 and os.kill(os.getpid(), 9)\n    dist.barrier()\n"
    )
    Path("job.py").write_text(f"import os\n{script}", encoding="utf-8")
    options = {"file": "job.py", "cluster": "star:4"}
    study = {"ask": "program", "options": options, "grid": {"ranks": [2, 3, 4]}}
    found = package.sweep(study, "out", workers=1)
    assert list(found["error"].isna()) == [True, False, True]
    assert "its process died" in found["error"][1]


@pytest.mark.slow
def test_another_cluster_of_workers_with_threads_gives_the_same_files(printed, file):
    with LocalCluster(n_workers=1, threads_per_worker=3, dashboard_address="127.0.0.1:0") as cluster:
        out = printed("sweep", file, "--dry-run", "--scheduler", cluster.scheduler_address)
        assert "with one process" in out
        theirs = package.sweep(file, "theirs", scheduler=cluster.scheduler_address)
    ours = package.sweep(file, "ours", workers=1)
    assert theirs.drop(columns="elapsed_s").equals(ours.drop(columns="elapsed_s"))
    of = [sorted(part.name for part in Path(where).glob("*.parquet")) for where in ("ours", "theirs")]
    assert of[0] == of[1]


@pytest.mark.parametrize(
    ("grid", "kind"),
    [
        ({"ranks": range(2, 5)}, "_curves"),
        ({"ranks": range(2, 40), "size": ["4K", "1M", "2M"]}, "_curves"),
        ({"ranks": range(2, 8), "size": [f"{size}K" for size in range(1, 9)]}, "_map"),
        ({"ranks": range(2, 8), "size": range(1, 60)}, "_tornado"),
        ({"ranks": [2, 3], "size": ["4K", "1M"], "algorithm": ["ring", "tree"]}, "_tornado"),
    ],
)
def test_the_picture_suits_the_number_of_parameters(tmp_path, monkeypatch, grid, kind):
    from ringside.pictures import sweep
    from ringside.studies.summary import summary

    options = {"collective": "all_reduce", "cluster": "star:{ranks}"}
    grid = {name: list(values) for name, values in grid.items()}
    study = made({"ask": "simulate", "options": options, "grid": grid}, "study")
    table = pd.DataFrame(
        [{"point": at, **values, "time_s": 1e-3 * (at + 1), "error": None} for at, values in study.points()]
    )
    drawn, draw = [], getattr(sweep, kind)
    monkeypatch.setattr(sweep, kind, lambda *words: (drawn.append(kind), draw(*words)))
    sweep.draw_study(study, table, summary(study, table), tmp_path / "x.svg")
    assert drawn == [kind]
    assert "<svg" in (tmp_path / "x.svg").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sweep study.yaml", "the output folder is missing; write -o FOLDER, or --dry-run"),
        ("sweep study.yaml -o study.yaml", "study.yaml: not a folder"),
        ("sweep study.yaml -o .", "it contains something other than a study"),
        ("sweep study.yaml -o out --workers 0", "--workers"),
        ("sweep study.yaml -o out --workers 2 --scheduler tcp://localhost:1", "remove one of them"),
        ("sweep study.yaml -o out --scheduler tcp://localhost:1", "no Dask scheduler there"),
        ("sweep study.yaml -o out --scheduler nowhere://x", "write tcp://HOST:PORT"),
        *(
            (
                f"sweep study.yaml -o out --scheduler {other}",
                "not an address of a Dask scheduler; write tcp://HOST",
            )
            for other in "nonsense tcp://host tcp://:8786 tcp://host:port tcp://a:99999 a:b:1".split()
        ),
        ("sweep study.yaml --dry-run --scheduler nonsense", "not an address of a Dask scheduler"),
        ("sweep study.yaml -o out --scheduler tls://localhost:1", "TLS needs certificates; set distributed"),
        ("sweep study.yaml --example", "--example prints a study; remove the other options"),
    ],
)
def test_wrong_words_are_refused(refused, file, words, message):
    assert message in " ".join(re.sub(r"[│╭╰─╮╯]", " ", refused(words)).split())
    assert not list(Path().rglob("*.parquet"))


def test_what_is_no_address_is_refused_before_anything_is_begun(ringside, file):
    begun = time.monotonic()
    assert ringside("sweep", file, "-o", "out", "--scheduler", "nonsense")[0] == 2
    assert time.monotonic() - begun < 10
    assert os.listdir() == ["study.yaml"]
    with pytest.raises(ValueError, match="nonsense: not an address of a Dask scheduler"):
        package.sweep(file, "out", scheduler="nonsense")


@pytest.mark.slow
def test_something_else_than_a_scheduler_is_refused_in_time(refused, file, monkeypatch):
    from ringside.studies import run

    monkeypatch.setattr(run, "CONNECT_S", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        said = refused("sweep", file, "-o", "out", "--scheduler", address)
    assert "no Dask scheduler there (" in said
    assert "defect" not in said


@pytest.mark.slow
def test_nobody_else_can_give_work_to_the_processes_of_a_study(tmp_path):
    from ringside.studies.run import client_of

    with client_of(1, None) as ours:
        assert ours.submit(sum, [1, 2]).result() == 3
        place = ours.scheduler.address.partition("://")[2]
        for address, keys in ((f"tcp://{place}", None), (f"tls://{place}", Security.temporary())):
            with pytest.raises(
                OSError, match=r"Timed out|Connection reset by peer|certificate does not match"
            ):
                Client(address, security=keys, timeout=2, set_as_default=False)


def test_the_pages_studies_can_be_made():
    studies = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert len(studies) >= 2
    assert all(loads(text, "docs/sweep.md").count > 1 for text in studies)
