"""Experts that a router chooses have as many tokens each, whatever way a script finds them."""

from collections import Counter
from pathlib import Path

import pytest

from ringside.real.questions.recording import record
from ringside.real.record.rules.routing import NOTE
from ringside.sim.compute.kernels import Gemm
from ringside.sim.recorded.kernels import kernels
from tests.tiers import slow_or_proof

SCRIPT = str(Path(__file__).parents[1] / "scripts/routed.py")

WIDTH, TOKENS, EXPERTS, CHOSEN = 32, 48, 8, 2

CASES = [("spread", 4), ("masks", 1), ("rows", 1), ("grouped", 1)]


@pytest.mark.parametrize(("how", "ranks"), slow_or_proof(CASES))
def test_every_expert_has_as_many_tokens(how, ranks):
    job = record(SCRIPT, how, ranks=ranks)
    assert NOTE in job.notes
    (one,) = job.recorded
    assert one.unsteady == ""
    count, rows = EXPERTS // ranks, TOKENS * CHOSEN // EXPERTS * ranks
    products = Counter[int]()
    sent = []
    for entry in one.entries:
        action = one.actions[entry.action]
        if action.kind == "call":
            sent.append(action.nbytes)
        elif action.kind == "operator":
            for kernel in kernels(action):
                if isinstance(kernel, Gemm) and EXPERTS not in kernel[:3]:
                    products[kernel.m * kernel.n * kernel.k] += kernel.products
    # two products forward; of each two gradients
    assert products == {rows * WIDTH * WIDTH: 6 * count}
    if how == "spread":
        assert sent == [8 * EXPERTS] + 4 * [2 * TOKENS * CHOSEN * WIDTH]
