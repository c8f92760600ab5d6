"""Trainings that fit into a GPU, are tight, or do not fit, and with what chance."""

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.training.memory.room import (
    CONTEXT,
    DRIVER,
    FITS,
    LIKELY,
    RESERVED,
    TIGHT,
    TOO_LARGE,
    UNLIKELY,
    fit_of,
    room_of,
)  # fmt: skip
from ringside.sim.workload.devices import DEVICES, device

VERDICTS = (FITS, TIGHT, TOO_LARGE)
GIB = 1 << 30


@given(st.sampled_from([*DEVICES.values()]), st.floats(0, 1.2), st.floats(0, 1.2), st.integers(0, 4 * GIB))
def test_more_never_fits_better_and_the_verdict_is_the_chances(gpu, share, other, nccl):
    room = room_of(gpu, nccl=nccl)
    low, high = sorted((int(share * gpu.memory), int(other * gpu.memory)))
    assert room.chance(low) >= room.chance(high)
    assert VERDICTS.index(room.verdict(low)) <= VERDICTS.index(room.verdict(high))
    assert (room.margin(low) >= 0) == (room.verdict(low) == FITS)
    if abs(room.margin(high)) > 1:
        assert (room.verdict(high) == FITS) == (room.chance(high) >= LIKELY)
    assert (room.verdict(high) == TOO_LARGE) == (room.chance(high) < UNLIKELY or high > gpu.memory)
    assert room.verdict(int(0.6 * gpu.memory) - nccl) == FITS


@given(st.sampled_from([*DEVICES]), st.floats(0, 0.99), st.floats(0, 1.2))
def test_a_reserve_that_is_said_is_the_whole_of_it(name, kept, held):
    gpu = device(name)
    reserve, nbytes = int(kept * gpu.memory), int(held * gpu.memory)
    room = room_of(gpu, reserve)
    assert room.reserve == reserve
    assert (room.verdict(nbytes) == FITS) == (nbytes + reserve <= gpu.memory)
    assert room.verdict(nbytes) != TIGHT or reserve
    assert room.chance(nbytes) == room_of(gpu).chance(nbytes)


def test_half_of_the_trainings_fit_whose_usual_reserve_is_just_there():
    gpu = device("h100")
    nccl = {"tensor": 2 * GIB, "shard": GIB}
    left = gpu.memory - int(DRIVER * gpu.memory) - CONTEXT - 3 * GIB
    nbytes = int(left / (1 + 0.0456))
    fit = fit_of(nbytes, gpu, None, nccl, "te")
    assert log(left / nbytes) == pytest.approx(RESERVED, abs=1e-3)
    assert fit.chance == pytest.approx(0.5, abs=0.02)
    assert fit.verdict == TIGHT
    assert fit.beside["nccl"] == 3 * GIB
    assert sum(fit.beside.values()) + nbytes == pytest.approx(gpu.memory, rel=1e-3)


def test_stacks_without_measured_peaks_need_more_room():
    gpu = device("a100")
    reserves = [room_of(gpu, stack=stack).reserve for stack in ("te", "eager", None)]
    assert reserves[0] < reserves[1] == reserves[2]
    assert [round(reserve / GIB, 1) for reserve in reserves] == [7.5, 9.9, 9.9]


def test_a_gpu_offers_what_its_driver_offers():
    assert device("h100").memory == 81559 << 20
    shares = {name: round(room_of(gpu).reserve / gpu.memory, 2) for name, gpu in DEVICES.items()}
    assert all(0.1 < share < 0.25 for share in shares.values())


def test_a_reserve_of_more_than_there_is_is_refused():
    with pytest.raises(ValueError, match="bytes; write fewer"):
        room_of(device("t4"), 1 << 40)
