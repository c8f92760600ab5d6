"""Real hangs over Gloo: the guilty rank and its call are named by the dumps."""

import re

import pytest

from tests.processes import python
from tests.tiers import slow_or_proof


@pytest.mark.gloo
@pytest.mark.parametrize("seeds", slow_or_proof([f"{seed} {seed + 1}" for seed in range(40)]))
def test_the_guilty_rank_and_its_call_are_named(seeds):
    out = python("-m", "tests.real.hangs.hanging", *seeds.split()).stdout
    assert re.search(r"named 4 of 4, ", out), out
