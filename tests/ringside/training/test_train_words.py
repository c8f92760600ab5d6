"""Options of ``ringside train`` with values of more than one number."""

import numpy as np
import pytest

from ringside.validation.questions.models import SAMPLE_UNITS, TOKEN_UNITS, measured_rate, tokens_of


def test_a_throughput_in_tokens_is_one_in_samples_of_so_many() -> None:
    """For any model of tokens, X tokens/s are X / tokens samples/s, whatever the rate and its unit's word."""
    random = np.random.default_rng(27)
    for _ in range(100):
        tokens, ranks = int(random.integers(16, 9000)), int(random.integers(1, 5000))
        model = f"{random.choice(['gpt2', 'llama3-8b', 'bert-base', 'mixtral-8x7b'])}:{min(tokens, 500)}"
        each, rate = min(tokens, 500), float(f"{random.uniform(1e-2, 1e7):.6g}")
        for unit in TOKEN_UNITS:
            assert measured_rate(f"{rate!r}{unit}/s@{ranks}", model) == (rate / each, ranks)
        for unit in SAMPLE_UNITS:
            assert measured_rate(f"{rate!r}{unit}/s@{ranks}", model) == (rate, ranks)
        assert measured_rate(f"{rate!r}@{ranks}", model) == (rate, ranks)


def test_tokens_are_those_of_the_size_that_is_said() -> None:
    assert (tokens_of("llama3-8b"), tokens_of("llama3-8b:4096")) == (8192, 4096)
    assert measured_rate("116000tok/s@16", "llama3-8b") == (116000 / 8192, 16)
    assert tokens_of("resnet50") is None


@pytest.mark.parametrize(
    ("text", "model", "message"),
    [
        ("116000tok/s@16", "resnet50", "counts tokens, but samples of resnet50 have none; write samples"),
        ("116000words/s@16", "gpt2", "counts words/s, an unknown unit; write one of samples/s"),
        ("116000tok/h@16", "gpt2", "invalid throughput '116000tok/h@16'; write RATE@RANKS"),
    ],
)
def test_other_units_are_refused_with_what_to_write(text: str, model: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measured_rate(text, model)
