"""Logs with a known cause: slowed by NCCL's engine with noise, or published."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ringside.sim.calibration import shipped
from ringside.sim.collective import Collective
from ringside.sim.libraries.find import Options, find_library
from ringside.sim.libraries.nccl.communicator import Settings, communicator
from ringside.sim.libraries.nccl.graph.system import SYSTEMS
from ringside.sim.libraries.nccl.library import Nccl
from ringside.sim.record import Record, RecordError
from ringside.topologies import star
from ringside.validation.calibrate import calibrate
from ringside.validation.explain.causes import SOCKETS
from ringside.validation.explain.nccl import NcclFamily
from ringside.validation.explain.schedules import ScheduleFamily
from ringside.validation.explain.verdict import LogVerdict, judge
from ringside.validation.readers import read
from tests.made_up import record

PUBLISHED = Path(__file__).parents[2] / "validation" / "published"
NOISE = 0.04
FREE, UNSET = Options(), Settings()


def engine(machine: str, nodes: int, settings: Settings, **figures: object) -> Nccl:
    """Return NCCL by its engine's closed forms, which are independent of measurements."""
    system = replace(SYSTEMS[machine], **figures)
    return Nccl(communicator(system, nodes, system.gpus, settings=settings), clock="pipeline")


def log(
    machine: str, nodes: int, pins: Options = FREE, settings: Settings = UNSET, **figures: object
) -> list[Record]:
    """Return all-reduces from 8 B to 1 GiB: the family's times, multiplied by the engine's ratio."""
    random = np.random.default_rng(7)
    whole, broken = engine(machine, nodes, UNSET), engine(machine, nodes, settings, **figures)
    family = find_library("nccl", f"{machine}:{nodes}", ranks=whole.ranks, options=pins)

    def seconds(library: Nccl, collective: Collective) -> float:
        return library.time(collective, library.choose(collective)).time_s

    records = []
    for power in range(3, 31):
        asked = Collective("all_reduce", whole.ranks, 2**power, 4, dtype="float32")
        slower = seconds(broken, asked) / seconds(whole, asked)
        time_s = float(seconds(family, asked) * slower * np.exp(NOISE * random.normal()))
        of = {"library": "nccl", "library_version": family.version, "algorithm": "auto", "redop": "sum"}
        on = {"cluster": machine, "num_nodes": nodes, "ranks": whole.ranks}
        records.append(record(**of, **on, nbytes=asked.nbytes, time_s=time_s, statistic="mean"))
    return records


def explained(records: list[Record]) -> LogVerdict:
    machine = records[0].cluster
    return judge(NcclFamily(records, machine, {}, shipped(machine).nccl.model, {}))


def causes(records: list[Record]) -> dict[str, object]:
    return {one.cause.key: one.value for one in explained(records).named}


@pytest.mark.parametrize("machine", ["abci-a100", "polaris-a100", "alps-gh200", "dgx-a100"])
def test_of_a_sound_log_nothing_is_named(machine: str) -> None:
    verdict = explained(log(machine, 2))
    assert not verdict.named
    assert not verdict.departs


def test_half_the_cards_are_found() -> None:
    verdict = explained(log("abci-a100", 4, nics=2))
    assert verdict.clear
    assert verdict.named[0].cause.key == "cards"
    assert verdict.named[0].value == 2


def test_cards_that_the_log_itself_lacks_are_named_first() -> None:
    few = [
        replace(record, fingerprint={"cards": "2"})
        for record in log("abci-a100", 4, nic=SYSTEMS["abci-a100"].nic / 2)
    ]
    assert explained(few).named[0].cause.key == "cards"


@pytest.mark.slow
def test_half_the_cards_blame_nothing_where_no_row_is_near() -> None:
    verdict = explained(log("dgx-a100", 4, nics=4))  # it was measured on one and two nodes
    assert verdict.extrapolated
    assert not verdict.departs
    assert not verdict.clear


