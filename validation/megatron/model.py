"""The decoder that Megatron-LM's arguments describe.

Defaults are those of ``megatron/training/arguments.py`` at core_v0.12.0: `validate_args` for
``--ffn-hidden-size``, ``--kv-channels`` and ``--moe-ffn-hidden-size``, the parser's for all others.
"""

import ast
import operator
from collections.abc import Mapping
from math import ceil
from typing import Any

from ringside.sim.workload.decoder import MOST_ELSE
from ringside.validation.megatron.arguments import Arguments

VOCABULARIES = {"GPT2BPETokenizer": 50257}
"""Entries of tokenizers that need no other argument."""

Shape = dict[str, Any]


def shape_of(given: Arguments) -> Shape:
    """Return the fields of a `Decoder`; raise ValueError for arguments without a shape."""
    layers, width, heads = (
        given.count(name) for name in ("--num-layers", "--hidden-size", "--num-attention-heads")
    )
    is_gated, groups = given.has("--swiglu"), given.has("--group-query-attention")
    is_rotary = given.has("--use-rotary-position-embeddings") or given.has("--no-position-embedding")
    learned = given.text("--position-embedding-type", "learned_absolute") == "learned_absolute"
    shape: Shape = {
        "name": given.name,
        "layers": layers,
        "width": width,
        "heads": heads,
        "key_value_heads": given.count("--num-query-groups", 1) if groups else heads,
        "hidden": given.count(
            "--ffn-hidden-size", int(4 * width * 2 / 3 / 64) * 64 if is_gated else 4 * width
        ),
        "vocabulary": padded_vocabulary(given),
        "sequence": given.count("--seq-length"),
        "gated": is_gated,
        "norm": "rms" if given.text("--normalization", "LayerNorm") == "RMSNorm" else "layer",
        "biases": not given.has("--disable-bias-linear"),
        "positions": given.count("--max-position-embeddings") if learned and not is_rotary else 0,
        "tied": not given.has("--untie-embeddings-and-output-weights"),
        "predicted": given.count("--mtp-num-layers", 0),
    }
    shape["longest"] = shape["positions"] or MOST_ELSE
    if given.has("--multi-latent-attention"):
        shape |= {"latent": _latent(given), "key_value_heads": heads}
    else:
        shape |= {"head": given.count("--kv-channels", 0), "qk_norm": given.has("--qk-layernorm")}
    if given.has("--num-experts"):
        shape["experts"] = _experts(given, layers, shape["hidden"])
    return shape


def padded_vocabulary(given: Arguments) -> int:
    """Return the vocabulary as the embedding has it, a multiple for each tensor-parallel rank.

    As `_vocab_size_with_padding` of ``megatron/training/tokenizer/tokenizer.py``; a ``NullTokenizer`` adds
    the end of a document.
    """
    kind = given.text("--tokenizer-type", "GPT2BPETokenizer" if given.has("--merge-file") else "")
    size = VOCABULARIES.get(kind) or given.count("--vocab-size", 0)
    if not size:
        raise ValueError(
            f"the vocabulary of {kind or 'the tokenizer'} is not known; write --vocab-size into the file"
        )
    multiple = given.count("--make-vocab-size-divisible-by", 128) * given.count(
        "--tensor-model-parallel-size", 1
    )
    return ceil((size + (kind == "NullTokenizer")) / multiple) * multiple


def _latent(given: Arguments) -> Mapping[str, int]:
    if not given.has("--q-lora-rank"):
        raise ValueError("--q-lora-rank is missing; latent attention is modelled with narrow queries alone")
    return {
        "query_rank": given.count("--q-lora-rank"),
        "key_value_rank": given.count("--kv-lora-rank"),
        "plain": given.count("--qk-head-dim", 128),
        "rotary": given.count("--qk-pos-emb-head-dim", 64),
        "value": given.count("--v-head-dim", 128),
    }


def _experts(given: Arguments, layers: int, hidden: int) -> Mapping[str, Any]:
    own = given.count("--moe-ffn-hidden-size", hidden)
    dense, every = _with_experts(given.text("--moe-layer-freq", "1"), layers)
    return {
        "count": given.count("--num-experts"),
        "active": given.count("--moe-router-topk", 2),
        "hidden": own,
        "shared_hidden": given.count("--moe-shared-expert-intermediate-size", 0),
        "dense_layers": dense,
        "every": every,
        "biased": given.has("--moe-router-enable-expert-bias"),
    }


def _with_experts(pattern: str, layers: int) -> tuple[int, int]:
    """Return the number of first layers without experts, and that every n-th of the others has them."""
    if pattern.isdecimal() and int(pattern):
        return 0, int(pattern)
    try:
        flags = _listed(ast.parse(pattern, mode="eval").body)
    except (SyntaxError, TypeError):
        flags = []
    dense = flags.index(1) if 1 in flags else layers
    if len(flags) != layers or flags[dense:] != [1] * (layers - dense):
        raise ValueError(
            f"--moe-layer-freq {pattern} is not modelled with {layers} layers; write N, or a list of zeros "
            "before ones, one for each layer"
        )
    return dense, 1


def _listed(node: ast.expr) -> Any:
    """Return the value of ``[0]*3+[1]*11``."""
    operators = {ast.Add: operator.add, ast.Mult: operator.mul}
    match node:
        case ast.Constant(value=int()):
            return node.value
        case ast.List():
            return [_listed(one) for one in node.elts]
        case ast.BinOp() if type(node.op) in operators:
            return operators[type(node.op)](_listed(node.left), _listed(node.right))
    raise TypeError
