"""Decoder-only transformers as numbers: GPT-2 and GPT-3, Llama 2 and 3, Mixtral, DeepSeek-V3.

A layer is attention and a feed-forward network, each behind a norm and with a sum around it. FLOPs are those
of matrix products, a multiply-add as two, and of attention the whole square of scores, as Narayanan et al.
count for GPT (arXiv:2104.04473, equation 3), unless ``causal`` asks for the half that causal kernels compute.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from ringside.sim.workload.decoder_parts import Experts, Latent
from ringside.topologies.names import one_of

CHECKPOINTING = ("none", "selective", "full")
"""Recomputation in backward: nothing, attention proper or chosen modules, everything but layers' inputs."""

MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
"""Modules that selective checkpointing may recompute (Megatron-LM's ``--recompute-modules``)."""

USUAL_MODULES = ("core_attn",)
"""Those that it recomputes by default."""


class DecoderTotals(NamedTuple):
    """A decoder's parameters, and the FLOPs of training on one sequence, without and by recomputation."""

    parameters: int
    model_flops: float
    recomputed_flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """A decoder-only transformer.

    ``width`` is that of a token's vector, ``hidden`` that of the feed-forward network, which is ``gated``
    if it has a second input product (SwiGLU). ``heads`` are query heads of width ``head``, 0 if they are
    parts of the token's. ``qk_norm`` says that each head's query and key pass a norm; with ``latent``
    attention the narrow vectors always do. ``norm`` is ``rms`` or ``layer``; ``biases`` says that products
    and layer norms have one. ``positions`` is the number of learned position vectors, 0 with rotary
    embedding; ``tied`` says that the output product uses the embedding. ``sequence`` is the number of tokens
    per sample, ``longest`` its maximum. ``experts`` and ``latent`` attention are optional; with the latter
    heads are not parts of the width. ``predicted`` further layers each predict one more token, from the token
    before it and the layer before (DeepSeek-AI, arXiv:2412.19437, section 2.2).
    """

    name: str
    layers: int
    width: int
    heads: int
    key_value_heads: int
    hidden: int
    vocabulary: int
    sequence: int
    longest: int
    gated: bool = False
    norm: Literal["layer", "rms"] = "layer"
    biases: bool = True
    positions: int = 0
    tied: bool = False
    experts: Experts | None = None
    latent: Latent | None = None
    head: int = 0
    qk_norm: bool = False
    predicted: int = 0

    def __post_init__(self) -> None:
        if self.head and self.latent:
            raise ValueError(
                f"{self.name}: heads of latent attention have widths of their own; leave head out"
            )
        if self.width % self.heads and not (self.latent or self.head):
            raise ValueError(
                f"{self.name}: a width of {self.width} does not divide by {self.heads} heads; write head"
            )
        if self.heads % self.key_value_heads:
            raise ValueError(
                f"{self.name}: {self.heads} heads do not divide by {self.key_value_heads} key-value heads"
            )
        if not 1 <= self.sequence <= self.longest:
            raise ValueError(f"sequences of {self.sequence} tokens; this model takes 1 to {self.longest}")

    def __str__(self) -> str:
        return self.name

    @property
    def sample(self) -> str:
        """The kind of sample as text."""
        return f"sequence of {self.sequence} tokens"

    @property
    def head_width(self) -> int:
        """Width of a head, but for latent attention."""
        return self.head or self.width // self.heads

    @property
    def query(self) -> int:
        """Width of queries."""
        return self.heads * self.head_width

    @property
    def key_value(self) -> int:
        """Width of keys, and of values."""
        return self.key_value_heads * self.head_width

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm."""
        return self.width * self.norm_vectors

    @property
    def norm_vectors(self) -> int:
        """Number of a norm's vectors: a weight, and perhaps a bias."""
        return 2 if self.norm == "layer" and self.biases else 1

    @property
    def inner_norms(self) -> int:
        """Parameters of attention's own norms: of a head's query and key, or of the narrow vectors."""
        if self.latent:
            return self.latent.norms
        return 2 * self.head_width * self.norm_vectors if self.qk_norm else 0

    @property
    def attention_products(self) -> int:
        """Weights of attention's products."""
        if not self.latent:
            return 2 * self.width * (self.query + self.key_value)
        products = *self.latent.inputs(self.width), *self.latent.widened(self.heads)
        return (
            sum(inputs * outputs for inputs, outputs in products)
            + self.heads * self.latent.value * self.width
        )

    @property
    def scored(self) -> int:
        """Width of a query and of a value, all heads together: the cost of making and using a score."""
        if not self.latent:
            return 2 * self.query
        return self.heads * (self.latent.plain + self.latent.rotary + self.latent.value)

    def has_experts(self, layer: int) -> bool:
        """Return whether the layer of this number is a mixture of experts."""
        experts = self.experts
        later = layer - experts.dense_layers if experts else -1
        return experts is not None and later >= 0 and later % experts.every == 0

    def feed_forward_products(self, layer: int, *, active: bool = False) -> int:
        """Return weights of a layer's products beside attention; ``active``: those that a token passes."""
        inputs = 2 if self.gated else 1
        if self.experts is None or not self.has_experts(layer):
            return (inputs + 1) * self.width * self.hidden
        experts = self.experts
        hidden = (experts.active if active else experts.count) * experts.hidden + experts.shared_hidden
        return self.width * (experts.count + (inputs + 1) * hidden)

    def layer_parameters(self, layer: int, *, active: bool = False) -> int:
        """Return parameters of a layer; with ``active`` those that a token passes."""
        biases = 0
        if self.biases:
            biases += self.query + 2 * self.key_value + self.width
        if self.experts and self.has_experts(layer):
            biases += self.experts.count if self.experts.biased else 0
        elif self.biases:
            biases += (2 if self.gated else 1) * self.hidden + self.width
        products = self.attention_products + self.feed_forward_products(layer, active=active)
        return products + biases + 2 * self.norm_parameters + self.inner_norms

    def parameters(self, *, active: bool = False) -> int:
        """Return all parameters; a tied output product has none. ``active``: those that a token passes."""
        tables = self.vocabulary * (1 if self.tied else 2) + self.positions
        layers = sum(self.layer_parameters(layer, active=active) for layer in self._all_layers)
        joining = self.predicted * (2 * self.width**2 + 3 * self.norm_parameters)
        return tables * self.width + layers + joining + self.norm_parameters

    @property
    def _all_layers(self) -> tuple[int, ...]:
        """The numbers of all layers; one that predicts a further token is like the last."""
        return (*range(self.layers), *(self.layers - 1,) * self.predicted)

    @property
    def num_parameters(self) -> int:
        """All parameters."""
        return self.parameters()

    def layer_flops(self, layer: int = 0, *, causal: bool = False) -> float:
        """Forward FLOPs of one layer on one sequence."""
        products = self.attention_products + self.feed_forward_products(layer, active=True)
        scores = 2 * self.sequence * self.scored * (0.5 if causal else 1.0)
        return self.sequence * (2 * products + scores)

    def flops(self, *, causal: bool = False) -> float:
        """Forward FLOPs of one sequence, with the output product; backward has twice as many."""
        layers = sum(self.layer_flops(layer, causal=causal) for layer in self._all_layers)
        joining = 2 * self.sequence * self.predicted * 2 * self.width**2
        return layers + joining + self._head_flops

    @property
    def _head_flops(self) -> float:
        """Forward FLOPs of the output products of one sequence, one for each token that is predicted."""
        return 2 * self.sequence * self.width * self.vocabulary * (1 + self.predicted)

    def training_flops(self, *, causal: bool = False) -> float:
        """Return model FLOPs: those of training on one sequence, without recomputation."""
        return 3 * self.flops(causal=causal)

    def recomputed_flops(
        self, checkpointing: str, *, modules: Sequence[str] = USUAL_MODULES, causal: bool = False
    ) -> float:
        """Return recomputed FLOPs on one sequence with one of `CHECKPOINTING` of the layers.

        ``modules`` are those that ``selective`` recomputes.

        With model FLOPs they are hardware FLOPs.
        """
        if checkpointing == "none":
            return 0.0
        if checkpointing == "full":
            return sum(self.layer_flops(layer, causal=causal) for layer in self._all_layers)
        return sum(self._module_flops(layer, modules, causal=causal) for layer in self._all_layers)

    def _module_flops(self, layer: int, modules: Sequence[str], *, causal: bool) -> float:
        """Return forward FLOPs of modules of a layer on one sequence."""
        products = 0
        if "mla_up_proj" in modules and self.latent:
            products += sum(inputs * outputs for inputs, outputs in self.latent.widened(self.heads))
        if ("moe" if self.has_experts(layer) else "mlp") in modules:
            products += self.feed_forward_products(layer, active=True)
        elif "shared_experts" in modules and self.experts and self.has_experts(layer):
            products += self.width * (3 if self.gated else 2) * self.experts.shared_hidden
        scores = 2 * self.sequence * self.scored * (0.5 if causal else 1.0) if "core_attn" in modules else 0.0
        return self.sequence * (2 * products + scores)

    def totals(self, checkpointing: str, modules: Sequence[str] = USUAL_MODULES) -> DecoderTotals:
        """Return parameters and FLOPs of the whole decoder with one of `CHECKPOINTING`."""
        again = self.recomputed_flops(checkpointing, modules=modules)
        return DecoderTotals(self.num_parameters, self.training_flops(), again)


