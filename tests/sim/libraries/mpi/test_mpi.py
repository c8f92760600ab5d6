"""MPI's rounds against their schedules, its form against closed forms, and its laws."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.collective import KINDS, Collective
from ringside.sim.libraries.find import Options, find_library
from ringside.sim.libraries.library import Candidate, answer
from ringside.sim.libraries.mpi.decisions import DECISIONS, decide
from ringside.sim.libraries.mpi.form import MpiTask, NodePort, time_us, work_of
from ringside.sim.libraries.mpi.library import WITHOUT, Mpi
from ringside.sim.libraries.mpi.measured import expected
from ringside.sim.libraries.mpi.rounds import ROUNDS
from ringside.topologies import star

WAYS = [(kind, name) for kind, names in ROUNDS.items() for name in names]
SCHEDULED = [way for way in WAYS if way not in WITHOUT]
PORT = NodePort(rate=25.0, node_rate=25.0, latency_us=1.0)

OF_ONE_RANK = {
    *(("all_reduce", name) for name in ("recursive_doubling", "ring", "rabenseifner")),
    *(("all_gather", name) for name in ("recursive_doubling", "ring", "neighbor", "bruck")),
    *(("reduce_scatter", name) for name in ("ring", "recursive_halving")),
    *(("all_to_all", name) for name in ("linear", "pairwise", "modified_bruck")),
}
"""Algorithms in which the busiest rank is in every round, so that rounds hold all that it sends."""


def library(ranks: int, **options: str) -> Mpi:
    found = find_library("mpi", star(ranks), options=Options(**options), calibration=None)
    assert isinstance(found, Mpi)
    return found


def test_every_collective_has_an_algorithm_and_a_choice() -> None:
    assert set(ROUNDS) == set(KINDS) == set(DECISIONS)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 32])
@pytest.mark.parametrize(("kind", "name"), sorted(OF_ONE_RANK))
def test_rounds_send_what_the_busiest_rank_of_the_schedule_sends(kind: str, name: str, ranks: int) -> None:
    collective = Collective(kind, ranks, ranks * ranks * 64)
    rounds = ROUNDS[kind][name](collective).rounds
    sent = [0] * ranks
    for (src, _), nbytes in library(ranks).schedule(collective, Candidate(name)).traffic().items():
        sent[src] += nbytes
    assert sum(one.nbytes * one.times * one.peers for one in rounds) == max(sent)


@pytest.mark.parametrize(("kind", "name"), SCHEDULED)
def test_what_has_a_schedule_is_played_by_the_engine_and_told_apart(kind: str, name: str) -> None:
    mpi = library(6, algorithm=name)
    found = answer(mpi, Collective(kind, 6, 6 * 4096, dtype="float32"), "simpy")
    assert found.engine == "simpy"
    assert "without its protocols" in found.caveat


@pytest.mark.parametrize(("kind", "name"), WITHOUT)
def test_what_has_no_schedule_is_timed_and_refuses_the_engine(kind: str, name: str) -> None:
    mpi, collective = library(6, algorithm=name), Collective(kind, 6, 6 * 4096, dtype="float32")
    assert answer(mpi, collective).engine == "model"
    with pytest.raises(ValueError, match=f"mpi's {name} {kind} has a closed form only"):
        answer(mpi, collective, "simpy")


@pytest.mark.parametrize("levels", [1, 2, 5])
def test_recursive_doubling_on_a_star_is_what_its_rounds_cost(levels: int) -> None:
    nbytes, values = 1024, expected()
    a_round = (
        values["overhead_us"] + 5.0 + nbytes / values["copy_GBps"] * 1e-3 + nbytes / 25e3 / values["link"]
    )
    adding = nbytes / values["warm_GBps"] * 1e-3
    mpi = library(2**levels, algorithm="recursive_doubling")
    found = answer(mpi, Collective("all_reduce", 2**levels, nbytes, dtype="float32"))
    assert found.time_s * 1e6 == pytest.approx(
        values["call_us"] + levels * (a_round + adding) + adding, rel=1e-6
    )


def test_a_rendezvous_costs_a_round_trip_more_and_copies_nothing() -> None:
    collective, values = Collective("sendrecv", 4, 1 << 20, dtype="float32"), expected()
    eager, rendezvous, either = (
        answer(library(4, protocol=protocol), collective).time_s * 1e6
        for protocol in ("eager", "rendezvous", "auto")
    )
    copying = (1 << 20) / values["copy_GBps"] * 1e-3
    assert eager - rendezvous == pytest.approx(copying - values["handshake_us"] * values["wait"])
    assert either == rendezvous


SIZES = [0, *(4**power for power in range(1, 15))]


@pytest.mark.parametrize("protocol", ["auto", "eager", "rendezvous"])
@given(ranks=st.integers(2, 300), each=st.sampled_from([1, 2, 3, 8]), way=st.sampled_from(WAYS))
def test_a_time_grows_with_the_size(protocol: str, ranks: int, each: int, way: tuple[str, str]) -> None:
    port = NodePort(25.0, 25.0 * min(each, 4), 1.0, each)
    tasks = [MpiTask(Collective(way[0], ranks * each, nbytes), way[1], port) for nbytes in SIZES]
    times = time_us(work_of(tasks), expected(), protocol)
    assert all(more >= less > 0 for less, more in pairwise(times))


@given(
    ranks=st.integers(1, 200),
    nbytes=st.integers(0, 1 << 30),
    way=st.sampled_from(WAYS),
    rate=st.sampled_from([1e8, 1e10, 4e11]),
)
def test_no_time_is_below_what_the_cards_need(
    ranks: int, nbytes: int, way: tuple[str, str], rate: float
) -> None:
    kind, name = way
    mpi = find_library("mpi", star(ranks, bandwidth=rate), options=Options(algorithm=name), calibration=None)
    collective = Collective(kind, ranks, nbytes, dtype="float32")
    assert answer(mpi, collective).time_s >= mpi.bound(collective, Candidate(name))


@pytest.mark.parametrize("processes", [2, 4, 6, 32])
@pytest.mark.parametrize(("kind", "name"), WAYS)
def test_several_ranks_of_a_node_share_its_cards(kind: str, name: str, processes: int) -> None:
    values, options = {"processes": str(processes)}, Options(algorithm=name)
    mpi = find_library("mpi", "mare-nostrum:3", values, options=options, calibration=None)
    collective = Collective(kind, 3 * processes, 1 << 24, dtype="float32")
    assert answer(mpi, collective).time_s >= mpi.bound(collective, Candidate(name)) > 0


@pytest.mark.parametrize(
    ("kind", "ranks", "nbytes", "algorithm"),
    [  # read off coll_tuned_decision_fixed.c of Open MPI 4.1
        ("all_reduce", 32, 128, "rabenseifner"),
        ("all_reduce", 32, 64, "recursive_doubling"),  # a ring of fewer elements than ranks
        ("all_reduce", 100, 262143, "recursive_doubling"),
        ("all_reduce", 5000, 2047, "nonoverlapping"),
        ("all_gather", 32, 32 * 1023, "recursive_doubling"),
        ("all_gather", 32, 32 * 1024, "neighbor"),
        ("all_gather", 60, 60 * 65536, "ring"),
        ("reduce_scatter", 32, 2048, "butterfly"),
        ("broadcast", 1024, 524288, "scatter_allgather"),
        ("scatter", 32, 32 * 512, "linear_nb"),
        ("gather", 8, 8 * 1024, "binomial"),
        ("all_to_all", 64, 64 * 262144, "pairwise"),
        ("reduce", 4, 4096, "chain"),
        ("sendrecv", 2, 8, "ring"),
    ],
)
def test_open_mpi_takes_what_its_rules_fix(kind: str, ranks: int, nbytes: int, algorithm: str) -> None:
    assert decide(Collective(kind, ranks, nbytes, dtype="float32")) == algorithm


def test_every_rule_names_algorithms_that_there_are_and_rising_bounds() -> None:
    for kind, rows in DECISIONS.items():
        assert rows[-1][0] == float("inf")
        assert all(before[0] < after[0] for before, after in pairwise(rows))
        for _, limits, names in rows:
            assert len(names) == len(limits) + 1
            assert list(limits) == sorted(limits)
            assert set(names) <= set(ROUNDS[kind])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"dtype": "float16"}, "torch's MPI backend has no float16; write --dtype with one of float32"),
        ({"dtype": "bfloat16"}, "no bfloat16"),
        ({"dtype": "bool"}, "no bool"),
        ({"dtype": "float32", "redop": "avg"}, "has no avg; write --redop with sum, prod, min, max"),
    ],
)
def test_what_torch_does_not_do_over_mpi_is_refused_by_name(words: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        answer(library(4), Collective("all_reduce", 4, 1024, **words))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"algorithm": "tree"}, "mpi has no tree for all_reduce; write one of linear, nonoverlapping, "),
        ({"protocol": "ll"}, "unknown MPI protocol 'll'; write one of auto, eager, rendezvous"),
        ({"network": "fair"}, "does not model the fair network; simulate with --engine simpy"),
    ],
)
def test_what_mpi_does_not_know_is_refused(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        answer(library(4, **options), Collective("all_reduce", 4, 1024, dtype="float32"))


def test_one_rank_has_nobody_to_send_to() -> None:
    for kind, name in WAYS:
        found = answer(library(1, algorithm=name), Collective(kind, 1, 1 << 20, dtype="float32"))
        assert found.time_s * 1e6 == pytest.approx(expected()["call_us"])


def test_more_doublings_cost_more_latency_until_the_farthest() -> None:
    collectives = [Collective("all_gather", 2**power, 0) for power in range(1, 12)]
    work = work_of([MpiTask(collective, "recursive_doubling", PORT) for collective in collectives])
    times = time_us(work, expected() | {"far_us": 1.0})
    added = [after - before for before, after in pairwise(times)]
    near = expected()["overhead_us"] + PORT.latency_us
    assert added == pytest.approx([near + min(doublings, 5) for doublings in range(1, 11)])
