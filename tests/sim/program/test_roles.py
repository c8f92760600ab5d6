"""Roles of ranks, and whether one rank per role decides if all end."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.program.check import PROVED, check, ends
from ringside.sim.program.operations import Program
from ringside.sim.program.record.distributed import record
from ringside.sim.program.roles import roles
from tests.sim.program.cases.known import CASES

KIB = 1024


def _ring(dist: Any) -> None:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for _ in range(3):
        works = [dist.irecv(KIB, (rank - 1) % ranks), dist.isend(KIB, (rank + 1) % ranks)]
        for work in works:
            work.wait()


def _mesh(dist: Any) -> None:
    """Run a step on a mesh of pipeline 4 x data 4 x tensor 2."""
    mesh = dist.init_device_mesh("cpu", (4, 4, 2), mesh_dim_names=("pp", "dp", "tp"))
    stage, stages = mesh.get_coordinate()[0], dist.get_process_group_ranks(mesh.get_group("pp"))
    for _ in range(2):
        if stage:
            dist.recv(KIB, stages[stage - 1])
        dist.all_reduce(KIB, group=mesh.get_group("tp"))
        if stage < 3:
            dist.send(KIB, stages[stage + 1])
    dist.all_reduce(KIB, group=mesh.get_group("dp"))


@pytest.mark.parametrize("library", ["gloo", "nccl"])
def test_ranks_of_a_ring_have_one_role(library: str) -> None:
    assert roles(record(_ring, 8, library)) == (0,) * 8


@pytest.mark.parametrize("library", ["gloo", "nccl"])
def test_a_mesh_has_a_role_for_each_stage(library: str) -> None:
    assert roles(record(_mesh, 32, library)) == tuple(rank // 8 * 8 for rank in range(32))


def test_a_line_has_a_role_for_each_distance_from_its_end() -> None:
    def line(dist: Any) -> None:
        rank, last = dist.get_rank(), dist.get_world_size() - 1
        if rank:
            dist.recv(KIB, rank - 1)
        if rank < last:
            dist.send(KIB, rank + 1)

    assert roles(record(line, 5)) == (0, 1, 2, 3, 4)


def test_one_slow_rank_splits_those_whom_it_meets() -> None:
    def slow(dist: Any) -> None:
        rank = dist.get_rank()
        dist.compute(2.0 if rank == 0 else 1.0)
        dist.all_reduce(KIB, group=dist.new_subgroups(4)[0])

    assert roles(record(slow, 8)) == (0, 1, 1, 1, 4, 4, 4, 4)


def test_roots_are_a_role_of_their_own() -> None:
    assert roles(record(lambda dist: dist.broadcast(KIB, 2), 4)) == (0, 0, 2, 0)
    assert roles(record(lambda dist: dist.reduce(KIB, 0), 4)) == (0, 1, 1, 1)


def test_where_messages_do_not_pair_off_every_rank_is_alone() -> None:
    case = CASES["nobody_receives"]
    assert roles(record(case.main, case.ranks)) == (0, 1)
    assert roles(record(lambda dist: None, 3)) == (0, 0, 0)


def _claiming(main: Any, ranks: int, library: str, role: Any) -> Program:
    program = record(main, ranks, library)
    return Program("claiming", ranks, program.operations, role)


@pytest.mark.parametrize("library", ["gloo", "nccl"])
def test_what_a_program_says_of_its_roles_is_what_its_lists_say(library: str) -> None:
    assert roles(_claiming(_ring, 8, library, lambda rank: "all")) == (0,) * 8
    stages = roles(_claiming(_mesh, 32, library, lambda rank: rank // 8))
    assert stages == roles(record(_mesh, 32, library))


def test_few_lists_are_made_where_a_program_says_its_roles() -> None:
    made = []
    program = record(_ring, 1000)

    def operations(rank: int) -> Any:
        made.append(rank)
        return program.operations(rank)

    assert roles(Program("ring", 1000, operations, lambda rank: 0)) == (0,) * 1000
    assert set(made) == {0, 1, 999}


def _next_is_slow(dist: Any) -> None:
    dist.compute(2.0 if dist.get_rank() == 1 else 1.0)
    _ring(dist)


def _next_meets_others(dist: Any) -> None:
    rank = dist.get_rank()
    dist.all_reduce(KIB)
    dist.all_reduce(KIB, group=dist.new_group([0, 3]) if rank in (0, 3) else None)


@pytest.mark.parametrize(
    ("main", "role", "told"),
    [
        (_next_is_slow, lambda rank: 0, "rank 1 declares the role of rank 0, but differs"),
        (_ring, lambda rank: rank == 1, "declares the role of rank 0"),
        (lambda dist: _ring(dist) if dist.get_rank() % 2 else None, lambda rank: 0, None),
        (lambda dist: [dist.barrier()] * 2 + [dist.barrier() for _ in range(dist.get_rank())],
         lambda rank: 0, "has 2 operations instead of 1"),
        (_next_meets_others, lambda rank: 0, "rank 1 declares the role of rank 0"),
    ],
)  # fmt: skip
def test_a_claim_that_lists_gainsay_is_refused(main: Any, role: Any, told: str | None) -> None:
    program = _claiming(main, 4, "gloo", role)
    if told is None:  # rank 0 meets nobody, so nobody is looked at
        assert roles(program) == (0,) * 4
        return
    with pytest.raises(ValueError, match=told):
        roles(program)


_STEPS = st.lists(
    st.tuples(
        st.sampled_from("shift blocking batch pairs all_reduce async own broadcast compute".split()),
        st.integers(1, 7),
        st.booleans(),
    ),
    max_size=8,
)


def _symmetric(steps: list[tuple[str, int, bool]], kinds: int) -> Any:
    """Let every rank do the steps of its kind, with neighbours at equal distances."""

    def main(dist: Any) -> None:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        own, _ = dist.new_subgroups(2)
        works = []
        for what, number, waits in steps:
            there, here = (rank + number) % ranks, (rank - number) % ranks
            mine = rank % kinds <= number % kinds
            match what:
                case "shift":
                    works += [dist.isend(KIB, there), dist.irecv(KIB * (1 + waits), here)]
                case "blocking" if mine:
                    (dist.send if rank % 2 else dist.recv)(4, rank ^ 1)
                case "batch":
                    works += dist.batch_isend_irecv(
                        [dist.P2POp(dist.irecv, KIB, here), dist.P2POp(dist.isend, KIB, there)]
                    )
                case "pairs":
                    works.append(dist.isend(4, rank ^ 1) if rank % 2 else dist.irecv(4, rank ^ 1))
                case "all_reduce" if mine:
                    dist.all_reduce(KIB * number)
                case "async" | "own":
                    works.append(dist.all_reduce(4, group=own if what == "own" else None, async_op=True))
                case "broadcast":
                    dist.broadcast(KIB, number % ranks)
                case "compute" if mine:
                    dist.compute(number * 1e-3)
            if waits:
                for work in works:
                    work.wait()
                works = []
        for work in works:
            work.wait()

    return main


@settings(max_examples=300)
@given(
    steps=_STEPS,
    ranks=st.sampled_from([8, 12]),
    kinds=st.sampled_from([1, 1, 2, 4]),
    library=st.sampled_from(["gloo", "nccl"]),
)
def test_representatives_say_what_all_ranks_say(
    steps: list[tuple[str, int, bool]], ranks: int, kinds: int, library: str
) -> None:
    program = record(_symmetric(steps, kinds), ranks, library)
    recorded = [program.operations(rank) for rank in range(ranks)]
    known = Program("known", ranks, recorded.__getitem__)
    in_full = check(known).verdict
    few = len(set(roles(known))) <= ranks // 2
    if ends(known):
        assert in_full == PROVED
    elif few and not any(what == "shift" and waits for what, _, waits in steps):  # of unequal sizes
        assert in_full != PROVED


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.ranks < 32])
@pytest.mark.parametrize("library", ["gloo", "nccl"])
def test_no_case_is_proved_by_its_representatives_alone(name: str, library: str) -> None:
    program = record(CASES[name].main, CASES[name].ranks, library)
    if ends(program):
        assert check(program).verdict == PROVED
