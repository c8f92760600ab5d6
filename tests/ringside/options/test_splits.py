import json

import pytest

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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("all_reduce", "--splits", "1,2,3"), "--splits applies to all_to_all, not all_reduce"),
        (("all_to_all", "--splits", "1,2"), "has 2 counts; write one for each of the 3 ranks"),
        (("all_to_all", "--splits", "1,2,3;4,5,6"), "sender 0 of 2"),
        (("all_to_all", "--splits", ";"), "is empty"),
        (("all_to_all", "--splits", "nowhere.txt"), "No such file"),
        (("all_to_all", "--splits", "1,2,3", "--size", "8"), "remove --size"),
        (("all_to_all", "--splits", f"1,2,{10**30}"), "more than 4 EiB in all"),
    ],
)
def test_splits_that_say_nothing_are_refused(ringside, words, said) -> None:
    code, out, err = ringside("simulate", *words, "--cluster", "star:3")
    assert (code, out) == (2, "")
    assert said in err


def test_a_file_with_what_is_no_count_is_refused_with_its_place(ringside, tmp_path) -> None:
    (tmp_path / "splits").write_text("1 2 3\n1 -2 3\n1 2 3\n")
    code, _, err = ringside(
        "simulate", "all_to_all", "--cluster", "star:3", "--splits", str(tmp_path / "splits")
    )
    assert code == 2
    assert "line 2: '-2' is not a count of elements; write 0 or more" in err