_LLAMAS = {
    "llama2": (32000, 4096, 4096),
    "llama3-": (128256, 8192, 8192),
    "llama3.1": (128256, 8192, 131072),
}
"""Vocabulary, usual and longest sequence of a generation."""


def _llama(name: str, layers: int, width: int, heads: int, groups: int, hidden: int) -> Decoder:
    generation = next(kind for kind in _LLAMAS if name.startswith(kind))
    vocabulary, sequence, longest = _LLAMAS[generation]
    return Decoder(
        name=name, layers=layers, width=width, heads=heads, key_value_heads=groups, hidden=hidden,
        vocabulary=vocabulary, sequence=sequence, longest=longest, gated=True, norm="rms", biases=False,
    )  # fmt: skip


def _gpt(name: str, layers: int, width: int, heads: int, sequence: int, vocabulary: int = 50257) -> Decoder:
    return Decoder(
        name=name, layers=layers, width=width, heads=heads, key_value_heads=heads, hidden=4 * width,
        vocabulary=vocabulary, sequence=sequence, longest=sequence, positions=sequence, tied=True,
    )  # fmt: skip


def _mixtral(name: str, layers: int, width: int, heads: int, hidden: int, longest: int) -> Decoder:
    return Decoder(
        name=name, layers=layers, width=width, heads=heads, key_value_heads=8, hidden=hidden,
        vocabulary=32000, sequence=4096, longest=longest, gated=True, norm="rms", biases=False,
        experts=Experts(count=8, active=2, hidden=hidden),
    )  # fmt: skip


