"""`ringside pick`: one size, and counts of machines in the cluster's name or in --nodes."""

import json

import pytest

ASKED = ("pick", "all_reduce", "--size", "64M", "--json")


def test_a_count_of_the_cluster_is_a_count_of_nodes(ringside, silently):
    counted = silently(*ASKED, "--cluster", "dgx-h100:16")
    assert counted == ringside(*ASKED, "--cluster", "dgx-h100", "--nodes", "16")[1]
    assert counted == ringside(*ASKED, "--cluster", "dgx-h100:16", "--nodes", "16")[1]
    (row,) = json.loads(counted)["rows"]
    assert (row["num_nodes"], row["size_bytes"]) == (16, 64 << 20)


@pytest.mark.parametrize(
    ("library", "cluster", "names"),
    [
        ("ideal", "star:6", ["ring", "tree", "direct"]),
        ("ideal", "dgx-a100:2", ["hierarchical", "ring_2d:2x8", "ring"]),
        ("mpi", "leonardo:6", ["ring", "linear", "recursive_doubling"]),
        ("nccl", "dgx-h100:2", ["ring", "tree"]),
    ],
)
def test_of_several_algorithms_the_quickest_is_taken_and_others_are_not_asked(
    json_of, library, cluster, names
):
    """What each takes alone decides, at every size and for every list; ``^`` leaves out."""
    words = ["all_reduce", "--cluster", cluster, "--library", library, "--calibration", "none"]

    def rows(command, algorithm, size):
        return json_of(*command, *words, "--algorithm", algorithm, "--size", size)["rows"][0]

    for size in ("1K", "64K", "4M"):
        alone = {name: rows(["simulate"], name, size)["time_s"] for name in names}
        for count in (2, len(names)):
            some = names[:count]
            picked = rows(["pick"], ",".join(some), size)
            assert picked["time_s"] == min(alone[name] for name in some)
            assert picked["algorithm"] in some
    everything = rows(["pick"], "auto", "64K")
    without = rows(["pick"], f"^{everything['algorithm']}", "64K")
    assert without["algorithm"] != everything["algorithm"]
    assert without["time_s"] >= everything["time_s"]


def test_an_algorithm_of_a_list_that_is_none_is_named(refused):
    for library, cluster in (("ideal", "star:4"), ("mpi", "star:4"), ("nccl", "dgx-h100:1")):
        words = ["--cluster", cluster, "--library", library, "--algorithm", "ring,rign"]
        assert "rign" in refused(*ASKED, *words)
