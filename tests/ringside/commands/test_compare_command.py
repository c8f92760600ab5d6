import json
import re
from pathlib import Path

import pytest

LOG = (Path(__file__).parents[2] / "validation" / "data" / "v2.0_all_reduce.log").read_text()


@pytest.fixture
def log(tmp_path):
    def write(gpu):
        (tmp_path / "job.log").write_text(LOG.replace("Tesla V100-SXM2-16GB", gpu))
        return "job.log"

    return write


def test_a_log_alone_is_compared_on_the_machine_that_its_gpus_tell(silently, log):
    out = silently("compare", log("NVIDIA B200"))
    first, *_, last = out.splitlines()
    mates = "aws-p6-b200, gcp-a4"
    assert re.match(r"# Predictions are off by [\d.]+% \(median\) on 3 rows held out", first)
    assert f"# machine: dgx-b200, by NVIDIA B200, 4 a node; inside a node the same as {mates}" in out
    assert re.fullmatch(
        r"# held_out: 3 rows, typically [\d.]+x off, nine of ten within [\d.]+x, worst [\d.]+x", last
    )


def test_rows_name_what_was_predicted_and_show_what_is_unknown(ringside, log):
    _, out, _ = ringside("compare", log("NVIDIA B200"), "--all")
    words = [re.split(r"\s{2,}", line.strip()) for line in out.splitlines() if not line.startswith("#")]
    for size, ranks, _, choice, measured, predicted, off, group, spread, nodes, ran, busbw, expected in words:
        assert (nodes, ranks, ran, spread, group) == ("1", "4", "nccl's own", "-", "held_out")
        assert re.fullmatch(r"(ring|tree|nvls)/(ll|ll128|simple)", choice)
        ratio = float(predicted) / float(measured)
        assert off == f"{max(ratio, 1 / ratio):.2f}x {'long' if ratio > 1 else 'short'}"
        assert float(busbw) == pytest.approx(1.5 * int(size) / float(measured) / 1e3, abs=0.01)
        assert float(expected) == pytest.approx(1.5 * int(size) / float(predicted) / 1e3, rel=0.01, abs=0.01)


def test_json_says_the_same(json_of, log):
    content = json_of("compare", log("NVIDIA B200"))
    assert content["inputs"]["cluster"] == "dgx-b200"
    assert content["notes"][0].startswith("machine: dgx-b200")
    assert {(row["choice"].count("/"), row["spread"]) for row in content["rows"]} == {(1, None)}


def test_several_machines_are_named_and_asked_for(refused, log):
    message = refused("compare", log("NVIDIA H100"))
    assert "4 a node, fits aws-p5, azure-ndv5, dgx-h100, gcp-a3mega, kestrel-h100, mn5-h100" in message


def test_a_log_of_another_gpu_is_a_warning(ringside, log):
    code, out, err = ringside("compare", log("NVIDIA GeForce RTX 4070"), "--cluster", "dgx-h100")
    assert err == "ringside: measured on NVIDIA GeForce RTX 4070, which dgx-h100 does not have\n"
    assert (code, bool(out)) == (0, True)


def test_a_table_without_ranks_is_compared_on_the_cluster_that_is_named(silently, tmp_path):
    bare = [
        line.removeprefix("#") for line in LOG.splitlines() if "Rank" not in line and "nThread" not in line
    ]
    (tmp_path / "issue.md").write_text("\n".join(bare))
    out = silently("compare", "issue.md", "--cluster", "dgx-h100", "--all")
    rows = [line.split() for line in out.splitlines() if not line.startswith("#")]
    assert [(row[1], row[9]) for row in rows] == [("4", "-")] * 3


def test_pinned_algorithms_are_called_the_same_everywhere(printed, tmp_path):
    pinned = "# NCCL_ALGO set by environment to Ring\n# NCCL_PROTO set by environment to LL\n"
    (tmp_path / "pinned.log").write_text(pinned + LOG)
    args = ("compare", "pinned.log", "--cluster", "dgx1-v100", "--plot", "pinned.svg", "--all")
    assert "nccl ring/ll" in printed(*args)
    assert "nccl ring/ll" in (tmp_path / "pinned.svg").read_text()