@pytest.mark.parametrize(
    ("machine", "least"), [("alps-gh200", 0.4), ("abci-a100", 0.25), ("polaris-a100", 0.25)]
)
def test_links_at_half_their_rate_are_found(machine: str, least: float) -> None:
    verdict = explained(log(machine, 4, nic=SYSTEMS[machine].nic / 2))
    named = {one.cause.key: one.value for one in verdict.named}
    assert verdict.clear
    assert verdict.named[0].cause.key in {"link_rate", "cards"}  # half of the cards look the same
    assert least <= named["link_rate"] <= 0.6


@pytest.mark.parametrize(("machine", "protocol"), [("abci-a100", "simple"), ("alps-gh200", "ll")])
def test_one_protocol_is_found(machine: str, protocol: str) -> None:
    found = causes(log(machine, 4, Options(protocol=protocol)))
    assert found["protocol"] == protocol


@pytest.mark.parametrize("network", ["", "sockets", "InfiniBand"])
def test_sockets_instead_of_rdma_are_named_first_unless_the_log_shows_rdma(network: str) -> None:
    sound = read(PUBLISHED / "polaris_all_reduce_n2_r8_set5_nccl218.json").records
    family = NcclFamily(sound, "polaris-a100", {}, shipped("polaris-a100").nccl.model, {})
    slower = np.exp(family.under(SOCKETS, (0.25, 4.0)).mean - family.as_family.mean)
    assert len(family.records) == len(sound)
    verdict = explained(
        [
            replace(record, time_s=record.time_s * factor, fingerprint={"network": network})
            for record, factor in zip(sound, slower, strict=True)
        ]
    )
    keys = [one.cause.key for one in verdict.named]
    assert verdict.departs
    assert (keys[:1] == ["sockets"]) == (network != "InfiniBand")


def test_rows_that_nobody_measured_are_slow_only_far_beyond_their_interval() -> None:
    records = [
        replace(record, num_nodes=32, ranks=128)  # on four times the nodes that were measured
        for record in read(PUBLISHED / "alps_gh200_aws1130_all_reduce_n8_r32.json").records
    ]
    expected = explained(records).family_s
    for factor, departs in ((1.6, False), (8.0, True)):
        verdict = explained(
            [replace(record, time_s=factor * s) for record, s in zip(records, expected, strict=True)]
        )
        assert verdict.extrapolated == len(verdict.records)
        assert verdict.departs == departs


def test_a_row_among_sound_neighbours_is_not_slow() -> None:
    records = list(read(PUBLISHED / "abci2_a100_all_reduce_n4_r32.json").records)
    for place in (3, 4, 12, 20):
        records[place] = replace(records[place], time_s=4 * records[place].time_s)
    verdict = explained(records)
    assert (verdict.rows, verdict.named) == ((), ())


def test_few_channels_are_found_and_what_they_cannot_be_told_from_is_named() -> None:
    found = causes(log("abci-a100", 4, settings=Settings(max_ctas=1)))
    assert found["channels"] <= 2
    assert "link_rate" in found  # from a distance one channel is a slow link


def test_a_log_that_pins_a_protocol_is_not_asked_for_it_again() -> None:
    records = [
        replace(record, protocol="simple") for record in log("abci-a100", 4, Options(protocol="simple"))
    ]
    verdict = explained(records)
    assert not verdict.named
    assert verdict.unusual.says == "NCCL_PROTO=simple"
    assert verdict.unusual.factor > 2
    assert verdict.unusual.shown
    assert "protocol" not in {one.cause.key for one in verdict.tried}


@pytest.mark.parametrize(
    ("name", "factor"),
    [("a100_thanos_g8_singleproc", 1.8), ("superbench_a100_n1_r8_all_gather", 1.5)],
)
def test_public_logs_of_one_process_are_bound_by_their_host_at_small_sizes(name, factor) -> None:
    verdict = explained(list(read(PUBLISHED / f"{name}.json").records))
    assert not verdict.named
    assert "(-g 8)" in verdict.unusual.says
    assert verdict.unusual.factor > factor
    assert verdict.unusual.shown
    assert max(verdict.records[row].nbytes for row in verdict.unusual.rows) <= 2**21


