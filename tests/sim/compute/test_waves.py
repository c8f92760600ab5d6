"""Tiles in waves: quantization, memory's limit, casts."""

import pytest

from ringside.sim.compute.waves import CAST_NBYTES, full_wave_share, wave_rate

GPU = {"peak": 100e12, "multiprocessors": 100, "bandwidth": 1e12, "itemsize": 2.0}


def test_a_full_wave_reaches_its_share():
    assert wave_rate(1280, 1280, 4096, **GPU, share=0.8) == pytest.approx(80e12)
    assert wave_rate(1280, 1280, 4096, **GPU) == pytest.approx(100e12 * full_wave_share(100e12, 100))


def test_one_tile_more_takes_another_wave():
    assert wave_rate(1281, 1280, 4096, **GPU, share=0.8) == pytest.approx(40e12, rel=0.002)


def test_few_flops_a_byte_are_as_slow_as_memory():
    flops, nbytes = 2 * 4096 * 4096 * 8, 2 * (2 * 4096 * 8 + 4096 * 4096)
    assert wave_rate(4096, 4096, 8, **GPU) == pytest.approx(flops / (nbytes / 1e12))


def test_narrow_factors_are_cast_first():
    gpu = GPU | {"itemsize": 1.0}
    seconds = 2 * 1280 * 1280 * 4096 / wave_rate(1280, 1280, 4096, **gpu, share=0.8)
    plain = 2 * 1280 * 1280 * 4096 / 80e12
    assert seconds == pytest.approx(plain + CAST_NBYTES * 1280 * 4096 / 1e12)


def test_fast_multiprocessors_reach_less_of_their_peak():
    shares = [full_wave_share(peak * 1e12, 100) for peak in (10, 100, 1000, 5000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(0.89, abs=0.005)