DECODERS = {
    decoder.name: decoder
    for decoder in (
        # Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, table 2
        _gpt("gpt2", 12, 768, 12, 1024),
        _gpt("gpt2-medium", 24, 1024, 16, 1024),
        _gpt("gpt2-large", 36, 1280, 20, 1024),
        _gpt("gpt2-xl", 48, 1600, 25, 1024),
        # Touvron et al., arXiv:2307.09288, table 1; widths by the configurations of meta-llama/Llama-2-*-hf
        _llama("llama2-7b", 32, 4096, 32, 32, 11008),
        _llama("llama2-13b", 40, 5120, 40, 40, 13824),
        _llama("llama2-70b", 80, 8192, 64, 8, 28672),
        # Llama team, arXiv:2407.21783, table 3
        _llama("llama3-8b", 32, 4096, 32, 8, 14336),
        _llama("llama3-70b", 80, 8192, 64, 8, 28672),
        _llama("llama3-405b", 126, 16384, 128, 8, 53248),
        _llama("llama3.1-8b", 32, 4096, 32, 8, 14336),
        _llama("llama3.1-70b", 80, 8192, 64, 8, 28672),
        _llama("llama3.1-405b", 126, 16384, 128, 8, 53248),
        # Brown et al., arXiv:2005.14165, table 2.1, with 16 heads of 128 (it prints 24, which contradicts its
        # width of 2048), and a width of 5120 (it prints 5140, which contradicts its 40 heads of 128)
        _gpt("gpt3-125m", 12, 768, 12, 2048),
        _gpt("gpt3-350m", 24, 1024, 16, 2048),
        _gpt("gpt3-760m", 24, 1536, 16, 2048),
        _gpt("gpt3-1.3b", 24, 2048, 16, 2048),
        _gpt("gpt3-2.7b", 32, 2560, 32, 2048),
        _gpt("gpt3-6.7b", 32, 4096, 32, 2048),
        _gpt("gpt3-13b", 40, 5120, 40, 2048),
        _gpt("gpt3-175b", 96, 12288, 96, 2048),
        # Jiang et al., arXiv:2401.04088, table 1, and the configurations of mistralai/Mixtral-8x*-v0.1
        _mixtral("mixtral-8x7b", 32, 4096, 32, 14336, 32768),
        _mixtral("mixtral-8x22b", 56, 6144, 48, 16384, 65536),
        # DeepSeek-AI, arXiv:2405.04434, section 3.1.2, and the configuration of deepseek-ai/DeepSeek-V2
        Decoder(
            name="deepseek-v2",
            layers=60,
            width=5120,
            heads=128,
            key_value_heads=128,
            hidden=12288,
            vocabulary=102400,
            sequence=4096,
            longest=163840,
            gated=True,
            norm="rms",
            biases=False,
            experts=Experts(count=160, active=6, hidden=1536, shared_hidden=3072, dense_layers=1),
            latent=Latent(query_rank=1536, key_value_rank=512, plain=128, rotary=64, value=128),
        ),
        # DeepSeek-AI, arXiv:2412.19437, section 4.2, and the configuration of deepseek-ai/DeepSeek-V3,
        # without the module that predicts a second token
        Decoder(
            name="deepseek-v3",
            layers=61,
            width=7168,
            heads=128,
            key_value_heads=128,
            hidden=18432,
            vocabulary=129280,
            sequence=4096,
            longest=163840,
            gated=True,
            norm="rms",
            biases=False,
            experts=Experts(
                count=256, active=8, hidden=2048, shared_hidden=2048, dense_layers=3, biased=True
            ),
            latent=Latent(query_rank=1536, key_value_rank=512, plain=128, rotary=64, value=128),
        ),
    )
}
"""Every decoder by name."""


