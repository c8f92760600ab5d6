"""Two lists of operations side by side: what is the same, what only one has, and the order."""

from ringside.sim.collective import Collective
from ringside.sim.program.operations import Action, Call, Compute, Group, Operation, Recv, Send, Together
from ringside.sim.recorded.beside import Exchanged, side_by_side

ALL = Group("world", (0, 1, 2, 3), "nccl", 1)
ALONE = Group("alone", (0,), "nccl", 1)


def call(kind: str, nbytes: int, group: Group = ALL) -> Call:
    return Call(group, kind, Collective(kind, len(group.ranks), nbytes))


def listed(*actions: Action) -> list[Operation]:
    return [Operation(action, place=("train.py", 7)) for action in actions]


SUM, SMALL, GATHER = call("all_reduce", 64), call("all_reduce", 4), call("all_gather", 256)


def test_a_list_is_the_same_as_itself_whatever_it_computes() -> None:
    same = side_by_side(listed(SUM, Compute(1.0), GATHER), listed(Compute(2.0), SUM, GATHER), 0)
    assert (same.common, same.in_order, same.totals) == (2, 2, (2, 2))
    assert (same.different, same.parting) == ((), None)


def test_each_difference_is_counted_with_its_place_in_the_script() -> None:
    made = side_by_side(listed(SUM, SMALL, SMALL), listed(SUM, SMALL, GATHER), 0)
    counts = {one.exchanged: (one.first, one.second, one.places) for one in made.different}
    assert counts == {
        Exchanged("all_reduce", ALL.ranks, 4): (2, 1, ("train.py:7",)),
        Exchanged("all_gather", ALL.ranks, 256): (0, 1, ()),
    }
    assert made.nbytes == {"all_reduce": (72, 68), "all_gather": (0, 256)}
    assert made.parting == (
        2, Exchanged("all_reduce", ALL.ranks, 4), Exchanged("all_gather", ALL.ranks, 256)
    )  # fmt: skip


def test_the_same_in_another_order_is_told() -> None:
    made = side_by_side(listed(SUM, GATHER), listed(GATHER, SUM), 0)
    assert (made.common, made.in_order, made.different) == (2, 1, ())
    assert made.parting
    assert made.parting[0] == 0


def test_messages_are_by_their_two_ranks_and_a_rank_alone_exchanges_nothing() -> None:
    together = Together(ALL, (Send(ALL, 1, 8), Recv(ALL, 3, 8)))
    made = side_by_side(
        listed(together, call("all_reduce", 4, ALONE)), listed(Send(ALL, 1, 8), Recv(ALL, 3, 8)), 0
    )
    assert (made.common, made.different) == (2, ())
    assert {one.exchanged.ranks for one in made.counts} == {(0, 1), (0, 3)}
