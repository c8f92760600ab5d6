"""MSCCL's XML is run by an interpreter of its own (`msccl_runtime`), to the right sums in any order."""

import random

import pytest

from sim.algorithms import ALGORITHMS, schedule
from sim.collective import Collective
from sim.formats import FormatError
from sim.formats.msccl_write import dumps
from tests.sim.formats.msccl_runtime import outcome

KINDS = [(name, kind) for name, kinds in ALGORITHMS.items() for kind in kinds if kind != "sendrecv"]


def right(text, *, in_place, seed=0):
    for got, wanted in outcome(text, random.Random(seed), in_place=in_place):
        assert got == wanted


@pytest.mark.parametrize(("algorithm", "kind"), KINDS)
def test_every_schedule_runs_to_the_right_result(algorithm, kind):
    for ranks in (1, 2, 3, 4, 5, 7, 8, 13):
        for nbytes in (0, 64 * ranks, 20_000 * ranks):
            text = dumps(schedule(algorithm, Collective(kind, ranks, nbytes, itemsize=4)))
            right(text, in_place=False, seed=ranks)
            if kind != "all_to_all":
                right(text, in_place=True, seed=nbytes)
