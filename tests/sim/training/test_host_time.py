"""Time of a step in which GPUs wait for their hosts, which more GPUs do not shorten."""

import pytest

from ringside.validation.questions.step_time import StepTime

HOST_S = 0.25


@pytest.mark.parametrize("layout", [{}, {"strategy": "fsdp"}, {"tp": 2, "pp": 2}])
def test_a_step_is_longer_by_it_and_computes_no_longer(layout: dict[str, object]) -> None:
    question = {"model": "llama3-8b:512,layers=4", "cluster": "dgx-a100:1", "batch": 4, **layout}
    alone = StepTime(**question).step()
    waited = StepTime(**question, host_ms=1e3 * HOST_S).step()
    assert waited.step_s - alone.step_s == pytest.approx(HOST_S)


def test_it_weighs_more_where_ranks_have_less_to_do() -> None:
    def efficiency(host_ms: float | None) -> float:
        few, many = (
            StepTime(model="resnet50", cluster=f"dgx-a100:{nodes}", batch=batch, host_ms=host_ms).step()
            for nodes, batch in ((1, 64), (8, 8))
        )
        return few.step_s / (8 * many.step_s)

    assert efficiency(50) < efficiency(None)


def test_it_is_no_compute_of_a_stage() -> None:
    question = {"model": "llama3-8b:512,layers=4", "cluster": "dgx-a100:1", "batch": 4, "strategy": "fsdp"}
    alone, waited = (StepTime(**question, host_ms=wait and 1e3 * wait).step() for wait in (None, HOST_S))
    assert waited.stages[0].compute_s == pytest.approx(alone.stages[0].compute_s)
    assert waited.stages[0].bubble_s == pytest.approx(alone.stages[0].bubble_s + HOST_S)
