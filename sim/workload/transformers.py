"""Language models, each on one sequence of ``sequence`` tokens, without dropout.

Tensors have the names and the order that Hugging Face's transformers gives them.
"""

from collections.abc import Iterator
from functools import partial

from sim.workload.architecture import Architecture, Module, assemble
from sim.workload.modules import attention, elementwise, embedding, layer_norm, linear, rms_norm, tied_linear
from sim.workload.workload import Tensor


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


def gpt2(name: str, layers: int, width: int, sequence: int = 1024) -> Architecture:
    """GPT-2 with its output layer tied to the token embedding.

    Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, table 2; parameters
    by the model cards of openai-community/gpt2 (124M), -medium (355M), -large (774M) and -xl (1.5B),
    which correct the paper's column.
    """
    _check_sequence(sequence, 1024)
    return assemble(name, f"sequence of {sequence} tokens", list(_gpt2(layers, width, sequence)), mixed=True)


def llama2(
    name: str, layers: int, width: int, hidden: int, key_value: int, sequence: int = 4096
) -> Architecture:
    """Llama 2, with keys and values of width ``key_value`` (grouped-query attention where it is smaller).

    Touvron et al., arXiv:2307.09288, table 1; widths by the configurations of meta-llama/Llama-2-7b-hf
    and -70b-hf, whose checkpoints hold 6,738,415,616 and 68,976,648,192 parameters.
    """
    _check_sequence(sequence, 4096)
    modules = list(_llama(layers, width, hidden, key_value, sequence))
    return assemble(
        name, f"sequence of {sequence} tokens", modules, list(_llama_definition(layers)), mixed=True
    )


bert_base = partial(bert, "bert-base", 12, 768)
bert_large = partial(bert, "bert-large", 24, 1024)
gpt2_small = partial(gpt2, "gpt2", 12, 768)
gpt2_medium = partial(gpt2, "gpt2-medium", 24, 1024)
gpt2_large = partial(gpt2, "gpt2-large", 36, 1280)
gpt2_xl = partial(gpt2, "gpt2-xl", 48, 1600)
llama2_7b = partial(llama2, "llama2-7b", 32, 4096, 11008, 4096)
llama2_70b = partial(llama2, "llama2-70b", 80, 8192, 28672, 1024)


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


def _gpt2(layers: int, width: int, tokens: int, vocabulary: int = 50257) -> Iterator[Module]:
    yield embedding("transformer.wte", vocabulary, width, tokens)
    yield embedding("transformer.wpe", 1024, width, tokens)
    yield elementwise("transformer.add", width * tokens, inputs=2)
    for layer in range(layers):
        name = f"transformer.h.{layer}"
        yield layer_norm(f"{name}.ln_1", width, tokens)
        yield linear(f"{name}.attn.c_attn", width, 3 * width, tokens)
        yield attention(f"{name}.attn", width, tokens)
        yield linear(f"{name}.attn.c_proj", width, width, tokens)
        yield elementwise(f"{name}.add_1", width * tokens, inputs=2)
        yield layer_norm(f"{name}.ln_2", width, tokens)
        yield linear(f"{name}.mlp.c_fc", width, 4 * width, tokens)
        yield elementwise(f"{name}.mlp.act", 4 * width * tokens, keeps=1)
        yield linear(f"{name}.mlp.c_proj", 4 * width, width, tokens)
        yield elementwise(f"{name}.add_2", width * tokens, inputs=2)
    yield layer_norm("transformer.ln_f", width, tokens)
    yield tied_linear("lm_head", width, vocabulary, tokens)
    yield elementwise("loss", vocabulary * tokens, keeps=1)


def _llama(layers: int, width: int, hidden: int, key_value: int, tokens: int) -> Iterator[Module]:
    vocabulary = 32000
    yield embedding("model.embed_tokens", vocabulary, width, tokens)
    for layer in range(layers):
        name = f"model.layers.{layer}"
        yield rms_norm(f"{name}.input_layernorm", width, tokens)
        yield linear(f"{name}.self_attn.q_proj", width, width, tokens, bias=False)
        yield linear(f"{name}.self_attn.k_proj", width, key_value, tokens, bias=False, shares_input=True)
        yield linear(f"{name}.self_attn.v_proj", width, key_value, tokens, bias=False, shares_input=True)
        yield attention(f"{name}.self_attn", width, tokens)
        yield linear(f"{name}.self_attn.o_proj", width, width, tokens, bias=False)
        yield elementwise(f"{name}.add_1", width * tokens, inputs=2)
        yield rms_norm(f"{name}.post_attention_layernorm", width, tokens)
        yield linear(f"{name}.mlp.gate_proj", width, hidden, tokens, bias=False)
        yield linear(f"{name}.mlp.up_proj", width, hidden, tokens, bias=False, shares_input=True)
        yield elementwise(f"{name}.mlp.act_fn", hidden * tokens, inputs=2, keeps=2)
        yield linear(f"{name}.mlp.down_proj", hidden, width, tokens, bias=False)
        yield elementwise(f"{name}.add_2", width * tokens, inputs=2)
    yield rms_norm("model.norm", width, tokens)
    yield linear("lm_head", width, vocabulary, tokens, bias=False)
    yield elementwise("loss", vocabulary * tokens, keeps=1)


def _llama_definition(layers: int) -> Iterator[str]:
    """The modules that own tensors, in definition order: a layer's norms come after what they precede."""
    yield "model.embed_tokens"
    for layer in range(layers):
        for projection in ("q_proj", "k_proj", "v_proj", "o_proj"):
            yield f"model.layers.{layer}.self_attn.{projection}"
        for projection in ("gate_proj", "up_proj", "down_proj"):
            yield f"model.layers.{layer}.mlp.{projection}"
        yield f"model.layers.{layer}.input_layernorm"
        yield f"model.layers.{layer}.post_attention_layernorm"
    yield "model.norm"
    yield "lm_head"


def _check_sequence(sequence: int, longest: int) -> None:
    if not 1 <= sequence <= longest:
        raise ValueError(f"sequences of {sequence} tokens; this model takes 1 to {longest}")
