"""The shape of a decoder in a ``config.json`` of Hugging Face's transformers.

Names and defaults are those of transformers 4.57.1, ``models/*/configuration_*.py``. Bias vectors of queries,
keys and values alone, as Qwen2 has them, are left out: less than 0.01 % of its parameters. A sliding window
is the longest sequence: within it every token sees all before it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ringside.topologies.names import one_of

KEY = "model_type"
"""The key that tells a ``config.json`` from other files."""

SEQUENCE = 4096
"""Tokens of a sample, if the model takes as many."""

Config = Mapping[str, Any]
Shape = dict[str, Any]


def shape_of(config: Config) -> Shape:
    """Return the fields of a decoder's file; raise ValueError for a model that a decoder cannot express."""
    kind = config[KEY]
    if kind not in _KINDS:
        raise ValueError(f"unknown {KEY} {kind!r}; write {one_of(_KINDS, str(kind))}")
    try:
        shape = _KINDS[kind](config)
    except KeyError as error:
        raise ValueError(f"{error.args[0]} is missing") from None
    longest = shape["longest"]
    return {"sequence": min(SEQUENCE, longest) if isinstance(longest, int) else SEQUENCE, **shape}


def _llama(config: Config) -> Shape:
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    heads, width = config["num_attention_heads"], config["hidden_size"]
    shape = {
        "layers": config["num_hidden_layers"],
        "width": width,
        "heads": heads,
        "key_value_heads": config.get("num_key_value_heads") or heads,
        "hidden": config["intermediate_size"],
        "vocabulary": config["vocab_size"],
        "longest": window or config["max_position_embeddings"],
        "gated": True,
        "norm": "rms",
        "biases": False,
        "tied": config.get("tie_word_embeddings", False),
    }
    head = config.get("head_dim")
    return shape if head is None or head * heads == width else {**shape, "head": head}


def _mixtral(config: Config) -> Shape:
    experts = {
        "count": config["num_local_experts"],
        "active": config["num_experts_per_tok"],
        "hidden": config["intermediate_size"],
    }
    return {**_llama(config), "experts": experts}


def _qwen3(config: Config) -> Shape:
    return {**_llama({"head_dim": 128, **config}), "qk_norm": True}


def _qwen3_moe(config: Config) -> Shape:
    dense = config.get("mlp_only_layers") or []
    if config.get("decoder_sparse_step", 1) != 1 or dense != [*range(len(dense))]:
        raise ValueError(
            "decoder_sparse_step or mlp_only_layers has layers without experts behind such with experts, "
            "which is not modelled; write decoder_sparse_step 1 and mlp_only_layers of the first layers"
        )
    experts = {
        "count": config["num_experts"],
        "active": config["num_experts_per_tok"],
        "hidden": config["moe_intermediate_size"],
        "dense_layers": len(dense),
    }
    return {**_llama(config), "qk_norm": True, "experts": experts}


def _gemma(config: Config) -> Shape:
    return _llama({"head_dim": 256, "tie_word_embeddings": True, **config})


def _gpt2(config: Config) -> Shape:
    return {
        "layers": config["n_layer"],
        "width": config["n_embd"],
        "heads": config["n_head"],
        "hidden": config.get("n_inner") or 4 * config["n_embd"],
        "vocabulary": config["vocab_size"],
        "longest": config["n_positions"],
        "positions": config["n_positions"],
        "tied": config.get("tie_word_embeddings", True),
    }


def _gpt_neox(config: Config) -> Shape:
    return {**_llama(config), "gated": False, "norm": "layer", "biases": config.get("attention_bias", True)}


def _deepseek(config: Config) -> Shape:
    if config["q_lora_rank"] is None:
        raise ValueError(
            "q_lora_rank is null; latent attention is modelled with narrow queries, write a width"
        )
    every = config.get("moe_layer_freq", 1)
    if not isinstance(every, int) or every < 1:
        raise ValueError(f"moe_layer_freq is {every!r}; write 1 or more")
    latent = {
        "query_rank": config["q_lora_rank"],
        "key_value_rank": config["kv_lora_rank"],
        "plain": config["qk_nope_head_dim"],
        "rotary": config["qk_rope_head_dim"],
        "value": config["v_head_dim"],
    }
    experts = {
        "count": config["n_routed_experts"],
        "active": config["num_experts_per_tok"],
        "hidden": config["moe_intermediate_size"],
        "shared_hidden": (config.get("n_shared_experts") or 0) * config["moe_intermediate_size"],
        "dense_layers": -(-config["first_k_dense_replace"] // every) * every,
        "every": every,
        "biased": config[KEY] == "deepseek_v3",
    }
    shape = _llama({**config, "head_dim": None})
    return {**shape, "key_value_heads": shape["heads"], "latent": latent, "experts": experts}


_KINDS: dict[str, Callable[[Config], Shape]] = {
    "llama": _llama,
    "mistral": _llama,
    "mixtral": _mixtral,
    "qwen2": _llama,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma": _gemma,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
}
"""Shapes by ``model_type``."""
