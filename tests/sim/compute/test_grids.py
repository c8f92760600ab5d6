"""Measured rates: interpolation, the shipped grids, and files of one's own."""

import json
import time
from pathlib import Path

import pytest

from ringside.sim.compute.grids import (
    FOLDER,
    SAME_CHIP,
    ProductRates,
    attention_rates,
    product_rates,
    read_rates,
)
from ringside.sim.compute.interpolation import Grid, Points
from ringside.topologies.hardware import GPUS

SHIPPED = sorted(path.stem for path in (FOLDER / "products").glob("*.csv"))
PRECISIONS = ("bf16", "fp8", "fp8_block", "nvfp4")
RATES = {
    "schema": "ringside.compute/1", "device": "mine", "source": "me", "date": "2026-11-26",
    "products": {"bf16": [[128, 128, 128, 1e12], [512, 512, 512, 4e12]]},
    "grouped": {"bf16": [[8, 64, 128, 128, 5e11]]},
    "attention": [[8, 1024, 128, 2e12]], "streaming": 1e11,
}  # fmt: skip


def test_a_grid_is_linear_in_the_logarithms_and_ends_with_its_axes():
    figures = [(m * 100 + n * 10 + k) for m in (1, 2) for n in (1, 2) for k in (1, 2, 3)]
    grid = Grid(((1, 4), (2, 8), (16, 32, 64)), figures)
    assert grid.at(1, 2, 16) == 111
    assert grid.at(4, 8, 64) == 223
    assert grid.at(2, 2, 16) == 161
    assert grid.at(2, 4, 32) == pytest.approx(167)
    assert (grid.at(100, 100, 1000), grid.at(1, 1, 1)) == (223, 111)


def test_points_are_met_and_lie_between_their_neighbours_elsewhere():
    points = Points([(16, 16, 16), (64, 64, 64), (1024, 1024, 1024)], [1.0, 2.0, 9.0])
    assert points.at(64, 64, 64) == pytest.approx(2.0)
    assert points.at(32, 32, 32) == pytest.approx(1.5, abs=0.05)
    assert points.at(1, 1, 1) == pytest.approx(1.0)


@pytest.mark.parametrize("gpu", SHIPPED)
def test_shipped_rates_are_below_the_peaks_and_rise_with_the_size(gpu):
    for precision in PRECISIONS:
        rates = product_rates(gpu, precision)
        if rates is None:
            continue
        peaks = {**GPUS[gpu].tflops}
        most = peaks["fp8" if precision == "fp8_block" else precision] * 1e12
        small, large = rates.flops_per_s(256, 256, 256), rates.flops_per_s(8192, 8192, 8192)
        assert 0 < small < large / 5
        assert 0.25 * most < large < most
    attention = attention_rates(gpu)
    short, long = (attention.flops_per_s(32, sequence, 128) for sequence in (1024, 8192))
    assert 1.2 * short < long < GPUS[gpu].tflops["bf16"] * 1e12


def test_the_figures_are_those_that_were_measured():
    """A100: 267 and 255 TFLOP/s by two runtimes; the faster counts."""
    assert product_rates("a100", "bf16").flops_per_s(4096, 4096, 4096) == pytest.approx(267e12, rel=0.01)
    assert product_rates("b200", "fp8_block").flops_per_s(2048, 4096, 4096) == pytest.approx(
        2078e12, rel=0.01
    )
    assert attention_rates("h100").flops_per_s(32, 4096, 128) == pytest.approx(395e12, rel=0.01)


def test_gpus_and_precisions_without_a_grid_have_none():
    assert [product_rates(*case) for case in (("v100", "bf16"), ("a100", "fp8"), ("h100", "nvfp4"))] == [
        None
    ] * 3
    assert attention_rates("t4") is None
    assert len(SHIPPED) == 7
    assert set(SHIPPED) <= set(GPUS)


def test_the_same_chip_has_the_same_peaks():
    for gpu, measured in SAME_CHIP.items():
        one, other = GPUS[gpu], GPUS[measured]
        assert (one.tflops, one.multiprocessors) == (other.tflops, other.multiprocessors)
        assert product_rates(gpu, "fp16") == product_rates(measured, "bf16")


def test_a_thousand_new_shapes_take_milliseconds():
    rates = product_rates("h100", "bf16")
    begin = time.process_time()
    for size in range(1000):
        rates.flops_per_s(4096 + size, 5000 + size, 1500 + size)
    assert time.process_time() - begin < 0.05


def test_a_file_of_rates_is_read(written):
    rates = read_rates(written(json.dumps(RATES)))
    assert rates.device == "mine"
    assert rates.products["bf16"].flops_per_s(512, 512, 512) == pytest.approx(4e12)
    assert rates.grouped["bf16"].flops_per_s(8, 64, 128, 128) == pytest.approx(5e11)
    assert rates.attention.flops_per_s(8, 1024, 128) == pytest.approx(2e12)
    assert rates.streaming == 1e11


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": "ringside.ddp/1"}, "no ringside.compute/1 file; make one with ringside measure compute"),
        ({"products": {"bf17": [[1, 1, 1, 1.0]]}}, "products.bf17"),
        (
            {"products": {"bf16": [[128, 128, 128, -1e12]]}},
            "products.bf16.0.3: Input should be greater than 0",
        ),
        ({"products": {"bf16": [[0, 128, 128, 1e12]]}}, "products.bf16.0.0: Input should be greater than 0"),
        ({"products": {"bf16": [[128, 128, 1e12]]}}, "products.bf16.0.3: Field required"),
        ({"products": {"bf16": []}}, "products.bf16"),
        ({"products": {}}, "products"),
        ({"attention": [[8, 1024, 128]]}, "attention.0.3"),
        ({"streaming": float("inf")}, "streaming"),
        ({"streams": 1e11}, "streams"),
    ],
)
def test_a_damaged_file_is_refused_with_the_place(written, change, says):
    path = written(json.dumps(RATES | change))
    with pytest.raises(ValueError) as error:  # noqa: PT011 - its text is compared
        read_rates(path)
    assert str(error.value).startswith(f"{path}: ")
    assert says in str(error.value)


@pytest.mark.parametrize("name", ["device", "source", "date", "products"])
def test_a_missing_key_is_named(written, name):
    path = written(json.dumps({key: value for key, value in RATES.items() if key != name}))
    with pytest.raises(ValueError, match=f"{name}: Field required"):
        read_rates(path)


@pytest.mark.parametrize("text", ["", "[]", "m,n,k\n1,2,3\n", "{}", "[" * 10_000])
def test_another_file_is_refused(written, text):
    with pytest.raises(ValueError, match="make one with ringside measure compute"):
        read_rates(written(text))


def test_no_file_is_refused():
    with pytest.raises(ValueError, match="cannot be read"):
        read_rates(Path("nowhere.json"))


def test_rates_are_those_of_any_figures():
    rates = ProductRates(Points([(8, 8, 8)], [3.0]))
    assert rates.flops_per_s(1, 2, 3) == pytest.approx(3.0)
