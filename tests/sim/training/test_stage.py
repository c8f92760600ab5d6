"""A stage's passes in a rank's list, and the mesh of its exchanges."""

from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.collective import Collective
from ringside.sim.program import Call, Operation, Program
from ringside.sim.program.check import PROVED, check
from ringside.sim.program.groups import TimedGroup, play_in_group
from ringside.sim.training.layers import Exchange, Kernels, RankLayer
from ringside.sim.training.mesh import DIMENSIONS, Communicators, Mesh
from ringside.sim.training.sharing import Unshared
from ringside.sim.training.stage import RankList, Stage

DEGREES = st.integers(1, 3)


@given(st.tuples(*[DEGREES] * 5))
def test_a_rank_stands_in_one_place_and_in_one_group_a_dimension(degrees: tuple[int, ...]) -> None:
    mesh = Mesh(**dict(zip(DIMENSIONS, degrees, strict=True)))
    assert [mesh.rank(mesh.place(rank)) for rank in range(mesh.ranks)] == list(range(mesh.ranks))
    for name in DIMENSIONS:
        groups = {mesh.together(rank, name) for rank in range(mesh.ranks)}
        assert sorted(rank for group in groups for rank in group) == list(range(mesh.ranks))
        assert {len(group) for group in groups} == {mesh.degree(name)}


def test_neighbours_are_tensor_parallel_and_stages_far_apart() -> None:
    mesh = Mesh(tensor=2, shard=2, pipeline=2)
    assert mesh.together(5, "tensor") == (4, 5)
    assert mesh.together(5, "shard") == (5, 7)
    assert mesh.together(5, "pipeline") == (1, 5)
    assert mesh.together(5, "tensor", "shard") == (4, 5, 6, 7)


def test_an_exchange_that_overlaps_is_hidden_behind_the_next_work() -> None:
    def makespan(*, overlaps: bool) -> float:
        reduce = Exchange(("tensor",), Collective("all_reduce", 2, 1000), overlaps)
        return _played(RankLayer(name="layer", backward=(Kernels(2.0), reduce, Kernels(3.0))))

    assert makespan(overlaps=False) == 2 + 1 + 3
    assert makespan(overlaps=True) == 2 + 3


def _played(layer: RankLayer) -> float:
    communicators = Communicators(Mesh(tensor=2))

    def operations(rank: int) -> list[Operation]:
        made = RankList(rank, communicators)
        stage = Stage(made, [layer], Unshared())
        stage.forward(0)
        stage.backward(0, last=True)
        return made.operations

    lists = [operations(rank) for rank in range(2)]
    program = Program("one layer", 2, lambda rank: lists[rank])
    assert check(program).verdict == PROVED
    assert sum(isinstance(one.action, Call) for one in lists[0]) == 1
    return play_in_group(program, TimedGroup(2, lambda _: 1.0)).makespan_s