@pytest.mark.parametrize(
    ("told", "nodes", "fallback"),
    [
        *(
            (told, 2, "tree,ring")
            for told in ("NVLS", "PAT", "CollNet", "CollnetChain,NVLS", "allreduce:pat")
        ),
        *((told, 2, "ring") for told in ("NVLSTree", "CollNet,Ring", "^Ring,Tree")),
        *(("NVLSTree", 1, "tree,ring"), ("NVLS", 1, "ring")),
    ],
)
def test_an_algorithm_that_is_not_to_be_had_is_what_nccl_falls_back_to(
    json_of, tmp_path, told, nodes, fallback
):
    """Four H100 a node without a switch, where NVLS is none; NCCL ran, whatever it was told."""
    hosts = re.sub(r"(Rank  [23] .* on +)\S+", r"\1other", LOG) if nodes == 2 else LOG
    (tmp_path / "job.log").write_text(f"# NCCL_ALGO set by environment to {told}\n{hosts}")
    content = json_of("compare", "job.log", "--cluster", "mn5-h100")
    assert {row["num_nodes"] for row in content["rows"]} == {nodes}
    (message,) = (note for note in content["notes"] if "fell back" in note)
    assert message.startswith(
        f"NCCL_ALGO={content['rows'][0]['algorithm']} names nothing that mn5-h100 supports for all_reduce"
    )
    assert message.endswith(f"fell back to NCCL_ALGO={fallback}")
    (tmp_path / "job.log").write_text(f"# NCCL_ALGO set by environment to {fallback}\n{hosts}")
    plainly = json_of("compare", "job.log", "--cluster", "mn5-h100")
    assert not [note for note in plainly["notes"] if "fell back" in note]
    for row, plain in zip(content["rows"], plainly["rows"], strict=True):
        assert (row["predicted_s"], row["choice"]) == (plain["predicted_s"], plain["choice"])


def test_rows_of_the_site_scale_predictions_and_are_never_held_out(ringside, tmp_path):
    log = (Path(__file__).parents[2] / "validation" / "data" / "v2.13_two_nodes.log").read_text()
    (tmp_path / "job.log").write_text(log)
    (tmp_path / "one.log").write_text(re.sub(r".*>: +(?:1048576|2097152|4194304) .*\n", "", log))
    words = ("compare", "job.log", "--cluster", "dgx-a100", "--json")
    plain, scaled = (json.loads(ringside(*words, *more)[1]) for more in ((), ("--anchor", "one.log")))
    assert [row["set"] for row in plain["rows"]] == ["held_out"] * 4
    assert [row["set"] for row in scaled["rows"]] == ["held_out"] * 3 + ["fitted"]
    assert abs(scaled["rows"][3]["error"]) < abs(plain["rows"][3]["error"])
    assert "scaled to the site by rows of one.log" in scaled["notes"]


def test_calibrate_and_explain_take_what_ran_for_what_was_told(ringside, json_of, printed, tmp_path):
    run = (
        Path(__file__).parents[3] / "validation/published" / "mn5_h100_all_reduce_n4_r16_ring.json"
    ).read_text()
    answers = []
    for told in ("nvls_tree", "ring"):
        (tmp_path / "job.json").write_text(run.replace('"algorithm": "ring"', f'"algorithm": "{told}"'))
        args = ("job.json", "--cluster", "mn5-h100")
        fitted = printed("calibrate", *args, "-o", f"{told}.yaml")
        explained = json_of("explain", *args)
        simulated = ringside("simulate", "all_reduce", "--cluster", "mn5-h100:4", "--anchor", "job.json")[1]
        answers.append((fitted, explained, simulated))
    (fitted, explained, simulated), (plainly, as_ring, anchored) = answers
    assert "so NCCL fell back to NCCL_ALGO=ring" in fitted
    assert "fell back" not in plainly
    assert fitted.splitlines()[2:4] == plainly.splitlines()[2:4]
    (message,) = explained["notes"]
    assert message.endswith("fell back to NCCL_ALGO=ring")
    assert not as_ring["notes"]
    assert [row["family_s"] for row in explained["rows"]] == [row["family_s"] for row in as_ring["rows"]]
    assert simulated == anchored


def test_the_gathering_half_has_no_trees(printed, tmp_path):
    pinned = "# Collective test starting: all_gather_perf\n# NCCL_ALGO set by environment to Tree\n"
    (tmp_path / "job.log").write_text(pinned + LOG)
    out = printed("compare", "job.log", "--cluster", "dgx1-v100")
    assert "NCCL_ALGO=tree names nothing that dgx1-v100 supports for all_gather" in out
    assert out.count("ring/") == 3
