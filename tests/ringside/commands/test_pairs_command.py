import csv

import numpy as np
import pytest


@pytest.fixture
def table(tmp_path):
    """Return a table of eight nodes: h3 is slow at eight GPUs per node, h0 and h6 are slow together."""
    random = np.random.default_rng(4)
    path = tmp_path / "pairs.csv"
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["node_a", "node_b", "collective", "gpus_per_node", "size_bytes", "time_us"])
        for gpus in (1, 8):
            for i in range(8):
                for j in range(i + 1, 8):
                    slower = (1.4 if gpus == 8 and 3 in (i, j) else 1) * (2.5 if (i, j) == (0, 6) else 1)
                    time = 800 * slower * np.exp(0.004 * random.normal())
                    out.writerow([f"h{i}", f"h{j}", "sendrecv", gpus, 2**24, f"{time:.1f}"])
    return path


def test_the_slow_node_and_the_slow_pair_are_named_and_drawn(silently, table, tmp_path):
    out = silently("pairs", table, "--plot", "pairs.png")
    told = [line for line in out.splitlines() if line.startswith("# ")]
    assert told[told.index("# slow nodes: 1") :] == [
        "# slow nodes: 1",
        "#   h3: 1.40x, with all partners, sendrecv of 16 MiB, 8 GPUs per node; in 1 of 2 rows",
        "# slow pairs of otherwise normal nodes: 1",
        "#   h0 and h6: sendrecv, 1 GPU per node: 2.51x, in 1 of 1 sizes; "
        "sendrecv, 8 GPUs per node: 2.50x, in 1 of 1 sizes",
        "# unknown:",
        "#   whether a slow pair has a bad link or met other traffic; measure it again, alone",
        "#   defects common to all nodes, or visible only with more than 8 GPUs per node",
    ]
    assert (tmp_path / "pairs.png").read_bytes().startswith(b"\x89PNG")


def test_json_says_the_same(json_of, table):
    content = json_of("pairs", table)
    assert content["schema"] == "ringside.pairs/1"
    assert [node["node"] for node in content["slow_nodes"]] == ["h3"]
    assert {tuple(pair["nodes"]) for pair in content["slow_pairs"]} == {("h0", "h6")}
    assert content["matrices"][1]["effects"]["h3"] == pytest.approx(1.4, rel=0.02)


def test_what_is_no_measurement_of_pairs_is_refused(ringside, refused, tmp_path):
    (tmp_path / "x.csv").write_text("node_a,node_b\na,b\n")
    assert "expected node_a, node_b, size_bytes" in refused("pairs", "x.csv")
    assert ringside("pairs", "nowhere.log")[0] == 2
    assert ringside("pairs", "x.csv", "--plot", "x.csv")[0] == 2


def test_ranks_count_where_a_file_does_not_say(ringside, refused, table, tmp_path):
    bare = [
        ",".join(line.split(",")[i] for i in (0, 1, 4, 5)) for line in table.read_text().splitlines()[:29]
    ]
    (tmp_path / "bare.csv").write_text("\n".join(bare))
    assert "1 GPU per node" in ringside("pairs", "bare.csv")[1]
    assert "4 GPUs per node" in ringside("pairs", "bare.csv", "--ranks", 8)[1]
    assert ringside("pairs", table, "--ranks", 6)[1] == ringside("pairs", table)[1]
    for ranks in (0, 1, 3, -2):
        assert "write 2, or twice the GPUs per node" in refused("pairs", "bare.csv", "--ranks", ranks)


def test_a_log_without_ranks_is_of_as_many_as_are_told(json_of, tmp_path):
    row = "  1048576  262144  float  none  -1  100.0  10.49  10.49  0  100.0  10.49  10.49  N/A"
    for a, b in ("ab", "ac", "bc"):
        (tmp_path / f"run_{a}_{b}.log").write_text(
            "# Collective test starting: sendrecv_perf\n# nThread 1 nGpus 4\n"
            "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong\n" + row + "\n"
        )
    matrix = json_of("pairs", ".", "--ranks", 8)["matrices"][0]
    assert (matrix["gpus_per_node"], matrix["pairs"]) == (4, 3)
