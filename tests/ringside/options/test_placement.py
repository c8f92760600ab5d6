"""Fewer ranks than a cluster has are placed by one rule for every question and library."""

from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import ringside as api
from ringside.sim.collective import Collective
from ringside.sim.libraries.find import Options, find_library
from ringside.sim.libraries.nccl.communicator import communicator
from ringside.sim.program.libraries import Libraries
from ringside.topologies import load, ranks
from ringside.topologies.placement import EVEN, PACKED, SPREADS, place, shares
from ringside.validation.compare import compare
from tests.made_up import record

M = 2**20
MACHINES = {"dgx-h100": 8, "dgx-a100": 8, "abci-v100": 4, "summit-v100": 6, "a100-pcie4": 4}


def time_of(library: str, cluster: Any, count: int | None, spread: str, nbytes: int = M) -> float:
    found = find_library(library, cluster, ranks=count, options=Options(placement=spread), calibration=None)
    asked = Collective("all_reduce", found.ranks, nbytes, dtype="float32")
    return found.time(asked, found.choose(asked)).time_s


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 80))
def test_an_even_share_differs_by_one_where_there_is_room_and_packing_fills(
    rooms: list[int], count: int
) -> None:
    count = min(count, sum(rooms))
    even, packed = shares(rooms, count, EVEN), shares(rooms, count, PACKED)
    assert sum(even) == sum(packed) == count
    least = min([*even, *([0] * (len(rooms) - len(even)))])
    assert all(taken <= room and (taken <= least + 1 or least == room or least in rooms)
               for taken, room in zip(even, rooms, strict=False))  # fmt: skip
    if len(set(rooms)) == 1:
        assert max(even) - least <= 1
        assert all(taken == room for taken, room in zip(packed[:-1], rooms, strict=False))


@pytest.mark.slow
@given(st.sampled_from(sorted(MACHINES)), st.integers(2, 3), st.integers(1, 8), st.integers(8, 25))
@settings(max_examples=25, phases=(Phase.explicit, Phase.generate))
def test_even_is_as_many_ranks_on_every_machine_to_every_library(
    name: str, machines: int, each: int, power: int
) -> None:
    each = min(each, MACHINES[name])
    cluster, count, nbytes = f"{name}:{machines}", machines * each, 3 * 2**power
    graph = load(cluster)
    hosts = [machine * MACHINES[name] + rank for machine in range(machines) for rank in range(each)]
    for library in ("ideal", "gloo"):
        placed = place(graph, hosts)
        assert len(ranks(placed)) == count
        by_hand = time_of(library, placed, None, PACKED, nbytes)
        assert time_of(library, cluster, count, EVEN, nbytes) == pytest.approx(by_hand, rel=1e-12)
    nccl = find_library("nccl", cluster, ranks=count, calibration=None)
    assert nccl.placed == (each,) * machines
    assert nccl.comm == communicator(name, machines, each)  # type: ignore[attr-defined]
    assert find_library("mpi", cluster, ranks=count).placed == nccl.placed


@given(
    st.sampled_from(sorted(MACHINES)), st.integers(1, 2), st.sampled_from(["ideal", "gloo", "nccl", "mpi"])
)
@settings(max_examples=25, phases=(Phase.explicit, Phase.generate))
def test_packed_ranks_that_fill_machines_are_those_machines(name: str, machines: int, library: str) -> None:
    count = machines * MACHINES[name]
    whole = time_of(library, f"{name}:{machines}", None, EVEN)
    assert time_of(library, f"{name}:3", count, PACKED) == pytest.approx(whole, rel=1e-12)
    if library == "nccl":
        assert time_of(library, name, count, EVEN) == whole  # no count: as few as hold them


def test_ranks_that_no_share_is_alike_of_are_placed_or_refused_by_name() -> None:
    assert find_library("ideal", "dgx-h100:2", ranks=9).placed == (5, 4)
    assert find_library("ideal", "dgx-h100:2", ranks=9, options=Options(placement=PACKED)).placed == (8, 1)
    for library in ("nccl", "mpi"):
        for spread, count in ((EVEN, 9), (PACKED, 12)):
            with pytest.raises(ValueError, match="equally many"):
                find_library(library, "dgx-h100:2", ranks=count, options=Options(placement=spread))
    with pytest.raises(ValueError, match=r"unknown placement 'evn'; write even"):
        find_library("ideal", "dgx-h100:2", ranks=8, options=Options(placement="evn"))


