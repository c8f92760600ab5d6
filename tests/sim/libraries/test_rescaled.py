"""Measured times on machines with other rates, scaled by the ratio of the library's own model."""

from dataclasses import replace
from math import isclose, log
from pathlib import Path

import numpy as np
import pytest

from ringside.sim.calibration import Calibration, read, shipped
from ringside.sim.collective import Collective
from ringside.sim.libraries.find import find_library
from ringside.sim.libraries.library import Library, Prediction, answer
from ringside.sim.libraries.mpi.rounds import ROUNDS
from ringside.sim.libraries.nccl.message_times import KINDS
from ringside.sim.libraries.scaling import OPEN, scaled
from ringside.sim.parameters import Parameters
from ringside.sim.record import Record
from ringside.topologies import settings
from ringside.topologies.units import parse_rate
from ringside.validation.calibrate import calibrate
from ringside.validation.compare import compare
from ringside.validation.nccl.anchor import anchored
from ringside.validation.questions.what_if import WhatIf
from tests.made_up import calibration, record

SLOWER, FASTER = (0.25, 0.5, 0.8), (1.25, 2.0, 4.0)
"""Times a machine's own rate."""


def _nccl(machine: str, nodes: int, **values: str) -> Library:
    return find_library("nccl", f"{machine}:{nodes}", values)


def _asked(chance: np.random.Generator, kinds: tuple[str, ...], ranks: int) -> Collective:
    nbytes = 4096 * int(2 ** chance.uniform(0, 19))
    return Collective(str(chance.choice(kinds)), ranks, nbytes, dtype="float32")


def _check_law(chance: np.random.Generator, machine: str, nodes: int, rate: str, count: int) -> None:
    """Check that no lower rate is faster than the measured one, and no higher one slower."""
    own = parse_rate(settings(machine)[rate])
    down, up = (own * float(chance.choice(factors)) for factors in (SLOWER, FASTER))
    slower, measured, faster = (_nccl(machine, nodes, **{rate: f"{figure}B/s"}) for figure in (down, own, up))
    for _ in range(count):
        asked = _asked(chance, KINDS, measured.ranks)
        times = [
            {way.name: library.time(asked, way) for way in library.candidates(asked)}
            for library in (slower, measured, faster)
        ]
        for way in set.intersection(*map(set, times)):
            ends = [one[way] for one in times]
            assert {one.engine for one in ends} == {"measured"}
            assert ends[0].time_s >= ends[1].time_s >= ends[2].time_s, (machine, nodes, rate, asked, way)
            for top, bottom in (("time_hi_s", "time_lo_s"), ("time_hi_s", "time_s")):
                widths = [getattr(one, top) / getattr(one, bottom) for one in ends]
                assert min(widths) >= widths[1] * (1 - 1e-12), (machine, nodes, rate, asked, way)


@pytest.mark.parametrize(
    ("machine", "nodes", "rate"),
    [("dgx-h100", 2, "nic"), ("polaris-a100", 4, "nic"), ("dgx-h100", 1, "nvlink"),
     ("rtx4090-pcie", 1, "pcie")],
)  # fmt: skip
def test_a_faster_rate_is_never_slower(machine: str, nodes: int, rate: str) -> None:
    _check_law(np.random.default_rng(nodes), machine, nodes, rate, 12)


@pytest.mark.proof
def test_a_faster_rate_is_never_slower_on_any_measured_machine() -> None:
    chance = np.random.default_rng(0)
    for machine in ("abci-a100", "abci-v100", "alps-gh200", "aws-p5", "dgx-b200", "dgx1-v100", "summit-v100"):
        for nodes in (1, 2, 16):
            rates = [rate for rate in ("nic", "nvlink", "pcie") if rate in settings(machine)]
            for rate in rates:
                _check_law(chance, machine, nodes, rate, 50)


