"""Encoders, each on one sequence of ``sequence`` tokens, without dropout.

Tensors have the names and the order that Hugging Face's transformers gives them.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from ringside.sim.workload.architecture import Architecture, Module, assemble
from ringside.sim.workload.modules import attention, elementwise, embedding, layer_norm, linear, tied_linear
from ringside.sim.workload.workload import Tensor


def bert(name: str, layers: int, width: int, sequence: int = 512) -> Architecture:
    """BERT, uncased, with both pre-training heads.

    Devlin et al., arXiv:1810.04805, section 3, whose "110M" and "340M" the model cards of
    google-bert/bert-base-uncased and bert-large-uncased give as 110M and 336M; 30,522 word pieces.
    """
    _check_sequence(sequence, 512)
    modules = list(_bert(layers, width, vocabulary=30522, tokens=sequence))
    definition = [module.name for module in modules if module.name != "cls.predictions"]
    definition.insert(definition.index("cls.predictions.transform.dense"), "cls.predictions")
    return assemble(name, f"sequence of {sequence} tokens", modules, definition, mixed=True)


def bert_encoder(sequence: int = 512) -> Architecture:
    """Return BERT-base without its pre-training heads, as in sentence embedding models."""
    model = bert("bert-encoder", 12, 768, sequence)
    blocks = (one for one in model.blocks if not one.name.startswith(("cls.", "loss")))
    parameters = (one for one in model.parameters if not one.name.startswith("cls."))
    return replace(model, blocks=tuple(blocks), parameters=tuple(parameters))


bert_base = partial(bert, "bert-base", 12, 768)
bert_large = partial(bert, "bert-large", 24, 1024)


def _bert(layers: int, width: int, vocabulary: int, tokens: int) -> Iterator[Module]:
    prefix = "bert.embeddings"
    yield embedding(f"{prefix}.word_embeddings", vocabulary, width, tokens)
    yield embedding(f"{prefix}.position_embeddings", 512, width, tokens)
    yield embedding(f"{prefix}.token_type_embeddings", 2, width, tokens)
    yield elementwise(f"{prefix}.add", width * tokens, inputs=3)
    yield layer_norm(f"{prefix}.LayerNorm", width, tokens)
    for layer in range(layers):
        yield from _bert_layer(f"bert.encoder.layer.{layer}", width, tokens)
    yield linear("bert.pooler.dense", width, width)
    yield elementwise("bert.pooler.activation", width, keeps=1)
    yield linear("cls.predictions.transform.dense", width, width, tokens)
    yield elementwise("cls.predictions.transform.transform_act_fn", width * tokens, keeps=1)
    yield layer_norm("cls.predictions.transform.LayerNorm", width, tokens)
    bias = Tensor("cls.predictions.bias", vocabulary)
    yield tied_linear("cls.predictions", width, vocabulary, tokens, bias)
    yield linear("cls.seq_relationship", width, 2)
    yield elementwise("loss", vocabulary * tokens, keeps=1)


def _bert_layer(name: str, width: int, tokens: int) -> Iterator[Module]:
    for projection in ("query", "key", "value"):
        yield linear(
            f"{name}.attention.self.{projection}", width, width, tokens, shares_input=projection != "query"
        )
    yield attention(f"{name}.attention.self", width, tokens)
    yield linear(f"{name}.attention.output.dense", width, width, tokens)
    yield elementwise(f"{name}.attention.output.add", width * tokens, inputs=2)
    yield layer_norm(f"{name}.attention.output.LayerNorm", width, tokens)
    yield linear(f"{name}.intermediate.dense", width, 4 * width, tokens)
    yield elementwise(f"{name}.intermediate.intermediate_act_fn", 4 * width * tokens, keeps=1)
    yield linear(f"{name}.output.dense", 4 * width, width, tokens)
    yield elementwise(f"{name}.output.add", width * tokens, inputs=2)
    yield layer_norm(f"{name}.output.LayerNorm", width, tokens)


def _check_sequence(sequence: int, longest: int) -> None:
    if not 1 <= sequence <= longest:
        raise ValueError(f"sequences of {sequence} tokens; this model takes 1 to {longest}")
