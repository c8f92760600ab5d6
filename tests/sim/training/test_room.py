"""Trainings that fit into a GPU, are tight, or do not fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.training.memory.room import FITS, TIGHT, TOO_LARGE, Room, room_of
from ringside.sim.workload.devices import DEVICES, device

VERDICTS = (FITS, TIGHT, TOO_LARGE)


@given(st.sampled_from([*DEVICES.values()]), st.floats(0, 1.2), st.floats(0, 1.2))
def test_more_never_fits_better_and_what_a_gpu_does_not_offer_fits_nowhere(gpu, share, other):
    """The verdict only falls as more is held; the margin is positive just where it fits."""
    room = room_of(gpu)
    low, high = sorted((int(share * gpu.memory), int(other * gpu.memory)))
    assert VERDICTS.index(room.verdict(low)) <= VERDICTS.index(room.verdict(high))
    assert (room.margin(low) >= 0) == (room.verdict(low) == FITS)
    assert room.verdict(gpu.memory) == TOO_LARGE
    assert room.verdict(int(0.99 * gpu.memory)) != FITS
    assert room.verdict(int(0.70 * gpu.memory)) == FITS


@given(st.sampled_from([*DEVICES]), st.floats(0, 0.99), st.floats(0, 1.2))
def test_a_reserve_that_is_said_is_the_whole_of_it(name, kept, held):
    gpu = device(name)
    reserve, nbytes = int(kept * gpu.memory), int(held * gpu.memory)
    room = room_of(gpu, reserve)
    assert room == Room(gpu.memory, reserve)
    assert (room.verdict(nbytes) == FITS) == (nbytes + reserve <= gpu.memory)
    assert room.verdict(nbytes) != TIGHT or reserve


def test_a_gpu_offers_what_its_driver_offers():
    assert device("h100").memory == 81559 << 20
    shares = {name: round(room_of(gpu).reserve / gpu.memory, 2) for name, gpu in DEVICES.items()}
    assert all(0.15 < share < 0.4 for share in shares.values())
    assert shares.items() >= {
        "p40": 0.22, "p100": 0.25, "v100": 0.21, "t4": 0.25, "a100": 0.19, "a100-40gb": 0.22, "a10": 0.22,
        "rtx3090": 0.22, "rtx4090": 0.22, "l40s": 0.2, "h100": 0.21, "h200": 0.19, "b200": 0.19,
        "mi300x": 0.19, "titan-rtx": 0.22, "h100-96gb": 0.2,
    }.items()  # fmt: skip


def test_a_reserve_of_more_than_there_is_is_refused():
    with pytest.raises(ValueError, match="bytes; write fewer"):
        room_of(device("t4"), 1 << 40)