def test_a_faster_card_is_never_slower_under_mpi() -> None:
    chance = np.random.default_rng(0)
    libraries = [find_library("mpi", "leonardo:16", {"nic": nic}) for nic in ("10GB/s", "25GB/s", "40GB/s")]
    for _ in range(30):
        asked = _asked(chance, tuple(ROUNDS), 16)
        for way in libraries[0].candidates(asked):
            times = [library.time(asked, way) for library in libraries]
            assert times[0].time_s >= times[1].time_s >= times[2].time_s, (asked, way)


def test_the_ratio_is_the_models_own() -> None:
    asked = Collective("all_reduce", 16, 2**26, dtype="float32")
    for values in ({"nic": "25GB/s"}, {"nvlink": "300GB/s"}, {"nic": "100GB/s", "pcie": "96GB/s"}):
        times = [
            answer(find_library("nccl", "dgx-h100:2", one, calibration=calibration), asked).time_s
            for calibration in ("auto", None)
            for one in (values, {})
        ]
        assert times[0] / times[1] == pytest.approx(times[2] / times[3], rel=1e-12)


def test_whatif_and_two_simulations_give_one_ratio() -> None:
    asked = Collective("all_reduce", 16, 2**26, dtype="float32")
    _, changed = WhatIf(what="all_reduce", cluster="dgx-h100:2", changes=["nic=0.5x"]).ask().variants
    slow, own = (
        answer(find_library("nccl", "dgx-h100:2", values), asked).time_s for values in ({"nic": "25GB/s"}, {})
    )
    assert changed.time_s == slow
    assert "scaled by the tuner's ratio for nic 25 GB/s" in str(changed.measured)
    assert slow / own == pytest.approx(1.492, abs=1e-3)


def test_what_is_not_measured_is_on_one_clock_with_what_is() -> None:
    rows = WhatIf(what="all_reduce", cluster="dgx-h100:2", changes=["library=ideal"]).ask().variants
    assert [row.measured for row in rows] == ["", ""]


def test_a_band_grows_with_the_change_and_is_the_same_without_one() -> None:
    assert scaled(2.0, 1.0, 3.0, 1.0) == (2.0, 1.0, 3.0)
    before = 0.0
    for ratio in (1.0, 1.1, 2.0, 8.0):
        time_s, low, high = scaled(2.0, 2.0, 2.0, ratio)
        assert time_s == 2.0 * ratio
        assert log(high / time_s) == pytest.approx(OPEN * log(ratio))
        assert isclose(time_s / low, high / time_s)
        assert high / low >= before
        before = high / low


def test_what_was_fitted_with_settings_is_scaled_from_these() -> None:
    """A calibration of machines with other cards is of these, and of its cluster's own cards scaled."""
    found = shipped("dgx-h100")
    assert found
    slow = replace(found, settings={"nic": "25GB/s"})
    asked = Collective("all_reduce", 16, 2**24, dtype="float32")

    def time_s(nic: str, calibration: Calibration | str) -> float:
        return answer(find_library("nccl", "dgx-h100:2", {"nic": nic}, calibration=calibration), asked).time_s

    assert time_s("400Gb/s", found) == time_s("50GB/s", "auto")
    ratio = time_s("25GB/s", found) / time_s("50GB/s", found)
    assert time_s("50GB/s", slow) == pytest.approx(time_s("25GB/s", slow) / ratio)
    # by its other channels; the slow cards limit larger sizes
    assert time_s("200Gb/s", slow) == pytest.approx(time_s("50GB/s", found), rel=0.05)


def _record(library: str, cluster: str, nodes: int, ranks: int, nbytes: int, time_s: float) -> Record:
    on = {"cluster": cluster, "num_nodes": nodes, "ranks": ranks}
    return record(library=library, algorithm="auto", **on, nbytes=nbytes, time_s=time_s)


