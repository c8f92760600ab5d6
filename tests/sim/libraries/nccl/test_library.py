import sys

import pytest

from ringside.sim.collective import Collective
from ringside.sim.libraries.library import Candidate, answer
from ringside.sim.libraries.nccl import Pins, Settings, communicator, cost_table, point_to_point
from ringside.sim.libraries.nccl.library import ALONE, LAUNCH_S, Nccl, overhead_s, simulated

M = 2**20


def all_reduce(ranks, nbytes=M, **words):
    return Collective("all_reduce", ranks, nbytes, dtype="float32", **words)


def test_time_is_the_tuners_plus_the_launch():
    comm = communicator("dgx-h100", 2)
    choice = cost_table(comm, "all_reduce").choose(M)
    found = answer(Nccl(comm), all_reduce(16))
    assert (found.algorithm, found.protocol, found.channels) == ("tree", "ll128", choice.channels)
    assert (found.belief_us, found.engine) == (choice.time_us, "model")
    assert found.time_s == choice.time_us * 1e-6 + LAUNCH_S


def test_pins_hold():
    library = Nccl(communicator("dgx-h100", 2, settings=Settings(pins=Pins("ring", "simple"))))
    (only,) = library.candidates(all_reduce(16))
    assert (only.algorithm, only.protocol) == ("ring", "simple")
    assert library.choose(all_reduce(16)) == only


def test_one_rank_pays_the_launch_alone():
    library = Nccl(None)
    assert library.choose(all_reduce(1)) == ALONE
    for engine in ("auto", "simpy"):
        assert answer(library, all_reduce(1), engine).time_s == LAUNCH_S
    with pytest.raises(ValueError, match="has no peers"):
        library.schedule(all_reduce(1), ALONE)


@pytest.mark.parametrize("kind", ["all_to_all", "sendrecv"])
def test_sends_and_receives_pass_no_tuner(kind):
    comm = communicator("dgx-a100", 2)
    found = answer(Nccl(comm), Collective(kind, 16, M, 4))
    assert found.algorithm == "p2p"
    assert found.time_s == point_to_point(comm, kind, M).time_us * 1e-6 + LAUNCH_S
    played = answer(Nccl(comm), Collective(kind, 16, M, 4), "simpy")
    taken, *_ = simulated(comm, Collective(kind, 16, M, 4), "p2p", "simple")
    assert (played.algorithm, played.channels) == ("p2p", found.channels)
    assert played.time_s == taken + overhead_s(comm, "p2p", "simple")


def test_the_engines_time_has_base_latency_and_launch():
    comm = communicator("dgx-a100", 2)
    found = answer(Nccl(comm), all_reduce(16), "simpy", traced=True)
    assert (found.algorithm, found.protocol, found.engine) == ("tree", "ll128", "simpy")
    assert overhead_s(comm, "tree", "ll128") == pytest.approx(14e-6 + LAUNCH_S)
    seconds, *_ = simulated(comm, all_reduce(16), "tree", "ll128")
    assert found.time_s == seconds + overhead_s(comm, "tree", "ll128")
    assert found.timeline is not None
    assert found.belief_us == answer(Nccl(comm), all_reduce(16)).belief_us


def test_the_engine_refuses_what_it_cannot_play():
    library = Nccl(communicator("dgx-h100", 2))
    with pytest.raises(ValueError, match="collnet_chain all_reduce needs a network that adds"):
        library.time(all_reduce(16), Candidate("collnet_chain", "simple"), "simpy")
    with pytest.raises(ValueError, match="no timeline"):
        answer(library, all_reduce(16), traced=True)
    with pytest.raises(ValueError, match="8 ranks on nccl of 16"):
        answer(library, all_reduce(8))


def test_type_and_reduction_are_the_collectives():
    library = Nccl(communicator("dgx-h100"))
    asked = [("float32", "sum"), ("float32", "prod"), ("bfloat16", "max")]
    collectives = [Collective("all_reduce", 8, M, dtype=dtype, redop=redop) for dtype, redop in asked]
    ways = [{one.algorithm for one in library.candidates(collective)} for collective in collectives]
    assert ["nvls" in way for way in ways] == [True, False, True]


def test_a_pair_of_ones_own_is_timed_by_the_tuner():
    library, asked = Nccl(communicator("dgx-h100", 2)), all_reduce(16)
    for one in library.candidates(asked):
        own = Candidate(one.algorithm, one.protocol)
        assert library.time(asked, own).time_s == library.time(asked, one).time_s


def test_a_belief_that_no_machine_reaches_is_raised_to_what_the_cards_need():
    library, large = Nccl(communicator("dgx-h100", 2)), all_reduce(16, 4096 * M)
    candidate = Candidate("ring", "simple", belief_us=100.0)
    # 2 * 15/16 of 4 GiB over eight cards of 50 GB/s, shared out to channels in cells of some KiB
    least = 2 * 15 / 16 * 4096 * M / 400e9 + LAUNCH_S
    assert library.bound(large, candidate) == pytest.approx(least, rel=1e-3)
    found = library.time(large, candidate)
    assert found.time_s == library.bound(large, candidate)
    assert "time raised to that of its traffic" in found.caveat


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("algorithm", ["ring", "tree", "nvls"])
def test_both_engines_play_nccls_schedules_to_the_same_time(nodes, algorithm):
    pytest.importorskip("numba")
    comm = communicator("dgx-h100", nodes)
    algorithm = "nvls_tree" if algorithm == "nvls" and nodes > 1 else algorithm
    expected, by, _ = simulated(comm, all_reduce(8 * nodes), algorithm, "simple")
    found, instead, _ = simulated(comm, all_reduce(8 * nodes), algorithm, "simple", "fast")
    assert (by, instead) == ("simpy", "fast")
    assert found == pytest.approx(expected, rel=1e-9)


def test_without_numba_the_answer_says_that_simpy_played_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    library = Nccl(communicator("dgx-h100", 1))
    assert library.time(all_reduce(8, 64 << 10), Candidate("tree", "simple"), "fast").engine == "simpy"
