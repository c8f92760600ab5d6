"""An option of the wrong type is refused in one place."""

import re
from typing import Any

import numpy as np
import pytest

from ringside.validation.questions.step_time import StepTime


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"batch": 2.5}, "`batch` 2.5; write a whole number"),
        ({"batch": True}, "`batch` True; write a whole number"),
        ({"tp": "2"}, "`tp` '2'; write a whole number"),
        ({"clip": "no"}, "`clip` 'no'; write True or False"),
        ({"attention_efficiency": "0.5"}, "`attention_efficiency` '0.5'; write a number"),
        ({"strategy": "fsdp", "param_dtype": ""}, "`param_dtype` ''; write a text that is not empty"),
        ({"measured": 5}, "`measured` 5; write a pair of numbers or a text that is not empty"),
        ({"accumulation": "2"}, "`accumulation` '2'; write a whole number"),
        ({"settings": 3}, "`settings` 3; write a mapping of names to values"),
        ({"calibration": 3}, "`calibration` 3; write a text that is not empty or a Calibration"),
    ],
)  # fmt: skip
def test_an_option_of_another_type_is_refused(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        StepTime(model="gpt2", cluster="dgx-a100:1", **option)


def test_numbers_of_numpy_and_whole_ones_for_others_are_taken() -> None:
    figures = {"batch": np.int64(4), "spread": 0, "compute_efficiency": np.float64(0.5)}
    assert StepTime(model="gpt2", cluster="dgx-a100:1", **figures).batch == 4


def test_an_empty_word_of_the_command_line_is_refused(refused: Any) -> None:
    words = "train --cluster dgx-a100:1 --model llama2-7b --strategy fsdp --param-dtype"
    error = refused(*words.split(), "")
    assert "--param-dtype ''; write a text that is not empty" in " ".join(error.split())
