"""Decoders of one's own: YAML files, and configurations of Hugging Face."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from ringside.sim.workload.decoder import DECODERS
from ringside.sim.workload.decoder_file import is_decoder_file, read_decoder
from ringside.sim.workload.models import find_model

SMALL = {"layers": 4, "width": 512, "heads": 8, "vocabulary": 1000, "sequence": 256}

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192, "tie_word_embeddings": False, "rope_theta": 5e5,
}  # fmt: skip
"""The sizes of meta-llama/Meta-Llama-3-8B."""

DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "n_shared_experts": 1,
    "n_routed_experts": 256, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "kv_lora_rank": 512,
    "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
    "vocab_size": 129280, "max_position_embeddings": 163840,
}  # fmt: skip
"""The sizes of deepseek-ai/DeepSeek-V3."""

CONFIGS: dict[str, dict[str, Any]] = {
    "llama3-8b": LLAMA,
    "mixtral-8x7b": LLAMA | {
        "model_type": "mixtral", "vocab_size": 32000, "max_position_embeddings": 32768,
        "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None,
    },
    "gpt2-xl": {
        "model_type": "gpt2", "n_layer": 48, "n_embd": 1600, "n_head": 25, "n_positions": 1024,
        "vocab_size": 50257, "n_inner": None,
    },
    "deepseek-v3": DEEPSEEK,
    "deepseek-v2": DEEPSEEK | {
        "model_type": "deepseek_v2", "hidden_size": 5120, "intermediate_size": 12288,
        "moe_intermediate_size": 1536, "num_hidden_layers": 60, "n_shared_experts": 2,
        "n_routed_experts": 160, "num_experts_per_tok": 6, "first_k_dense_replace": 1, "vocab_size": 102400,
    },
}  # fmt: skip


def written(tmp_path: Path, content: Any, name: str = "own.yaml") -> str:
    """Write a file, and return its path."""
    path = tmp_path / name
    path.write_text(json.dumps(content) if name.endswith(".json") else yaml.safe_dump(content))
    return str(path)


@pytest.mark.parametrize("name", DECODERS)
def test_a_file_of_all_fields_is_the_decoder(tmp_path: Path, name: str) -> None:
    assert find_model(written(tmp_path, asdict(DECODERS[name]))) == DECODERS[name]


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_of_hugging_face_is_the_named_decoder(tmp_path: Path, name: str) -> None:
    found, known = read_decoder(written(tmp_path, CONFIGS[name], "config.json")), DECODERS[name]
    assert replace(found, name=name, sequence=known.sequence, longest=known.longest) == known
    assert (found.name, found.sequence) == (tmp_path.name, min(4096, CONFIGS[name].get("n_positions", 4096)))


def test_what_follows_from_other_fields_may_be_left_out(tmp_path: Path) -> None:
    small = read_decoder(written(tmp_path, SMALL))
    assert (small.name, small.key_value_heads, small.hidden) == ("own", 8, 2048)
    gated = read_decoder(written(tmp_path, SMALL | {"gated": True, "positions": 256}))
    assert (gated.hidden, gated.longest) == (1344, 256)  # 8/3 x 512 in multiples of 64


def test_a_file_takes_a_sequence_and_a_shape_behind_the_colon(tmp_path: Path) -> None:
    path = written(tmp_path, SMALL)
    assert read_decoder(f"{path}:128,layers=2") == replace(read_decoder(path), sequence=128, layers=2)


def test_a_sliding_window_is_the_longest_sequence(tmp_path: Path) -> None:
    config = LLAMA | {"model_type": "mistral", "sliding_window": 2048}
    assert read_decoder(written(tmp_path, config, "config.json")).longest == 2048


def test_timed_layers_and_measured_steps_are_no_decoders(tmp_path: Path) -> None:
    assert not is_decoder_file(written(tmp_path, {"name": "a", "parameters": {}, "layers": []}))
    assert not is_decoder_file(written(tmp_path, {"schema": "ringside"}, "steps.json"))
    assert not is_decoder_file(str(tmp_path / "missing.yaml"))


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (
            {"foo": 1},
            "a.yaml",
            "neither a decoder nor timed layers; write layers, width, heads, ",
        ),
        ({"layers": 4}, "a.yaml", "width: is missing"),
        (SMALL | {"widths": 1}, "a.yaml", "widths: is not known; allowed: name, layers, width.*mean width"),
        (SMALL | {"norm": "batch"}, "a.yaml", "norm: 'batch': input should be 'layer' or 'rms'"),
        (SMALL | {"layers": 0}, "a.yaml", "layers: 0: input should be greater than or equal to 1"),
        (SMALL | {"heads": 7}, "a.yaml", "a width of 512 does not divide by 7 heads"),
        (SMALL | {"experts": {"count": 2, "active": 3, "hidden": 1}}, "a.yaml", "3 of 2 experts"),
        (LLAMA | {"model_type": "mamba"}, "a.json", "unknown model_type 'mamba'; write llama "),
        ({"model_type": "gpt2"}, "a.json", "n_layer is missing"),
        (LLAMA | {"hidden_size": "wide"}, "a.json", "width: 'wide': input should be a valid integer"),
        (DEEPSEEK | {"q_lora_rank": None}, "a.json", "q_lora_rank is null"),
        (DEEPSEEK | {"moe_layer_freq": 0}, "a.json", "moe_layer_freq is 0; write 1 or more"),
    ],
)
def test_a_wrong_file_says_what_to_write(tmp_path: Path, content: Any, name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_model(written(tmp_path, content, name))
