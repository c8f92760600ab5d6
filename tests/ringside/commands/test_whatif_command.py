"""`ringside whatif`: the original question and its changes, each with its limit."""

import pytest


@pytest.fixture
def rows(json_of):
    """Return the rows of a question, by their change."""

    def ask(words: str) -> dict:
        return {row["change"]: row for row in json_of("whatif", *words.split())["rows"]}

    return ask


def test_the_usual_changes_stand_beside_the_question(rows):
    found = rows("all_reduce --cluster star:8 --size 64M --algorithm ring")
    assert list(found) == ["", "bandwidth=2x", "nodes=2x", "algorithm=ring", "algorithm=tree"]
    assert found[""]["times"] == 1
    assert found["bandwidth=2x"]["times"] == pytest.approx(0.5, rel=0.02)
    assert found["nodes=2x"]["ranks"] == 16
    assert found["algorithm=tree"]["by"] == "tree"
    assert found["algorithm=tree"]["times"] == pytest.approx(3 / (2 * 7 / 8), rel=0.1)
    assert {row["limit"] for row in found.values()} == {"bandwidth"}
    assert "->" in found[""]["busiest"]
    assert found[""]["busy"] > 0.9


def test_half_the_cards_take_twice_as_long_where_cards_are_the_limit(rows):
    found = rows("all_reduce --cluster dgx-h100:4 --size 1G --algorithm ring --try nic=0.5x")
    assert found["nic=0.5x"]["settings"] == {"nic": "25000000000B/s"}
    assert found["nic=0.5x"]["times"] == pytest.approx(2, rel=0.1)
    assert found["nic=0.5x"]["busiest"] == "cards of a node"


def test_figures_and_nodes_of_a_ten_line_file_are_changed_too(rows, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("machine: pcie-server\nnic: 100Gb/s\nnodes: 4\n")
    found = rows("all_reduce --cluster mine.yaml --size 256M")
    assert list(found) == ["", "nic=2x", "nodes=2x", "nic=0.5x", "algorithm=ring", "algorithm=tree"]
    assert found["nic=2x"]["settings"] == {"nic": "25000000000B/s"}
    assert found["nic=0.5x"]["times"] > 1.5
    assert found["nodes=2x"]["ranks"] == 64
    assert rows("all_reduce --cluster mine.yaml --try pcie=2x")["pcie=2x"]["settings"] == {
        "pcie": "48000000000B/s"
    }


def test_small_messages_are_limited_by_latency_whatever_the_network(rows):
    found = rows("all_reduce --cluster star:8 --size 8 --try bandwidth=2x --try latency=0.5x")
    assert {row["limit"] for row in found.values()} == {"latency"}
    assert found["bandwidth=2x"]["times"] == pytest.approx(1, rel=1e-3)
    assert found["latency=0.5x"]["times"] == pytest.approx(0.5, rel=1e-3)


def test_a_training_is_limited_by_compute_or_by_what_nothing_hides(rows):
    found = rows("gpt2:64 --cluster star:4 --batch 1 --try bandwidth=0.001x --try nodes=8,bandwidth=2x")
    assert found["bandwidth=0.001x"]["limit"] == "exposed communication"
    assert found["nodes=8,bandwidth=2x"]["ranks"] == 8
    assert found[""]["throughput"] > found["bandwidth=0.001x"]["throughput"]


def test_what_takes_no_time_has_no_multiple(rows, ringside):
    words = "all_reduce --cluster star:1 --size 1M --try bandwidth=2x --try nodes=2x"
    assert [row["times"] for row in rows(words).values()] == [1, 1, None]
    _, out, _ = ringside("whatif", *words.split())
    assert [line.split()[2] for line in out.splitlines() if not line.startswith("#")] == ["1", "1", "-"]


def test_a_table_says_the_same(printed):
    out = printed("whatif broadcast --cluster star:4 --size 1M --try nodes=2x")
    assert "# no change helps, nodes=2x costs 49.0%: broadcast on star:4 takes 62.19 us" in out
    assert "# all by the library's own estimate" in out
    assert [line.split()[0] for line in out.splitlines() if not line.startswith("#")] == ["as_is", "nodes=2x"]


def test_another_gpu_precision_or_stack_is_a_change_of_a_training(rows):
    words = "llama3-8b:2048 --cluster dgx-h100:2 --batch 1"
    tried = "--try device=b200 --try device=b200,precision=fp8 --try stack=transformers"
    found = rows(f"{words} {tried}")
    times = [
        found[name]["times"]
        for name in ("device=b200,precision=fp8", "device=b200", "", "stack=transformers")
    ]
    assert times == sorted(times)
    assert len(set(times)) == 4
    own = rows(f"{words} --device b200 --try stack=eager")
    assert own[""]["time_s"] == own["stack=eager"]["time_s"] == found["device=b200"]["time_s"]


def test_a_gpu_is_no_change_of_a_collective(refused):
    message = refused("whatif", "all_reduce", "--cluster", "dgx-h100:2", "--try", "device=h200")
    assert "--device is an option of trainings, and all_reduce is not one; remove it" in message


@pytest.mark.parametrize(
    ("line", "basis"),
    [
        ("all_reduce --cluster dgx-h100:2 --try nic=2x", "all as measured (dgx-h100: "),
        ("all_reduce --cluster dgx-h100:5 --try nic=2x", "all extrapolated from dgx-h100: "),
        ("resnet50 --cluster dgx-h100:5 --try nic=2x", "all extrapolated from dgx-h100: "),
        ("all_reduce --cluster leonardo:3 --library mpi --try nic=2x", "all extrapolated from leonardo: "),
        ("all_reduce --cluster dgx-h100:2 --try nodes=2x --try nodes=3,nic=2x --try nic=2x",
         "; nodes=2x and nodes=3,nic=2x extrapolated; "),
        ("all_reduce --cluster dgx-h100:5 --try nodes=2x", "; nodes=2x as measured; "),
    ],
)  # fmt: skip
def test_only_numbers_of_nodes_that_have_rows_are_as_measured(json_of, line, basis):
    assert basis in json_of("whatif", *line.split())["note"]


def test_a_training_is_simulated_once_for_each_change(monkeypatch):
    from ringside.validation.questions.step_time import StepTime
    from ringside.validation.questions.what_if import WhatIf

    monkeypatch.delattr(StepTime, "ask")
    answer = WhatIf(what="llama3-8b", cluster="dgx-h100:8", changes=["nic=0.5x"]).ask()
    assert answer.doubts == ("the training DOES NOT FIT into a GPU",)
