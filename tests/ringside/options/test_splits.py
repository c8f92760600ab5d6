import pytest

UNEVEN = "4,1,0;1,4,0;0,0,9"


@pytest.fixture
def rows(json_of):
    return lambda splits: json_of("simulate", "all_to_all", "--cluster", "star:3", "--splits", splits)["rows"]


def test_a_list_and_a_file_of_splits_mean_the_same(rows, tmp_path) -> None:
    (tmp_path / "splits").write_text("# from rank 0, 1, 2\n4 1 0\n1, 4, 0\n\n0,0,9  # keeps all\n")
    of_list, of_file = (rows(splits) for splits in (UNEVEN, tmp_path / "splits"))
    assert of_list == of_file
    assert of_list[0]["size_bytes"] == 9 * 4


def test_one_row_is_what_every_rank_has(rows) -> None:
    assert rows("7,1,1") == rows("7,1,1;7,1,1;7,1,1")


def test_a_file_with_what_is_no_count_is_refused_with_its_place(refused, tmp_path) -> None:
    (tmp_path / "splits").write_text("1 2 3\n1 -2 3\n1 2 3\n")
    message = refused("simulate all_to_all --cluster star:3 --splits splits")
    assert "line 2: '-2' is not a count of elements; write 0 or more" in message
