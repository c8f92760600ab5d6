import json

UNEVEN = "4,1,0;1,4,0;0,0,9"


def test_a_list_and_a_file_of_splits_mean_the_same(ringside, tmp_path) -> None:
    (tmp_path / "splits").write_text("# from rank 0, 1, 2\n4 1 0\n1, 4, 0\n\n0,0,9  # keeps all\n")
    words = ("simulate", "all_to_all", "--cluster", "star:3", "--json", "--splits")
    of_list, of_file = (
        json.loads(ringside(*words, splits)[1])["rows"] for splits in (UNEVEN, str(tmp_path / "splits"))
    )
    assert of_list == of_file
    assert of_list[0]["size_bytes"] == 9 * 4


def test_one_row_is_what_every_rank_has(ringside) -> None:
    words = ("simulate", "all_to_all", "--cluster", "star:3", "--json", "--splits")
    one, all_ = (json.loads(ringside(*words, splits)[1])["rows"] for splits in ("7,1,1", "7,1,1;7,1,1;7,1,1"))
    assert one == all_


def test_a_file_with_what_is_no_count_is_refused_with_its_place(ringside, tmp_path) -> None:
    (tmp_path / "splits").write_text("1 2 3\n1 -2 3\n1 2 3\n")
    code, _, err = ringside(
        "simulate", "all_to_all", "--cluster", "star:3", "--splits", str(tmp_path / "splits")
    )
    assert code == 2
    assert "line 2: '-2' is not a count of elements; write 0 or more" in err
