"""A decoder of one's own is trained, searched and changed as the named one of its shape."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from ringside.sim.workload.decoder import decoder
from ringside.validation.questions.layout_search import LayoutSearch
from ringside.validation.questions.step_time import train
from ringside.validation.questions.what_if import WhatIf

NAMED = "llama3-8b:512,layers=4"


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.yaml"
    path.write_text(yaml.safe_dump(asdict(decoder(NAMED))))
    return str(path)


@pytest.mark.parametrize(
    "words",
    [
        {"batch": 2},
        {"strategy": "fsdp", "batch": 2, "checkpointing": "full"},
        {"strategy": "distributed_optimizer", "tp": 2, "sequence_parallel": True, "cp": 2, "batch": 2},
        {"tp": 2, "pp": 2, "schedule": "interleaved1f1b", "batch": 4},
    ],
)
def test_a_step_is_that_of_the_named_one(own: str, words: dict[str, Any]) -> None:
    found, known = (train(model, "dgx-h100:1", **words) for model in (own, NAMED))
    assert found.step_s == known.step_s
    assert getattr(found, "stages", None) == getattr(known, "stages", None)


def test_a_step_takes_a_sequence_as_an_option(own: str) -> None:
    assert train(own, "dgx-h100:1", batch=2, seq=256) == train(
        "llama3-8b:256,layers=4", "dgx-h100:1", batch=2
    )


def test_a_search_and_a_what_if_are_those_of_the_named_one(own: str) -> None:
    found, known = (
        LayoutSearch(model=model, cluster="dgx-h100:1", ranks=2, fixed=["strategy"], strategy="fsdp").ask()
        for model in (own, NAMED)
    )
    assert found.rows == known.rows
    changed, usual = (
        WhatIf(what=model, cluster="dgx-h100:1", batch=2, changes=["nodes=2x"]).ask()
        for model in (own, NAMED)
    )
    assert changed.rows == usual.rows
