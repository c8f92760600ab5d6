"""Studies: their questions, points, rows and folders."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("distributed")
pytest.importorskip("pyarrow")

import pandas as pd

from ringside.studies.folder import MANIFEST, Folder, opened
from ringside.studies.inputs import row_of, rows_of
from ringside.studies.run import MOST_TOGETHER, _batches
from ringside.studies.study import STUDIED, Query, Study, StudyError, loads, made, ordered_by_size
from ringside.studies.summary import summary

OPTIONS = {"collective": "all_reduce", "cluster": "star:{ranks}"}
STAR = Query("simulate", OPTIONS)
SMALL = {"ask": "simulate", "options": OPTIONS, "grid": {"ranks": [2, 3], "size": ["4K", "1M"]}}

made(SMALL, "study")  # imports the question, before hypothesis takes times


def study(**changes):
    return made(SMALL | changes, "study")


grids = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.lists(st.integers(0, 99), min_size=1, max_size=5, unique=True),
    min_size=1,
)


@given(grids, st.integers(1, 9), st.integers(0, 99))
def test_points_are_every_combination_with_every_draw_once(grid, points, seed):
    holes = " ".join(f"{{{name}}}" for name in [*grid, "drawn"])
    options = {"collective": "all_reduce", "cluster": holes}
    sample = {"points": points, "seed": seed, "draws": {"drawn": {"from": "1GB/s", "to": "3GB/s"}}}
    found = made({"ask": "simulate", "options": options, "grid": grid, "sample": sample}, "study")
    asked = list(found.points())
    assert [number for number, _ in asked] == list(range(found.count))
    values = [tuple(value.values()) for _, value in asked]
    assert len(set(values)) == len(values)
    assert all(set(value) == {*grid, "drawn"} for _, value in asked)
    assert asked == list(found.points())
    drawn = sorted({float(value["drawn"].removesuffix("GB/s")) for _, value in asked})
    assert [int((one - 1) / 2 * points - 1e-5) for one in drawn] == list(range(points)), "one in each stretch"


@given(st.integers(1, 3000), st.data())
def test_points_that_go_together_hang_on_the_study_alone(count, data):
    options = {"collective": "all_reduce", "cluster": "star:{a}"}
    found = made({"ask": "simulate", "options": options, "grid": {"a": list(range(count))}}, "study")
    done = data.draw(st.sets(st.integers(0, count - 1), max_size=50))
    whole = {number: at for at, batch in enumerate(_batches(found, frozenset())) for number, _ in batch}
    left = list(_batches(found, frozenset(done)))
    assert sorted(number for batch in left for number, _ in batch) == sorted(set(range(count)) - done)
    assert all(
        len({whole[number] for number, _ in batch}) == 1 <= len(batch) <= MOST_TOGETHER for batch in left
    )


def test_a_row_has_the_point_its_parameters_and_what_the_command_line_says(json_of):
    row = row_of(STAR, 7, {"ranks": "4", "size": "1M"})
    (answer,) = json_of("simulate all_reduce --cluster star:4 --size 1M")["rows"]
    assert (row["point"], row["ranks"], row["size"], row["error"]) == (7, "4", "1M", None)
    assert {name: row[name] for name in answer} == answer
    assert row["elapsed_s"] > 0


def test_every_command_can_be_asked(ringside):
    Path("job.py").write_text("def main(dist):\n    dist.all_reduce(1000000)\n", encoding="utf-8")
    for ask, options in (
        ("pick", {"collective": "all_reduce", "cluster": "star", "nodes": "{n}", "begin": "1M", "end": "1M"}),
        ("experts", {"cluster": "dgx-h100:{n}", "by": "deepep", "tokens": "64"}),
        ("train", {"model": "resnet50", "cluster": "star:{n}"}),
        ("train", {"model": "resnet50", "cluster": "star:{n}", "pp": 2, "batch": 32, "micro_batch": 16}),
        ("goodput", {"nodes": "{n}", "mtbf": "3h", "checkpoint": "30s", "work": "1d", "trials": 10}),
        ("program", {"file": "job.py", "ranks": "{n}", "cluster": "star:4"}),
    ):
        row = row_of(Query(ask, options), 0, {"n": "4"})
        assert row["error"] is None, row
        assert row[STUDIED[ask][1]] > 0
        assert all(isinstance(value, str | int | float | None) for value in row.values())


def test_a_value_may_set_several_options(ringside):
    query = Query(
        "train", {"model": "gpt2:64", "cluster": "star:8", "library": "ideal", "device": "a100", "batch": 4}
    )
    layouts = [{"pp": 2, "strategy": "fsdp"}, {"tp": 2}, {}]
    whole, split, none = rows_of(query, list(enumerate({"layout": layout} for layout in layouts)))
    assert [row["error"] for row in (whole, split, none)] == [None] * 3
    assert len({row["step_s"] for row in (whole, split, none)}) == 3
    assert whole["layout"] == "pp=2 strategy=fsdp"
    assert whole["mesh_pipeline"] == 2
    assert split["mesh_tensor"] == 2


def test_a_study_asks_what_python_and_the_command_line_ask(json_of):
    options = {"model": "gpt2:64", "cluster": "star:4", "library": "ideal", "device": "a100", "batch": 4}
    row = row_of(Query("train", options), 0, {"no_sync": True, "accumulation": "2", "straggler": "1=2"})
    line = " ".join(f"--{name} {value}" for name, value in options.items())
    assert row["step_s"] == json_of(f"train {line} --no-sync --accumulation 2 --straggler 1=2")["step_s"]


def test_a_disturbed_answer_has_columns_of_its_own():
    options = {"collective": "all_reduce", "cluster": "star:4", "size": "1M", "slow_link": ["gpu0-switch=4"]}
    row = row_of(Query("simulate", options), 0, {"algorithm": "ring"})
    assert row["disturbed_median_s"] > row["time_s"]


@pytest.mark.parametrize(("ranks", "message"), [("0", "'0' is not a count"), ("4 ", "star"), ("x", "star:x")])
def test_a_point_that_cannot_be_answered_is_a_row_with_its_error(tmp_path, ranks, message):
    row = row_of(STAR, 0, {"ranks": ranks, "size": "1M"})
    assert message in row["error"]
    assert row["ranks"] == ranks
    assert not list(tmp_path.iterdir())


def test_errors_of_points_name_options_of_the_command_line():
    row = row_of(STAR, 0, {"ranks": "4", "size": "1M", "begin": "2M"})
    assert "--size is a list" in row["error"]
    row = row_of(STAR, 0, {"ranks": "4", "factor": "x"})
    assert "--factor 'x'; write a whole number" in row["error"]


def test_several_rows_are_no_answer():
    row = row_of(Query("simulate", OPTIONS), 0, {"ranks": "4"})
    assert "rows in one answer; write one size" in row["error"]


def test_a_parameter_with_a_name_of_the_answer_leaves_both():
    options = {"collective": "all_reduce", "cluster": "star:4", "size": "{time_s}"}
    row = row_of(Query("simulate", options), 0, {"time_s": "1M"})
    assert row["time_s"] == "1M"
    assert row["answer_time_s"] > 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ask": "topo"}, "ask: 'topo'; write one of simulate, pick, experts, train, goodput, program"),
        ({"ask": ""}, "ask: ''; write one of"),
        ({"options": {**OPTIONS, "dtype": "{"}}, "an unclosed brace"),
        ({"options": {**OPTIONS, "dtype": "{0}"}}, "write a name of letters alone"),
        ({"options": {**OPTIONS, "dtype": "{size:>3}"}}, "write a name of letters alone"),
        ({"options": {**OPTIONS, "json": True}}, "options: simulate has no option 'json'; write"),
        ({"options": {**OPTIONS, "sice": "1M"}}, "write size (known: "),
        ({"options": {"cluster": "star:{ranks}"}}, "options: collective is missing; write it there"),
        ({"options": {**OPTIONS, "settings": {"nic": "{nic}"}}}, "no values for {nic}"),
        (
            {"grid": {"ranks": [2], "size": ["4K"], "nic": [1]}},
            "nic: simulate has no option 'nic'; write a hole {nic} in options, or one of",
        ),
        (
            {"grid": {"ranks": [2], "size": ["4K", {"size": "1M"}]}},
            "size: write only mappings of options, and no hole {size}",
        ),
        ({"grid": {"ranks": [2], "way": [{"algorithm": "ring", "nic": 1}]}}, "way: simulate has no option"),
        ({"grid": {"ranks": [], "size": ["4K"]}}, "ranks"),
        ({"grid": {"ranks": [True], "size": ["4K"]}}, "ranks: YAML reads True or False there; quote"),
        ({"grid": {"ranks": [None], "size": ["4K"]}}, "YAML reads None there"),
        ({"grid": {"ranks": [[1]], "size": ["4K"]}}, "YAML reads a list there"),
        ({"grid": {"ranks": [2, 2], "size": ["4K"]}}, "ranks: 2 occurs twice"),
        ({"grids": {}}, "grids"),
        (
            {"options": {**OPTIONS, "cluster": "star:{point}"}, "grid": {"point": [1]}},
            "point is a column of every row",
        ),
        ({"sample": {"points": 0, "draws": {"x": {"from": 1, "to": 2}}}}, "points"),
        ({"sample": {"points": 3, "draws": {}}}, "draws"),
        ({"sample": {"points": 3, "draws": {"size": {"from": "1M", "to": "2K"}}}}, "write both in one unit"),
        ({"sample": {"points": 3, "draws": {"size": {"from": "2M", "to": "1M"}}}}, "the smaller one first"),
        ({"sample": {"points": 3, "draws": {"size": {"from": 0, "to": 9, "scale": "log"}}}}, "above 0"),
        ({"sample": {"points": 3, "draws": {"size": {"from": "x", "to": 9}}}}, "not a number with a unit"),
        (
            {"sample": {"points": 3, "draws": {"size": {"from": "1e999", "to": 9}}}},
            "not a number with a unit",
        ),
        ({"sample": {"points": 3, "draws": {"size": {"from": "-1e308", "to": "1e308"}}}}, "is too far"),
        (
            {"sample": {"points": 3, "draws": {"size": {"from": "1e-200", "to": "1e200", "scale": "log"}}}},
            "from 1e-200 to 1e200 is too far; write ends that are nearer",
        ),
        ({"sample": {"points": 3, "draws": {"size": {"from": "1M", "to": "2M"}}}}, "remove one of them"),
        (
            {"grid": {"ranks": list(range(2000)), "size": list(range(2000))}},
            "4,000,000 points; write at most 1,000,000",
        ),
    ],
)
def test_a_study_that_cannot_be_made_is_refused(changes, message):
    with pytest.raises(StudyError) as refused:
        study(**changes)
    assert message in str(refused.value)
    assert ": :" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "3", "[1]", "{", "1: 2", "ask: [1]", "a: &a [*a]", "ask: x\nask: y"])
def test_a_file_that_holds_no_study_is_refused(text):
    with pytest.raises(StudyError):
        loads(text, "study.yaml")


def rows(found, errors=()):
    """Make rows as workers do, without answering questions."""
    return [
        {"point": number, **values, "time_s": 0.5 + number, "engine": "x", "error": None, "elapsed_s": 1.0}
        if number not in errors
        else {"point": number, **values, "error": "no", "elapsed_s": 1.0}
        for number, values in found.points()
    ]


def test_a_folder_gives_back_what_it_was_given_in_order_of_points(tmp_path):
    found = study()
    some = rows(found, errors=[1])
    with opened(tmp_path / "out", found) as folder:
        folder.learn(some[0])
        folder.write(some[2:])
        folder.write(some[:2])
        assert folder.done() == {0, 1, 2, 3}
        back = folder.read()
    assert list(back["point"]) == [0, 1, 2, 3]
    assert list(back.columns) == ["point", "ranks", "size", "time_s", "engine", "error", "elapsed_s"]
    assert [value for value in back["time_s"] if value == value] == [0.5, 2.5, 3.5]
    assert list(back["error"].notna()) == [False, True, False, False]
    schemas = {tuple(pd.read_parquet(part).columns) for part in folder.parts}
    assert len(schemas) == 1
    assert {file.suffix for file in folder.path.iterdir() if "part" in file.name} == {".parquet"}


def test_what_only_later_answers_tell_is_kept_too(tmp_path):
    found = study()
    some = rows(found)
    some[3] |= {"channels": 16.0, "engine": 3.0}
    with opened(tmp_path / "out", found) as folder:
        folder.learn(some[0])
        folder.write(some[:2])
        folder.write(some[2:])
        back = folder.read()
    assert back["channels"].iloc[3] == 16
    assert list(back["channels"].notna()) == [False, False, False, True]
    assert "engine is 3.0, of another type" in back["error"].iloc[3]


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(StudyError, match="it contains something other"), opened(tmp_path, study()):
        pass
    assert [file.name for file in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(StudyError, match="not a folder"), opened(tmp_path / "mine.txt", study()):
        pass


@pytest.mark.parametrize("left", [".lock", ".ringside.99", "part-00000000.unfinished"])
def test_what_a_kill_at_the_very_start_leaves_is_no_obstacle(tmp_path, left):
    (tmp_path / left).write_text("half", encoding="utf-8")
    with opened(tmp_path, study()) as folder:
        assert folder.done() == set()
    assert {file.name for file in tmp_path.iterdir()} == {".lock", MANIFEST}


def test_a_changed_study_another_version_or_two_at_once_are_refused(tmp_path):
    busy = pytest.raises(StudyError, match="another process runs this study")
    with opened(tmp_path, study()), busy, opened(tmp_path, study()):
        pass
    changed = study(grid={"ranks": [2, 4], "size": ["4K", "1M"]})
    with pytest.raises(StudyError, match="whose grid differs; write a new folder"), opened(tmp_path, changed):
        pass
    with opened(tmp_path, study(answer="algbw_GBps")):
        pass
    manifest = tmp_path / MANIFEST
    manifest.write_text(manifest.read_text().replace('"version": "', '"version": "9'), encoding="utf-8")
    with pytest.raises(StudyError, match="whose answers may differ"), opened(tmp_path, study()):
        pass
    of_no_type = manifest.read_text().replace('"9', '"').replace("{}", '{"time_s": "complex"}')
    for damaged in ("{", "[]", of_no_type):
        manifest.write_text(damaged, encoding="utf-8")
        with pytest.raises(StudyError, match="cannot be read"), opened(tmp_path, study()):
            pass


@pytest.mark.parametrize("damage", [lambda whole: whole[:500], lambda _: b"", lambda _: b"a,b\n1,2\n"])
def test_a_damaged_part_is_named_and_asked_again_once_it_is_deleted(tmp_path, damage):
    found = study()
    with opened(tmp_path, found) as folder:
        folder.write(rows(found)[:2])
        folder.write(rows(found)[2:])
    part = folder.parts[1]
    part.write_bytes(damage(part.read_bytes()))
    says = r"part-00000002.parquet: damaged.*; delete it to run its points again"
    with opened(tmp_path, found) as folder:
        for ask in (folder.done, folder.read):
            with pytest.raises(StudyError, match=says):
                ask()
        part.unlink()
        assert folder.done() == {0, 1}


def test_a_parquet_file_of_something_else_is_no_part(tmp_path):
    with opened(tmp_path, study()) as folder:
        pd.DataFrame({"point": [1]}).to_parquet(tmp_path / "part-00000001.parquet")
        with pytest.raises(StudyError, match="not a part of a study; delete it"):
            folder.done()


@pytest.mark.parametrize(
    ("folder", "reason"), [("/proc/study", "No such file or directory"), ("file/study", "Not a directory")]
)
def test_a_place_where_nothing_can_be_written_is_refused(tmp_path, monkeypatch, folder, reason):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    says = f"{folder}: not writable: {reason}; write another folder after -o"
    with pytest.raises(StudyError, match=says), opened(Path(folder), study()):
        pass


def test_a_summary_says_which_parameter_matters_most():
    found = study()
    table = pd.DataFrame(rows(found))
    told = summary(found, table)
    assert [(one.parameter, one.least_at, one.most_at, one.spread) for one in told.effects] == [
        ("ranks", "2", "3", 2.0),
        ("size", "4K", "1M", 1.0),
    ]
    assert (told.least["point"], told.most["point"]) == (0, 3)
    assert (told.points, told.answered, told.failed) == (4, 4, 0)
    with pytest.raises(
        StudyError, match="answer: engine is not a numeric column of the answers; write one of time_s"
    ):
        summary(study(answer="engine"), table)


def test_values_stand_in_order_of_size_where_units_are_one():
    assert ordered_by_size(["10GB/s", "9GB/s", "9.5GB/s"]) == ["9GB/s", "9.5GB/s", "10GB/s"]
    assert ordered_by_size(["1G", "64M"]) == ["1G", "64M"]
    assert ordered_by_size(["ring", "a", "ring"]) == ["ring", "a"]


def test_a_worker_process_has_the_folder_to_itself_only_while_it_lives(tmp_path):
    found = study()
    child = os.fork()
    if not child:
        with opened(tmp_path, found):
            os._exit(0)
    os.waitpid(child, 0)
    with opened(tmp_path, found) as folder:
        assert isinstance(folder, Folder)
    assert isinstance(found, Study)
