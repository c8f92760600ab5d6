"""What is learnt of a network, the interval of NCCL's own estimate, and doubtful choices."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from ringside.sim.collective import Collective
from ringside.sim.libraries.find import Options, find_library
from ringside.sim.libraries.nccl import belief
from ringside.sim.libraries.nccl.communicator import find_system
from ringside.sim.libraries.nccl.constants import HOP_US
from ringside.topologies.machine import machine, machines
from ringside.topologies.machine_file import Network
from ringside.validation.nccl.belief import quantiles
from ringside.validation.nccl.networks import KNOWN, NOTHING, is_between, is_of_gpu, learnt
from ringside.validation.nccl.priors import priors
from ringside.validation.published.calibrations import learnt_around, tells_latencies, usable
from ringside.validation.readers import nccl_tests_text

GIB = 2**30


def answer(cluster, size, ranks=None, **options):
    library = find_library("nccl", cluster, ranks=ranks, options=Options(**options))
    collective = Collective("all_reduce", library.ranks, size, dtype="float32")
    return library, library.time(collective, library.choose(collective))


def test_a_network_moves_priors_between_nodes_towards_its_machines_alone():
    usual = priors(find_system("aws-p4de"))
    seen = [(prior, prior.value * 2, prior.sigma / 10) for prior in usual]
    moved = learnt({"aws-p5": seen}).of(find_system("aws-p4de"))
    for before, after in zip(usual, moved, strict=True):
        if is_between(before.name):
            assert before.value < after.value < 2 * before.value
            assert 0 < after.sigma <= before.sigma
        else:
            assert after == before
    assert NOTHING.of(find_system("aws-p4de")) == usual


def test_rows_that_say_nothing_move_nothing():
    usual = priors(find_system("dgx-h100"))
    assert learnt({"one": [(prior, prior.value * 3, prior.sigma) for prior in usual]}).parameters == {}


def test_more_machines_make_a_network_surer():
    usual = priors(find_system("dgx-h100"))
    seen = [(prior, prior.value * 1.5, prior.sigma / 4) for prior in usual]
    one, three = learnt({"a": seen}), learnt({"a": seen, "b": seen, "c": seen})
    for name, (factor, sigma) in one.parameters.items():
        assert three.parameters[name][0] > factor
        assert three.parameters[name][1] < sigma


def test_another_node_with_the_gpu_moves_its_latencies_alone():
    usual = priors(find_system("dgx-h100"))
    seen = [(prior, prior.value / 2, prior.sigma / 10) for prior in usual]
    moved = learnt({"alps-gh200": seen}, is_of_gpu).parameters
    assert {prior.name for prior in usual if is_of_gpu(prior.name)} == set(moved)
    assert not any(is_between(name) for name in moved)


def test_more_machines_move_what_others_moved():
    usual = priors(find_system("aws-p5"))
    seen = [(prior, prior.value * 2, prior.sigma / 10) for prior in usual]
    more = learnt({"aws-p4de": seen})
    both = KNOWN["EFA"].then(more)
    for name, (factor, sigma) in more.parameters.items():
        start, _ = KNOWN["EFA"].parameters.get(name, (1.0, sigma))
        assert both.parameters[name] == (start * factor, sigma)
    assert both.machines == ("aws-p4de",)
    assert KNOWN["EFA"].then(NOTHING).parameters == KNOWN["EFA"].parameters


def test_a_hop_over_efa_begins_at_its_plugin_s_latency():
    moved = {prior.name: prior.value for prior in KNOWN["EFA"].of(find_system("aws-p5"))}
    for algorithm in ("tree", "ring"):
        for column, (protocol, expected_us) in enumerate({"ll": 20, "ll128": 20, "simple": 23}.items()):
            hop = HOP_US["net"][algorithm][column]
            assert hop * moved[f"between.{algorithm}.{protocol}"] == pytest.approx(expected_us)


def test_a_gpu_s_latencies_are_learnt_from_one_node_and_a_launch_for_each_gpu():
    """Alps' four GH200 start sooner than NCCL's constants say; 12 V100 of one thread do not tell."""
    alps = learnt_around("dgx-h100", [record for record in usable() if record.cluster == "alps-gh200"])
    assert all(is_of_gpu(name) for name in alps.parameters)
    assert alps.parameters["launch_us"][0] < 1
    assert alps.machines == ()  # no network of its own
    assert not any(tells_latencies(record) for record in usable() if record.cluster == "dgx2-v100")
    alone = [record for record in usable() if record.cluster == "dgx2-v100"]
    assert learnt_around("abci-v100", alone).parameters == {}


def test_networks_of_the_catalogue():
    assert machine("aws-p5").network == machine("aws-p4de").network == "EFA"
    assert machine("alps-gh200").network == "Slingshot"
    assert all(
        machine(name).network for name in machines() if name.startswith(("dgx", "aws", "gcp", "azure"))
    )


def test_logs_name_networks_as_machines_do():
    assert {*nccl_tests_text.NETWORKS.values(), "InfiniBand", "RoCE"} == set(get_args(Network))


def test_what_no_row_of_several_nodes_says_is_extrapolated():
    library, estimate = answer("aws-p4de:2", 1 << 20)
    assert estimate.basis.startswith("time_s extrapolated from aws-p4de: ")
    assert "between nodes as aws-p5 on the same network" in estimate.basis
    assert library.basis.startswith("extrapolated from")
    assert answer("dgx-h100:2", 1 << 20)[1].basis.startswith("time_s as measured (dgx-h100: ")


def test_an_estimate_without_measurements_has_an_interval():
    for cluster in ("perlmutter-a100:4", "gcp-a3mega:1"):
        _, estimate = answer(cluster, 1 << 20)
        assert estimate.engine == "model"
        assert estimate.time_lo_s <= estimate.time_s < estimate.time_hi_s
    near, far = (belief.ends(1.0, 1 << 20, nodes) for nodes in (128, 1024))
    assert far[0] < near[0] < near[1] < far[1]


@pytest.mark.slow
def test_the_interval_of_estimates_is_what_the_rows_give():
    made = quantiles(usable())
    for several, kept in ((False, belief.ONE_NODE), (True, belief.SEVERAL_NODES)):
        np.testing.assert_allclose(made[several], kept, atol=0.006)


def test_a_doubtful_choice_includes_the_time_of_its_rival():
    library, estimate = answer("dgx-h100:2", 4 << 20)
    collective = Collective("all_reduce", 16, 4 << 20, dtype="float32")
    chosen = library.choose(collective)
    assert chosen.rivals
    alone = library.time(collective, replace(chosen, rivals=()))
    assert estimate.time_lo_s <= alone.time_lo_s * (1 + 1e-9)
    assert alone.time_hi_s <= estimate.time_hi_s * (1 + 1e-9)
    for algorithm, protocol in chosen.rivals:
        time_s = library.time(collective, replace(chosen, algorithm=algorithm, protocol=protocol)).time_s
        assert estimate.time_lo_s * (1 - 1e-9) <= time_s <= estimate.time_hi_s * (1 + 1e-9)


@pytest.mark.parametrize(("nodes", "times"), [(2, 1), (4, 2), (16, 2)])
def test_a_tree_of_switches_keeps_to_its_cards(nodes, times):
    """A node's cards of 400 GB/s carry the size once on two nodes, twice on more: B200, 115.2 ms on four."""
    _, estimate = answer(f"dgx-b200:{nodes}", 16 * GIB, algorithm="nvls_tree")
    assert estimate.time_s >= times * 16 * GIB / 400e9


def test_a_node_in_part_has_the_cards_in_part():
    _, estimate = answer("dgx-h100:2", 8 * GIB, 2)
    assert 0.9 * 50e9 < 8 * GIB / estimate.time_s <= 0.98 * 50e9


def test_sums_in_the_network_are_answered_where_they_are_turned_on():
    (_, off), (_, on) = (answer("dgx-b200:4", 16 * GIB, collnet=collnet) for collnet in (False, True))
    assert "collnet" in on.algorithm
    assert on.engine == "measured"
    assert on.time_s == pytest.approx(61.2e-3, rel=0.1)  # published: together, 2.29.7
    assert on.time_s < off.time_s