@pytest.mark.parametrize("library", ["ideal", "nccl"])
@pytest.mark.parametrize("spread", SPREADS)
def test_every_door_places_alike_and_says_so(json_of: Any, library: str, spread: str) -> None:
    words = ["--cluster", "dgx-h100:2", "-g", "8", "--placement", spread, "--library", library]

    def asked(*argv: str) -> Any:
        return json_of(*argv, *words)

    said = "4 ranks on each of 2 machines" if spread == EVEN else "8 ranks on a machine"
    simulated = asked("simulate", "all_reduce", "--size", "1M", "--calibration", "none")
    assert (simulated["inputs"]["placement"], simulated["inputs"]["placed"]) == (spread, said)
    time_s = simulated["rows"][0]["time_s"]
    assert time_s == time_of(library, "dgx-h100:2", 8, spread)

    picked = asked("pick", "all_reduce", "--size", "1M", "--calibration", "none")
    assert f"placement {spread}: {said}" in picked["notes"]
    assert picked["rows"][0]["time_s"] <= time_s
    choice = api.AlgorithmChoice(
        collective="all_reduce", cluster="dgx-h100", nodes=(2,), size=(M,), library=library, ranks=8,
        placement=spread, calibration=None,
    )  # fmt: skip
    (best,) = choice.ask().picks
    assert best.time_s == picked["rows"][0]["time_s"]

    first = asked("whatif", "all_reduce", "--size", "1M", "--try", "nic=2x")["rows"][0]
    as_is = asked("simulate", "all_reduce", "--size", "1M")["rows"][0]["time_s"]
    assert (first["time_s"], first["placed"], first["ranks"]) == (as_is, said, 8)

    trained = asked("train", "--model", "resnet50")
    assert f"placement {spread}: {said}" in trained["notes"]
    assert trained["rows"][0]["num_nodes"] == (2 if spread == EVEN else 1)
    step = api.train("resnet50", "dgx-h100:2", library=library, ranks=8, placement=spread)
    assert step.step_s == trained["rows"][0]["step_s"]
    layout = asked("train", "--model", "gpt2", "--strategy", "fsdp")
    assert f"placement {spread}: {said}" in layout["notes"]

    graph = load("dgx-h100:2")
    collective = Collective("all_reduce", 8, M, dtype="float32")
    there = api.predict(collective, graph, library=library, placement=spread, calibration=None)
    assert there.time_s == time_s
    assert list(Libraries(library, "dgx-h100:2", {}, 8, placement=spread).placed) == (
        [4, 4] if spread == EVEN else [8]
    )
    for collectives in [asked("collectives", "--prove", "0")] if library == "ideal" else []:
        assert collectives["inputs"]["placement"] == spread


def test_a_job_alone_is_spread_and_several_are_packed(json_of: Any, written: Any) -> None:
    script = written("def main(dist):\n    dist.all_reduce(2**20)\n", "job.py")

    def hosts(*words: str) -> list[list[int]]:
        found = json_of("program", *words, "--cluster", "dgx-h100:2")
        return [[one["host"] for one in job["ranks"]] for job in found.get("jobs", [found])]

    job = [str(script), "-g", "4"]
    for library in ("gloo", "ideal", "nccl"):
        assert hosts(*job, "--library", library) == [[0, 1, 8, 9]]
        assert hosts(*job, "--library", library, "--placement", "packed") == [[0, 1, 2, 3]]
    two = [word for _ in range(2) for word in ("--job", f"{script}:2")]
    assert hosts(*two) == [[0, 1], [2, 3]]


@pytest.mark.parametrize("library", ["ideal", "gloo", "nccl"])
def test_a_row_keeps_the_nodes_that_it_was_measured_on(library: str) -> None:
    def predicted(cluster: str, nodes: int) -> float:
        protocol = "simple" if library == "nccl" else "auto"
        on = {"cluster": "dgx-h100", "library": library, "num_nodes": nodes, "ranks": 8}
        (row,) = compare([record(**on, protocol=protocol, nbytes=M)], cluster)
        return row.predicted_s

    two = predicted("dgx-h100", 2)
    assert two == predicted("dgx-h100:4", 2) == predicted("dgx-h100:2", 2)
    assert predicted("dgx-h100", 1) == predicted("dgx-h100", 0) < two


def test_ranks_that_a_hand_numbered_across_machines_keep_their_numbers() -> None:
    """Ranks 0 and 1 of such a cluster are on two machines, whoever asks of them."""
    across = place(
        load("dgx-a100:2"), [host for pair in zip(range(8), range(8, 16), strict=True) for host in pair]
    )
    libraries = Libraries.on("ideal", across, 16)
    assert [libraries.of(hosts).nodes for hosts in ((0, 1), (0, 2), (0, 1, 2, 3))] == [2, 1, 2]
    assert libraries.of((0, 2, 4, 1, 3, 5)).placed == (3, 3)
    assert find_library("ideal", across, ranks=4).placed == (2, 2)
    for spread, nodes in ((EVEN, 2), (PACKED, 1)):
        assert find_library("ideal", across, ranks=6, options=Options(placement=spread)).nodes == nodes


def test_nccl_offers_the_placement_that_takes_a_number_of_ranks() -> None:
    """Packed, 7 ranks stand on one machine; 9 are equally many on no two machines by either rule."""
    with pytest.raises(ValueError, match=r"equally many per machine, or `placement` packed$"):
        time_of("nccl", "dgx-h100:2", 7, EVEN)
    assert time_of("nccl", "dgx-h100:2", 7, PACKED) > 0
    for spread in SPREADS:
        with pytest.raises(ValueError, match=r"equally many per machine$"):
            time_of("nccl", "dgx-h100:2", 9, spread)