SHAPE = ("layers", "width", "heads", "key_value_heads", "hidden", "vocabulary", "positions", "longest")
"""Parts of a decoder's shape that may be set."""


MOST, MOST_ELSE = {"layers": 5_000}, 10**9
"""The largest value of a part of a shape. More layers would take minutes to simulate."""


def decoder(text: str) -> Decoder:
    """Parse ``llama3-8b``, or ``llama3-8b:4096,layers=16`` with another sequence or another shape."""
    name = text.partition(":")[0]
    if name not in DECODERS:
        raise ValueError(f"unknown decoder {name!r}; write {one_of(DECODERS, name)}")
    return reshaped(DECODERS[name], text)


def reshaped(known: Decoder, text: str) -> Decoder:
    """Return a decoder with the sequence and the shape behind the colon of ``NAME:4096,layers=16``, if any.

    Derived sizes follow: one key-value head per query head, a network four times as wide as a token's vector,
    and the use of all learned positions.
    """
    name, _, settings = text.partition(":")
    numbers: dict[str, Any] = {}
    for word in settings.split(",") if text != name else ():
        key, given, number = word.rpartition("=")
        key = key if given else "sequence"
        if key not in ("sequence", *SHAPE):
            raise ValueError(f"{text!r}: unknown part of a shape {key!r}; write {one_of(SHAPE, key)}")
        if key in numbers:
            raise ValueError(f"{text!r} has {key} twice; write it once")
        most = MOST.get(key, MOST_ELSE)
        if not (number.isascii() and number.isdecimal()) or not 1 <= int(number[:20]) <= most:
            example = f"{key}={getattr(known, key)}" if given else f"{name}:2048"
            what = f"{key} is {number!r}" if given else f"{number!r} is not a number of tokens"
            raise ValueError(f"{text!r}: {what}; write for example {example}, {most} at most")
        numbers[key] = int(number)
    if "heads" in numbers and known.key_value_heads == known.heads:
        numbers.setdefault("key_value_heads", numbers["heads"])
    if "width" in numbers and known.hidden == 4 * known.width:
        numbers.setdefault("hidden", 4 * numbers["width"])
    if "positions" in numbers:
        numbers.setdefault("longest", numbers["positions"])
    if "longest" in numbers:
        numbers.setdefault("sequence", min(known.sequence, numbers["longest"]))
    return replace(known, **numbers)
