"""`ringside pick`: one size, and counts of machines wherever they stand."""

import json

import pytest

ASKED = ("pick", "all_reduce", "--size", "64M", "--json")


def test_a_count_of_the_cluster_is_a_count_of_nodes(ringside):
    code, counted, err = ringside(*ASKED, "--cluster", "dgx-h100:16")
    assert (code, err) == (0, "")
    assert counted == ringside(*ASKED, "--cluster", "dgx-h100", "--nodes", "16")[1]
    assert counted == ringside(*ASKED, "--cluster", "dgx-h100:16", "--nodes", "16")[1]
    (row,) = json.loads(counted)["rows"]
    assert (row["num_nodes"], row["size_bytes"]) == (16, 64 << 20)


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--cluster dgx-h100:16 --nodes 8", "dgx-h100:16 and --nodes 8 count differently"),
        ("--cluster dgx-h100:16 --nodes 16,32", "count differently; leave one count out"),
        ("--cluster dgx-h100", "how many machines? write --cluster dgx-h100:16, or --nodes 1,2,4,8"),
        ("--cluster dgx-h100:0", "'0' is not a count"),
        ("--cluster dgx-h100:4 -b 1K", "--size is one size, -b, -e and -f are several"),
        (
            "--cluster star:4 --library ideal --algorithm ring",
            "leaves ideal nothing to pick",
        ),
    ],
)
def test_counts_and_sizes_that_contradict_are_refused(ringside, words, complaint):
    code, out, err = ringside(*ASKED, *words.split())
    assert (code, out) == (2, "")
    assert complaint in err
