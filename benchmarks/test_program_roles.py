"""16,384 ranks of 16 roles: tensor 8 x pipeline 16 x data 128, roles said or found."""

import time
from functools import cache

import pytest

from ringside.sim.collective import Collective
from ringside.sim.program.jobs import PlacedProgram, simulate
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.operations import Action, Call, Compute, Group, Operation, Program, Recv, Send
from ringside.sim.program.roles import roles

pytestmark = pytest.mark.benchmark

TENSOR, STAGES, DATA = 8, 16, 128
RANKS = TENSOR * STAGES * DATA
MIB = 1 << 20
MICRO_BATCHES = 8
MOST_SECONDS = 20.0


@cache
def _group(name: str, ranks: tuple[int, ...]) -> Group:
    return Group(name, ranks, "nccl", 1)


@cache
def _sum(group: Group, nbytes: int) -> Call:
    return Call(group, "all_reduce", Collective("all_reduce", len(group.ranks), nbytes))


def _stage(rank: int) -> int:
    return rank // (TENSOR * DATA)


@cache
def _operations(rank: int) -> list[Operation]:
    """All micro-batches forward, all back, and the gradients' sum."""
    replica, part = rank // TENSOR % DATA, rank % TENSOR
    in_stage = TENSOR * DATA
    tensor = _group("tensor", tuple(range(rank - part, rank - part + TENSOR)))
    first = rank - replica * TENSOR
    data = _group("data", tuple(range(first, first + in_stage, TENSOR)))
    found: list[Operation] = []

    def put(action: Action) -> None:
        found.append(Operation(action, "compute", name=type(action).__name__))

    def message(make: type[Send] | type[Recv], peer: int) -> None:
        if 0 <= peer < RANKS:
            put(make(_group("pair", (min(rank, peer), max(rank, peer))), peer, 4 * MIB))

    for before, after, seconds in ((-in_stage, in_stage, 1e-3), (in_stage, -in_stage, 2e-3)):
        for _ in range(MICRO_BATCHES):
            message(Recv, rank + before)
            put(Compute(seconds))
            put(_sum(tensor, 4 * MIB))
            message(Send, rank + after)
    put(_sum(data, 64 * MIB))
    return found


@pytest.mark.parametrize("says", [True, False])
def test_a_large_job_is_simulated_by_its_roles(says: bool) -> None:
    _operations.cache_clear()
    begin = time.process_time()
    program = Program("large", RANKS, _operations, _stage if says else None)
    found = roles(program)
    found_s = time.process_time() - begin
    libraries = Libraries("nccl", f"dgx-h100:{RANKS // 8}", {}, RANKS)
    (timeline,) = simulate([PlacedProgram(program, tuple(range(RANKS)), found)], libraries)
    seconds = time.process_time() - begin
    print(f"roles {'said' if says else 'found'} in {found_s:.2f} s, with the simulation {seconds:.1f} s")
    assert found == tuple(_stage(rank) * TENSOR * DATA for rank in range(RANKS))
    assert timeline.makespan_s > (MICRO_BATCHES + STAGES - 1) * 3e-3
    assert seconds < MOST_SECONDS
