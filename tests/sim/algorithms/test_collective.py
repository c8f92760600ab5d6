import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.collective import KINDS, Collective, kind_of


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("all_reduce", "all_reduce"),
        ("AllReduce", "all_reduce"),
        ("all-reduce", "all_reduce"),
        ("all_reduce_perf", "all_reduce"),
        ("alltoall_perf", "all_to_all"),
        ("alltoall", "all_to_all"),
        ("sendrecv_perf", "sendrecv"),
        ("ReduceScatter", "reduce_scatter"),
        ("allgather", "all_gather"),
        ("broadcast", "broadcast"),
        ("reduce", "reduce"),
    ],
)
def test_the_fields_spellings_are_understood(text: str, kind: str) -> None:
    assert kind_of(text) == kind


@pytest.mark.parametrize("text", ["", "allreduced", "all reduce", "reduceall", "perf", "_perf"])
def test_an_unknown_collective_is_answered_with_the_known_ones(text: str) -> None:
    with pytest.raises(ValueError, match=f"unknown collective '{text}'; write (one of )?(all_)?reduce"):
        kind_of(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "all_reduced"}, "unknown collective"),
        ({"ranks": 0}, "0 ranks"),
        ({"ranks": -2}, "-2 ranks"),
        ({"nbytes": -1}, "a size of -1 bytes"),
        ({"root": 4}, "root 4 is not a rank; allowed: 0 to 3"),
        ({"root": -1}, "root -1"),
        ({"itemsize": 0}, "itemsize"),
        ({"itemsize": -4}, "itemsize"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Collective(**{"kind": "all_reduce", "ranks": 4, "nbytes": 64, **arguments})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "factor"),
    [
        ("all_reduce", 2 * 7 / 8),
        ("all_gather", 7 / 8),
        ("reduce_scatter", 7 / 8),
        ("all_to_all", 7 / 8),
        ("broadcast", 1),
        ("reduce", 1),
        ("sendrecv", 1),
    ],
)
def test_bus_bandwidth_is_nccl_tests(kind: str, factor: float) -> None:
    assert KINDS[kind].busbw_factor(8) == factor


@given(st.sampled_from(sorted(KINDS)), st.integers(1, 9), st.integers(0, 8))
def test_what_is_promised_can_be_made_of_what_there_is(kind: str, ranks: int, root: int) -> None:
    collective = Collective(kind, ranks, 64, root=root % ranks)
    there = [0] * collective.num_blocks
    for rank in range(ranks):
        for block, contributions in collective.start(rank):
            assert contributions == 1 << rank
            there[block] |= contributions
    for rank in range(ranks):
        for block, contributions in collective.goal(rank):
            assert contributions
            assert contributions & ~there[block] == 0


def test_the_goals_are_the_collectives() -> None:
    def goals(kind: str, root: int = 0) -> list[dict[int, int]]:
        return [dict(Collective(kind, 3, 9, root=root).goal(rank)) for rank in range(3)]

    assert goals("all_reduce") == [{0: 0b111}] * 3
    assert goals("reduce_scatter") == [{0: 0b111}, {1: 0b111}, {2: 0b111}]
    assert goals("reduce", 2) == [{}, {}, {0: 0b111}]
    assert goals("broadcast", 1) == [{0: 0b010}] * 3
    assert goals("all_gather") == [{0: 0b001, 1: 0b010, 2: 0b100}] * 3
    assert goals("all_to_all") == [{rank: 1, 3 + rank: 2, 6 + rank: 4} for rank in range(3)]
    assert goals("sendrecv") == [{2: 0b100}, {0: 0b001}, {1: 0b010}]


def test_sizes_are_nccl_tests_sizes() -> None:
    assert Collective("all_gather", 4, 64).space == 64
    assert Collective("all_to_all", 4, 64).space == 256
    assert Collective("sendrecv", 4, 64).space == 256