@pytest.mark.parametrize(
    ("library", "cluster", "ranks", "nic"),
    [("nccl", "dgx-h100", 16, "25GB/s"), ("mpi", "leonardo", 2, "50GB/s")],
)
def test_a_measurement_lies_beside_the_same_time(library: str, cluster: str, ranks: int, nic: str) -> None:
    asked = Collective("all_reduce", ranks, 2**24, dtype="float32")
    found = answer(find_library(library, f"{cluster}:2", {"nic": nic}), asked)
    (row,) = compare([_record(library, cluster, 2, ranks, 2**24, 1.0)], cluster, {"nic": nic})
    assert [row.predicted_s, row.lo_s, row.hi_s] == pytest.approx(
        [found.time_s, found.time_lo_s, found.time_hi_s], rel=1e-12
    )


def test_rows_of_a_site_with_other_cards_scale_what_is_scaled() -> None:
    """A site as quick as is said of its cards moves nothing; a slower one is followed."""
    kind = shipped("dgx-h100")
    assert kind
    asked = Collective("all_reduce", 16, 2**26, dtype="float32")
    values = {"nic": "25GB/s"}
    said = answer(find_library("nccl", "dgx-h100:2", values), asked).time_s
    for times in (1.0, 1.5):
        rows = [_record("nccl", "dgx-h100", 2, 16, 2**26, times * said)]
        found = find_library(
            "nccl", "dgx-h100:2", values, calibration=anchored(kind, rows, "dgx-h100", values)
        )
        assert answer(found, asked).time_s == pytest.approx(said if times == 1 else 1.4 * said, rel=0.1)


@pytest.mark.parametrize("library", ["ideal", "gloo"])
def test_a_schedules_calibration_is_scaled_like_a_measured_machine(library: str) -> None:
    """By rates as by the model: a fit with half of a data sheet's rate has half of any other's."""
    algorithm, parameters = "ring" if library == "ideal" else "auto", Parameters(alpha=1e-5, beta=2 / 25e9)
    fitted = replace(
        calibration({"library": library, "algorithm": algorithm, "parameters": parameters}), topology="star:4"
    )
    asked = Collective("all_reduce", 4, 2**26, dtype="float32")

    def found(**values: str) -> Prediction:
        return answer(find_library(library, "star:4", values, calibration=fitted), asked)

    own, narrow, wide = found(), found(bandwidth="12.5GB/s"), found(bandwidth="100GB/s")
    assert found(bandwidth="200Gb/s") == own
    assert not own.caveat
    assert "scaled by the model's ratio for bandwidth" in narrow.caveat
    assert narrow.time_s == pytest.approx(2 * own.time_s, rel=0.01)
    assert wide.time_s == pytest.approx(own.time_s / 4, rel=0.05)
    for one in (narrow, wide):
        assert one.time_hi_s / one.time_s > own.time_hi_s / own.time_s
        assert one.time_s / one.time_lo_s > own.time_s / own.time_lo_s
    (row,) = compare([_record(library, "star", 1, 4, 2**26, 1.0)], "star:4", {"bandwidth": "100GB/s"}, fitted)
    if library == "gloo":
        assert (row.predicted_s, row.lo_s, row.hi_s) == (wide.time_s, wide.time_lo_s, wide.time_hi_s)


def test_a_calibration_file_keeps_its_settings(tmp_path: Path) -> None:
    records = [_record("nccl", "dgx-h100", 2, 16, 2**power, 1e-9 * 2**power) for power in range(20, 28)]
    made = calibrate(records, "dgx-h100", {"nic": "25GB/s"})
    made.write(tmp_path / "mine.yaml")
    found = read(tmp_path / "mine.yaml")
    assert found.settings == {"nic": "25GB/s"}
    slow, own = (
        find_library("nccl", "dgx-h100:2", values, calibration=found) for values in ({"nic": "200Gb/s"}, {})
    )
    assert slow.measurements
    assert "scaled" not in slow.measurements
    assert own.measurements.endswith("scaled by the tuner's ratio for nic 50 GB/s")