def test_threads_of_one_process_launch_as_fast_as_kernels_end() -> None:
    verdict = explained(list(read(PUBLISHED / "aiconfigurator_a100_n1_r8_all_gather.json").records))
    assert not verdict.named
    assert verdict.unusual.factor < 1.05


def test_one_process_that_the_log_does_not_tell_of_is_found() -> None:
    records = [
        replace(record, fingerprint={"id": "a"})
        for record in read(PUBLISHED / "rtx4090x8_p2p.json").records
        + read(PUBLISHED / "together_h100_g8_all_reduce_ring.json").records
        if record.cluster == "dgx-h100"
    ]
    found = causes(records)
    assert set(found) & {"process", "wait"}


@pytest.mark.parametrize(
    "name",
    [
        "abci2_a100_all_reduce_n1_r8", "abci2_a100_all_reduce_n4_r32", "abci2_v100_all_reduce_n8_r32",
        "alps_gh200_aws1130_all_reduce_n8_r32", "aws_p5_h100_all_reduce_n2_r16_v2223",
        "nt309_dell_h100_n2_r16", "oke_a100_n2_r16", "polaris_all_reduce_n8_r32_set5_nccl218",
        "together_h100_g8_all_reduce_nvls", "xxrjun_h100_n1_r8_all_reduce",
    ],
)  # fmt: skip
def test_of_public_logs_that_are_as_their_family_nothing_is_named(name: str) -> None:
    verdict = explained(list(read(PUBLISHED / f"{name}.json").records))
    assert not verdict.named
    assert not verdict.departs


def test_what_has_no_form_is_refused() -> None:
    with pytest.raises(RecordError, match="all_reduce, all_gather and reduce_scatter"):
        explained(list(read(PUBLISHED / "dgx2_v100_g12_broadcast.json").records))


def on_star(share: float) -> list[Record]:
    """Simulate a ring of four on a star, with one host's uplink at a share of its rate."""
    graph = star(4)
    graph.edges["gpu2", "switch"]["bandwidth"] *= share
    library = find_library("ideal", graph, options=Options("ring"))
    random, records = np.random.default_rng(3), []
    for power in range(10, 25, 2):
        asked = Collective("all_reduce", 4, 2**power, 4, dtype="float32")
        seconds = library.time(asked, library.choose(asked), "simpy").time_s
        time_s = float(seconds * np.exp(NOISE * random.normal()))
        records.append(record(cluster="star", num_nodes=4, nbytes=2**power, time_s=time_s, statistic="mean"))
    return records


def test_one_slow_link_under_a_schedule_is_found() -> None:
    sound = calibrate(on_star(1.0), "star")
    assert not judge(ScheduleFamily(on_star(1.0), "star:4", {}, sound)).departs
    verdict = judge(ScheduleFamily(on_star(0.5), "star:4", {}, sound))
    named = {one.cause.key: one.value for one in verdict.named}
    assert verdict.clear
    assert "host_links" in named
    assert set(named) <= {"host_links", "all_links"}
    assert named["host_links"] == pytest.approx(0.5, rel=0.2)


def test_a_machine_with_other_cards_is_laid_beside_what_simulate_says_of_it() -> None:
    model = shipped("dgx-a100").nccl.model
    records = log("dgx-a100", 2)
    for values in ({}, {"nic": "12.5GB/s"}, {"nic": "50GB/s"}):
        family = NcclFamily(records, "dgx-a100", values, model, {})
        library = find_library("nccl", "dgx-a100:2", values)
        for one, log_s, half in zip(records, family.as_family.mean, family.as_family.half, strict=True):
            asked = Collective("all_reduce", 16, one.nbytes, dtype="float32")
            candidate = replace(library.choose(asked), rivals=())
            found = library.time(asked, candidate)
            if found.time_lo_s > library.bound(asked, candidate) * 1.000001:
                ends = (log_s, log_s - half, log_s + half)
                want = np.log([found.time_s, found.time_lo_s, found.time_hi_s])
                assert ends == pytest.approx(want, abs=1e-9)
