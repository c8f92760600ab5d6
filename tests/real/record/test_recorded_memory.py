"""The memory of recordings is that of real runs: at a step's start, at its peak, and by torch's profiler."""

import pytest

from tests.real.record.recorded_memory import CASES, error, memory
from tests.tiers import slow_or_proof


@pytest.mark.gloo
@pytest.mark.parametrize(("case", "ranks"), slow_or_proof(CASES))
def test_memory_of_every_rank_is_that_of_a_real_run(case, ranks, tmp_path):
    for recorded, real, profiled in memory(case, ranks, tmp_path):
        assert error(recorded, real) < 0.02
        assert profiled == pytest.approx(recorded.rise, rel=0.02)
