"""Language models, each on one sequence of ``sequence`` tokens, without dropout.

Tensors have the names and the order that Hugging Face's transformers gives them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby

from sim.workload.architecture import Architecture, Module, assemble
from sim.workload.decoder import DECODERS, Decoder
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


def decoder_architecture(name: str, sequence: int | None = None) -> Architecture:
    """A decoder of `sim.workload.decoder`: GPT where it has learned positions, otherwise of Llama's kind."""
    found = DECODERS[name]
    if sequence is not None:
        found = replace(found, sequence=sequence)
    sample = f"sequence of {found.sequence} tokens"
    if found.positions:
        return assemble(name, sample, list(_gpt(found)), mixed=True)
    modules = list(_llama(found))
    return assemble(name, sample, modules, _llama_definition(modules), mixed=True)


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


def _gpt(decoder: Decoder) -> Iterator[Module]:
    width, tokens, vocabulary = decoder.width, decoder.sequence, decoder.vocabulary
    yield embedding("transformer.wte", vocabulary, width, tokens)
    yield embedding("transformer.wpe", decoder.positions, width, tokens)
    yield elementwise("transformer.add", width * tokens, inputs=2)
    for layer in range(decoder.layers):
        name = f"transformer.h.{layer}"
        yield layer_norm(f"{name}.ln_1", width, tokens)
        yield linear(f"{name}.attn.c_attn", width, 3 * width, tokens, by_input=True)
        yield attention(f"{name}.attn", width, tokens)
        yield linear(f"{name}.attn.c_proj", width, width, tokens, by_input=True)
        yield elementwise(f"{name}.add_1", width * tokens, inputs=2)
        yield layer_norm(f"{name}.ln_2", width, tokens)
        yield linear(f"{name}.mlp.c_fc", width, 4 * width, tokens, by_input=True)
        yield elementwise(f"{name}.mlp.act", 4 * width * tokens, keeps=1)
        yield linear(f"{name}.mlp.c_proj", 4 * width, width, tokens, by_input=True)
        yield elementwise(f"{name}.add_2", width * tokens, inputs=2)
    yield layer_norm("transformer.ln_f", width, tokens)
    yield tied_linear("lm_head", width, vocabulary, tokens)
    yield elementwise("loss", vocabulary * tokens, keeps=1)


def _llama(decoder: Decoder) -> Iterator[Module]:
    width, tokens, vocabulary = decoder.width, decoder.sequence, decoder.vocabulary
    yield embedding("model.embed_tokens", vocabulary, width, tokens)
    for layer in range(decoder.layers):
        name = f"model.layers.{layer}"
        yield rms_norm(f"{name}.input_layernorm", width, tokens)
        yield from _latent(f"{name}.self_attn", decoder) if decoder.latent else _grouped(name, decoder)
        yield elementwise(f"{name}.add_1", width * tokens, inputs=2)
        yield rms_norm(f"{name}.post_attention_layernorm", width, tokens)
        if decoder.has_experts(layer):
            yield from _experts(f"{name}.mlp", decoder)
        else:
            yield from _gated(f"{name}.mlp", width, decoder.hidden, tokens)
        yield elementwise(f"{name}.add_2", width * tokens, inputs=2)
    yield rms_norm("model.norm", width, tokens)
    yield linear("lm_head", width, vocabulary, tokens, bias=False)
    yield elementwise("loss", vocabulary * tokens, keeps=1)


def _grouped(layer: str, decoder: Decoder) -> Iterator[Module]:
    width, key_value, tokens = decoder.width, decoder.key_value, decoder.sequence
    name = f"{layer}.self_attn"
    yield linear(f"{name}.q_proj", width, width, tokens, bias=False)
    yield linear(f"{name}.k_proj", width, key_value, tokens, bias=False, shares_input=True)
    yield linear(f"{name}.v_proj", width, key_value, tokens, bias=False, shares_input=True)
    yield attention(name, width, tokens)
    yield linear(f"{name}.o_proj", width, width, tokens, bias=False)


def _latent(name: str, decoder: Decoder) -> Iterator[Module]:
    latent, tokens = decoder.latent, decoder.sequence
    assert latent
    narrow, wide = latent.inputs(decoder.width), latent.widened(decoder.heads)
    yield linear(f"{name}.q_a_proj", *narrow[0], tokens, bias=False)
    yield rms_norm(f"{name}.q_a_layernorm", latent.query_rank, tokens)
    yield linear(f"{name}.q_b_proj", *wide[0], tokens, bias=False)
    yield linear(f"{name}.kv_a_proj_with_mqa", *narrow[1], tokens, bias=False, shares_input=True)
    yield rms_norm(f"{name}.kv_a_layernorm", latent.key_value_rank, tokens)
    yield linear(f"{name}.kv_b_proj", *wide[1], tokens, bias=False)
    scores = attention(name, decoder.scored // 2, tokens)
    read = decoder.heads * (2 * (latent.plain + latent.rotary) + latent.value) * tokens
    yield replace(scores, traffic=read + decoder.heads * latent.value * tokens, kept=read)
    yield linear(f"{name}.o_proj", decoder.heads * latent.value, decoder.width, tokens, bias=False)


def _gated(name: str, width: int, hidden: int, tokens: int) -> Iterator[Module]:
    yield linear(f"{name}.gate_proj", width, hidden, tokens, bias=False)
    yield linear(f"{name}.up_proj", width, hidden, tokens, bias=False, shares_input=True)
    yield elementwise(f"{name}.act_fn", hidden * tokens, inputs=2, keeps=2)
    yield linear(f"{name}.down_proj", hidden, width, tokens, bias=False)


def _experts(name: str, decoder: Decoder) -> Iterator[Module]:
    """A router, all experts as two tensors with a plane for each, and the experts that all tokens pass."""
    experts, width, tokens = decoder.experts, decoder.width, decoder.sequence
    assert experts
    bias = (Tensor(f"{name}.gate.e_score_correction_bias", experts.count),) if experts.biased else ()
    router = linear(f"{name}.gate", width, experts.count, tokens, bias=False)
    yield replace(router, parameters=(*router.parameters, *bias), reversed_arrival=False)
    passed, weights = experts.active * tokens, experts.count * width * experts.hidden
    yield Module(
        f"{name}.experts",
        parameters=(
            Tensor(f"{name}.experts.gate_up_proj", 2 * weights),
            Tensor(f"{name}.experts.down_proj", weights),
        ),
        flops=6 * width * experts.hidden * passed,
        # tokens are brought into the experts' order and back; inside as other networks do it
        traffic=(4 * width + 8 * experts.hidden) * passed,
        kept=(width + 4 * experts.hidden) * passed,
        reversed_arrival=True,
    )
    if experts.shared:
        yield from _gated(f"{name}.shared_experts", width, experts.shared * experts.hidden, tokens)


def _llama_definition(modules: Sequence[Module]) -> list[str]:
    """The modules that own tensors, in definition order: a layer's norms come after what they precede."""
    names = [module.name for module in modules if module.parameters]
    norms = ("input_layernorm", "post_attention_layernorm")
    found = []
    for layer, own in groupby(names, key=lambda name: ".".join(name.split(".")[:3])):
        listed = list(own)
        late = [f"{layer}.{norm}" for norm in norms if f"{layer}.{norm}" in listed]
        found += [*(name for name in listed if name not in late), *late]
    return found


def _check_sequence(sequence: int, longest: int) -> None:
    if not 1 <= sequence <= longest:
        raise ValueError(f"sequences of {sequence} tokens; this model takes 1 to {longest}")
