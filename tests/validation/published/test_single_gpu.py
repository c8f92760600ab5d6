import pytest

from ringside.sim.compute.doubt import band
from ringside.sim.workload.architecture import SHARES, TENSOR_CORES
from ringside.validation.published.training.ddp import single_gpu
from ringside.validation.published.training.ddp.single_gpu import absolute, left_out, rows, table
from ringside.validation.scorecard.judged import JudgedRow, score


def test_rows_are_the_published_ones() -> None:
    cells = {(one.source, one.model, one.gpu, one.precision, one.batch): one.samples_per_s for one in rows()}
    assert cells["lambda", "bert-large:384,predicted=0", "rtx3090", "float16", 28] == 52
    assert cells["dle-paddle", "resnet50", "a100", "float16", 256] == 2711
    assert cells["DeepLearningExamples", "resnet50", "v100", "float32", 128] == 356
    assert len(list(rows())) == 144


@pytest.mark.slow
def test_one_gpu_comes_out_within_an_eighth_in_the_median() -> None:
    errors = score("", "", absolute()).errors
    assert errors.median < 0.13
    assert errors.p90 < 0.26
    assert abs(errors.bias) < 0.03
    width = band(measured=False, named=False, is_decoder=False)

    def inside(some: list[JudgedRow]) -> float:
        return sum(1 / width < row.predicted / row.measured < width for row in some) / len(some)

    assert 0.75 < inside(absolute()) < 0.92
    by_source = {source: [row for row in absolute() if row.series == source] for source in
                 dict.fromkeys(row.series for row in absolute())}  # fmt: skip
    assert all(inside(some) > 0.5 for some in by_source.values() if len(some) >= 5)


@pytest.mark.proof
def test_shares_chosen_by_other_sources_do_nearly_as_well() -> None:
    errors = score("", "", left_out()).errors
    assert errors.median < 0.145
    assert errors.p90 < 0.27
    text = table(absolute())
    assert "# model bert-large: 54 rows" in text
    assert "# all shares chosen by other sources: 144 rows" in text


@pytest.mark.proof
@pytest.mark.parametrize(("plain", "usual"), [(True, SHARES["float32"]), (False, TENSOR_CORES)])
def test_the_shares_are_those_that_all_rows_choose(plain: bool, usual: float) -> None:
    assert single_gpu._fitting("", plain) == pytest.approx(usual, abs=0.05)
