import pytest

from sim.collective import Collective
from sim.libraries.nccl import Pins, Settings, communicator, cost_table, point_to_point
from sim.libraries.nccl.library import ALONE, LAUNCH_S, model, overhead_s, simulated_model
from sim.libraries.nccl.simulated import simulated

M = 2**20


def test_time_is_the_tuners_plus_the_launch():
    comm = communicator("dgx-h100", 2)
    choice = cost_table(comm, "all_reduce").choose(M)
    plan = model(Collective("all_reduce", 16, M, 4), comm)
    assert (plan.algorithm, plan.protocol, plan.channels) == ("tree", "ll128", choice.channels)
    assert plan.tuner_us == choice.time_us
    assert plan.time_s == pytest.approx(choice.time_us * 1e-6 + LAUNCH_S)


def test_pins_hold():
    comm = communicator("dgx-h100", 2, settings=Settings(pins=Pins("ring", "simple")))
    plan = model(Collective("all_reduce", 16, M, 4), comm)
    assert (plan.algorithm, plan.protocol) == ("ring", "simple")


def test_one_rank_pays_the_launch_alone():
    assert model(Collective("all_reduce", 1, M, 4), None) == ALONE
    assert simulated_model(Collective("all_reduce", 1, M, 4), None) == (ALONE, None)
    assert ALONE.time_s == LAUNCH_S


@pytest.mark.parametrize("kind", ["all_to_all", "sendrecv"])
def test_sends_and_receives_pass_no_tuner(kind):
    comm = communicator("dgx-a100", 2)
    plan = model(Collective(kind, 16, M, 4), comm)
    assert plan.algorithm == "p2p"
    assert plan.time_s == pytest.approx(point_to_point(comm, kind, M).time_us * 1e-6 + LAUNCH_S)


def test_the_engines_time_has_base_latency_and_launch():
    comm = communicator("dgx-a100", 2)
    collective = Collective("all_reduce", 16, M, 4)
    plan, timeline = simulated_model(collective, comm, traced=True)
    assert (plan.algorithm, plan.protocol) == ("tree", "ll128")
    assert overhead_s("tree", "ll128") == pytest.approx(14e-6 + LAUNCH_S)
    expected = simulated(comm, collective, "tree", "ll128").time_s + overhead_s("tree", "ll128")
    assert plan.time_s == expected
    assert timeline is not None
    assert model(collective, comm).tuner_us == plan.tuner_us


def test_the_engine_refuses_what_it_cannot_play():
    with pytest.raises(ValueError, match="nvls_tree all_reduce has no schedule here"):
        simulated_model(Collective("all_reduce", 16, 64 * M, 4), communicator("dgx-h100", 2))
