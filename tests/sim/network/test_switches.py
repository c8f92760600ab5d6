"""Plans with switches that add: the proof, its races, random orders, the engine and the bounds."""

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.engine.bounds import lower_bounds
from ringside.sim.engine.events import simulate
from ringside.sim.libraries.nccl import Settings, communicator
from ringside.sim.libraries.nccl.device.schedules import schedule as nccl_schedule
from ringside.sim.proof import prove
from ringside.sim.schedule import Schedule, ScheduleError, even_chunks, step
from ringside.topologies import Routes, TopologyError, leaf_spine, load, star
from tests.sim.algorithms.execution import Program, right
from tests.sim.algorithms.mutating import mutated
from tests.sim.algorithms.rewriting import Move, moves, with_moves

M = 2**20


def in_switch(ranks, nbytes=64 * M, pieces=1):
    """Make a plan in which rank c reads chunk c's sum from a switch and multicasts it by another."""
    every = np.arange(ranks)

    def steps():
        for chunk in range(ranks * pieces):
            head = chunk % ranks
            yield step(every, ranks, chunk, reduce=True)
            yield step(ranks, head, chunk, reduce=False)
            yield step(head, ranks + 1, chunk, reduce=False)
            yield step(ranks + 1, np.delete(every, head), chunk, reduce=False)

    collective = Collective("all_reduce", ranks, nbytes)
    joined = (tuple(range(ranks)),) * 2
    return Schedule(collective, "switch", even_chunks(collective, ranks * pieces), steps, switches=joined)


def made(*waves, ranks=2, switches=1):
    """Make a plan of (source, destination, adds)."""
    blank = replace(in_switch(ranks), switches=(tuple(range(ranks)),) * switches)
    blank = replace(blank, chunks=even_chunks(blank.collective))
    return with_moves(blank, [[Move(src, dst, 0, 1, 0, adds) for src, dst, adds in wave] for wave in waves])


@given(st.integers(2, 96))
@settings(max_examples=30)
def test_a_reduction_in_a_switch_is_right_for_any_number_of_ranks(ranks):
    prove(in_switch(ranks))


ADD, PUT = True, False
UP = [(0, 2, ADD), (1, 2, ADD)]


@pytest.mark.parametrize(
    ("waves", "complaint"),
    [
        (([(2, 0, PUT)],), "switch 0 to rank 0: the sender holds no contribution"),
        (([(0, 2, ADD)], [(2, 1, PUT)]), "the receiver would lose the contribution of rank 1"),
        ((UP, [(0, 2, ADD)]), "rank 0 to switch 0: the contribution of rank 0 would be added twice"),
        ((UP, [(2, 0, PUT)]), "at the end rank 1 lacks the contribution of rank 0"),
        # both may have left before the other's has come
        (([(0, 2, ADD)], [(1, 2, PUT)]), "the receiver would lose the contribution of rank 0"),
        (
            (UP, [(2, 0, PUT), (2, 1, PUT)], [(0, 2, PUT)]),
            "rank 0 to switch 0: the receiver already holds it",
        ),
    ],
)
def test_the_proof_refuses_what_a_switch_cannot_do(waves, complaint):
    with pytest.raises(ScheduleError, match=complaint):
        prove(made(*waves))


def test_a_switch_sends_to_ranks_only():
    with pytest.raises(ScheduleError, match=r"switch 0 to switch 1; .* which send to ranks only"):
        prove(made(UP, [(2, 3, PUT)], switches=2))


def test_a_sum_that_may_come_before_a_head_has_read_its_own_part_is_a_race():
    # rank 0 gets a sum with its own part from the switch, and rank 2 adds to that at any time
    waves = [(0, 3, ADD), (1, 3, ADD)], [(3, 0, PUT)], [(2, 0, ADD)], [(0, 1, PUT), (0, 2, PUT)]
    with pytest.raises(ScheduleError, match=r"rank 2 to rank 0 .reduce. race at rank 0: nothing orders them"):
        prove(made(*waves, ranks=3))


def shipped(chance):
    """Draw a small schedule of NCCL with switches."""
    algorithm = chance.choice(["nvls", "nvls_tree", "collnet_direct", "collnet_chain"])
    kinds = ["all_reduce", "all_gather", "reduce_scatter"]
    kind = chance.choice(kinds) if algorithm in ("nvls", "collnet_direct") else "all_reduce"
    comm = communicator("dgx-h100", chance.choice([2, 3]), 2, settings=Settings(collnet=True))
    return nccl_schedule(comm, Collective(kind, comm.ranks, 24, 4), algorithm, "simple")


def test_mutated_reductions_in_switches_that_pass_are_right_in_any_order():
    passed = refused = 0
    for number in range(250):
        chance = random.Random(number)
        plan = mutated(shipped(chance), chance)
        try:
            prove(plan)
        except ScheduleError:
            refused += 1
            continue
        program = Program(plan)
        assert all(right(program, chance) for _ in range(10)), moves(plan)
        passed += 1
    assert passed > 20
    assert refused > 100


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_each_port_carries_its_data_and_an_nth_more_up_and_its_data_down(ranks):
    plan, graph = in_switch(ranks), load("dgx-h100:1")
    up = plan.traffic()
    size = plan.collective.nbytes
    for rank in range(ranks):
        assert sum(n for (src, _), n in up.items() if src == rank) == size + size // ranks
        assert sum(n for (_, dst), n in up.items() if dst == rank) == size
    assert lower_bounds(plan, graph).traffic == pytest.approx(size * (1 + 1 / ranks) / 450e9)


def test_the_engine_comes_close_to_the_ports_bound_and_never_below():
    for nodes in (1, 2):
        plan, graph = in_switch(8, pieces=32), load(f"dgx-h100:{nodes}")
        bound = lower_bounds(plan, graph).traffic
        assert bound <= simulate(plan, graph).time_s <= 1.1 * bound


def test_a_switch_takes_no_time_to_add():
    plan, graph = in_switch(4), star(4)
    assert simulate(plan, graph, gamma=1.0).time_s == simulate(plan, graph).time_s


def test_the_nearest_switch_above_the_ranks_is_taken():
    routes = Routes(leaf_spine(leaves=2, hosts_per_leaf=2))
    near, far = routes.switch((0, 1)), routes.switch((0, 2))
    assert near != far
    assert len(routes.to_switch(0, (0, 1))) == len(routes.from_switch((0, 1), 1)) == 1
    assert [hop[1] for hop in routes.to_switch(0, (0, 2))] == [near, far]


def test_a_machine_without_such_a_switch_is_refused():
    with pytest.raises(TopologyError, match="no switch joins ranks 0, 1, 2, 3"):
        simulate(in_switch(4), load("dgx1-v100:1"))


def test_the_timeline_names_switches():
    timeline = simulate(in_switch(2), star(2), traced=True).timeline
    names = [event["args"]["name"] for event in timeline.chrome_trace()["traceEvents"] if event["ph"] == "M"]
    assert {"rank 0", "rank 1", "switch 0", "switch 1"} <= set(names)
    assert not {"rank 2", "rank 3"} & set(names)


def test_plans_without_switches_are_what_they_were():
    plan = schedule("ring", Collective("all_reduce", 4, M))
    assert plan.switches == ()
    assert plan.ends == plan.ranks == 4
