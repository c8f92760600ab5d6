"""Calibrations: shipped ones, users' own, and damaged files."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ringside
import ringside.validation.published
from ringside.sim.calibration import (
    CalibrationError,
    family,
    measured_machines,
    read,
    shipped,
    shipped_files,
    why_not,
)
from ringside.sim.collective import Collective
from ringside.sim.libraries.find import find_library
from ringside.sim.libraries.nccl.message_times import KINDS
from ringside.sim.record import RecordError
from ringside.validation import readers
from ringside.validation.calibrate import calibrate, report
from ringside.validation.compare import compare, summaries
from ringside.validation.published.calibrations import calibrations, of_machine, usable
from ringside.validation.published.mpi import published_mpi

FILES = Path(ringside.validation.published.__file__).parent


def rows_of(pattern):
    return [record for file in sorted(FILES.glob(pattern)) for record in readers.read(file).records]


def test_every_machine_with_rows_has_a_calibration_and_no_other():
    records = [*usable(), *published_mpi()]
    others = set(measured_machines()) - {record.cluster for record in records}
    assert {record.cluster for record in records} < set(measured_machines())
    assert all(shipped(machine).nccl.network for machine in others)
    assert shipped("aws-p4de").nccl.network == ("aws-p5",)
    assert (
        why_not("gcp-a3mega") == "no measurement of gcp-a3mega is shipped; family:dgx-h100 has the same box"
    )
    assert family("family:dgx-h100") is shipped("dgx-h100")
    with pytest.raises(CalibrationError, match="no calibration of 'gcp-a4' is shipped; write one of"):
        family("family:gcp-a4")


def test_what_is_shipped_reads_alike_as_a_users_file():
    for machine in measured_machines():
        assert read(shipped_files()[machine]) == shipped(machine)


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["alps-gh200", "rtx4090-pcie"])
def test_what_is_shipped_is_what_the_data_give(machine):
    made = calibrations([machine])[machine]
    there = shipped(machine)
    assert (made.used, made.sources, made.nccl.facts) == (there.used, there.sources, there.nccl.facts)
    collective = Collective("all_reduce", find_library("nccl", f"{machine}:4").ranks, 1 << 20)
    times = [
        find_library("nccl", f"{machine}:4", calibration=one).time(
            collective, find_library("nccl", f"{machine}:4", calibration=one).choose(collective)
        )
        for one in (made, there)
    ]
    assert times[0].time_s == pytest.approx(times[1].time_s, rel=0.01)
    assert times[0].time_hi_s == pytest.approx(times[1].time_hi_s, rel=0.02)


@pytest.mark.benchmark
def test_all_that_is_shipped_is_what_the_data_give():
    for machine, made in calibrations().items():
        assert made.used == shipped(machine).used
        for name, figures in made.nccl.parameters.items():
            assert figures == pytest.approx(shipped(machine).nccl.parameters[name], rel=0.05), (machine, name)


def test_sends_have_a_calibration_of_their_own_or_what_others_have_in_common():
    asked = Collective("sendrecv", 40, 1 << 27, dtype="float32")
    fitted, untold = (find_library("nccl", cluster, ranks=40) for cluster in ("dgx-h100:10", "alps-gh200:10"))
    answer = fitted.time(asked, fitted.choose(asked))
    assert answer.time_s == pytest.approx(5114e-6, rel=0.05)  # measured by xxrjun
    assert "xxrjun on 1, 10 nodes" in answer.basis
    other = untold.time(asked, untold.choose(asked))
    assert other.time_hi_s / other.time_lo_s > answer.time_hi_s / answer.time_lo_s
    assert "no row of alps-gh200" in other.basis
    believed = find_library("nccl", "dgx-h100:10", ranks=40, calibration=None)
    model, engine = (believed.time(asked, believed.choose(asked), one).time_s for one in ("auto", "simpy"))
    assert model == pytest.approx(engine, rel=0.05)


def test_boxes_share_what_is_inside_a_node_and_nothing_between():
    taken = of_machine("aws-p5", usable())
    assert {record.cluster for record in taken} == {"aws-p5", "dgx-h100", "dgx-h200"}
    assert {record.cluster for record in taken if record.num_nodes > 1} == {"aws-p5"}
    ringed = [record for record in usable() if record.collective in KINDS]
    assert {record.cluster for record in of_machine("abci-a100", ringed)} == {"abci-a100"}


def test_every_door_goes_by_the_measurements_and_says_so():
    collective = Collective("all_reduce", 16, 1 << 28, dtype="float32")
    graph = ringside.load("dgx-h100:2")
    measured = ringside.predict(collective, graph, library="nccl")
    believed = ringside.predict(collective, graph, library="nccl", calibration=None)
    assert (measured.engine, believed.engine) == ("measured", "model")
    assert measured.time_lo_s < measured.time_s < measured.time_hi_s
    assert believed.time_lo_s == believed.time_s
    assert measured.belief_us == believed.belief_us
    by_measured, by_belief = (
        ringside.train("resnet50", "dgx-a100:2", calibration=one) for one in ("auto", None)
    )
    assert by_measured.communication_s != by_belief.communication_s
    assert "dgx-h100" in find_library("nccl", "dgx-h100:2").calibrated.name
    assert find_library("nccl", "gcp-a3mega:2").uncalibrated.startswith("no measurement of gcp-a3mega")
    scaled = find_library("nccl", "dgx-h100:2", {"nic": "10GB/s"}).calibrated.name
    assert scaled.endswith("scaled by the tuner's ratio for nic 10 GB/s")
    assert find_library("nccl", "dgx-h100:2", {"ranks_per_gpu": "2"}).calibrated is None


@pytest.mark.slow
def test_a_published_row_lies_near_what_its_machine_answers():
    for machine in ("abci-v100", "alps-gh200", "polaris-a100", "dgx-a100"):
        own = [record for record in usable() if record.cluster == machine and record.algorithm == "auto"]
        (found,) = summaries(
            [row for row in compare(own, machine, pool_sites=True) if row.set == "fitted"]
        ).values()
        assert found.median_error < 0.1, machine


def test_a_calibration_of_ones_own_answers_and_reports(tmp_path):
    records = rows_of("abci2_v100_all_reduce_n[124]_*.json") + rows_of("abci2_v100_broadcast*.json")
    made = calibrate(records, "abci-v100", sources={"a": "b"})
    made.write(tmp_path / "mine.yaml")
    back = read(tmp_path / "mine.yaml")
    assert back == made
    text = report(made)
    assert "abci-v100: 72 rows of abci2 on 1, 2, 4 nodes, NCCL 2.8.4" in text
    assert "left its prior" in text
    assert "worst rows: all_reduce of" in text
    kept_back = rows_of("abci2_v100_all_reduce_n8_*.json")
    sets = summaries(compare(kept_back, "abci-v100", calibration=back))
    assert list(sets) == ["held_out"]
    assert sets["held_out"].median_error < 0.05
    answer = find_library("nccl", "abci-v100:16", calibration=back)
    collective = Collective("all_reduce", 64, 1 << 20)
    assert answer.time(collective, answer.choose(collective)).engine == "measured"


def test_too_little_or_nothing_to_fit_is_refused():
    with pytest.raises(RecordError, match="no row of all_reduce, all_gather, reduce_scatter"):
        calibrate(rows_of("abci2_v100_broadcast_n1*.json"), "abci-v100")
    with pytest.raises(RecordError, match="3 rows of NCCL to fit; measure 4 sizes or more"):
        calibrate(rows_of("abci2_v100_all_reduce_n1*.json")[:3], "abci-v100")


def test_one_row_of_a_site_scales_a_family_to_it(tmp_path):
    from ringside.validation.nccl.anchor import anchored

    log = [replace(record, time_s=1.5 * record.time_s) for record in rows_of("oke*.json")]
    small = [record for record in log if record.nbytes == 1 << 14]
    scaled = anchored(shipped("dgx-a100"), small, "dgx-a100", {})
    scaled.write(tmp_path / "anchored.yaml")
    assert read(tmp_path / "anchored.yaml") == scaled

    def latency_errors(calibration):
        rows = compare(log, "dgx-a100", calibration=calibration)
        return np.median([abs(row.error) for row in rows if row.record.nbytes < 1 << 16])

    assert latency_errors(scaled) < latency_errors(shipped("dgx-a100")) / 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("noise: 0.", "noise: -0."), "noise and nodes must be above 0"),
        (("  base:", "  basis:"), "parameters: bas"),
        (("tree ll 0", "tree ll x"), "correction cannot be read"),
        (("    launch_us 1", "    lunch_us 1"), "correlations cannot be read"),
    ],
)
def test_a_file_that_was_tampered_with_is_refused(change, message, tmp_path):
    path = tmp_path / "broken.yaml"
    shipped("abci-v100").write(path)
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change, 1))
    with pytest.raises(CalibrationError, match=message):
        read(path)


def test_pick_names_the_runner_up_and_leaves_the_default_where_nothing_is_certain():
    choice = ringside.AlgorithmChoice(
        collective="all_reduce", cluster="mn5-h100", nodes=(4, 16),
        size=tuple(1 << power for power in range(12, 30, 2)),
    )  # fmt: skip
    picks = choice.ask().picks
    for one in picks:
        assert one.next_best
        assert one.too_close == (one.margin < one.error)
        assert one.advised in (one.pair, one.default)
    sure = [one for one in picks if one.advised != one.default]
    assert sure
    assert all(one.loss >= one.loss_error for one in sure)
    one = replace(choice, nodes=(4,), size=(1 << 20,))
    by_algorithm = replace(one, by="algorithm").ask().picks[0]
    assert by_algorithm.next_best[0] != by_algorithm.algorithm
    with pytest.raises(ValueError, match="write pair or algorithm"):
        print(replace(one, by="luck").ask().picks)
