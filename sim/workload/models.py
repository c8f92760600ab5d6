"""Well-known models by name, the values of ``--model NAME[:SIZE]``.

Tensors have the names and the order of the ``torch.nn`` module of the same name, of torchvision's networks
for images of ``side`` x ``side`` pixels and 1000 classes, and of Hugging Face's encoders on one sequence of
``sequence`` tokens. An encoder predicts ``predicted`` masked tokens, by default all, as Hugging Face's module
does. A vision transformer cuts an image into patches, one token each; one more token stands for the whole
image and is classified.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from inspect import signature

from ringside.sim.workload.architecture import Architecture, KernelSums, Module, assemble
from ringside.sim.workload.decoder import DECODERS, Decoder, decoder
from ringside.sim.workload.decoder_file import is_decoder_file, read_decoder
from ringside.sim.workload.modules import (
    SUM,
    attention,
    batch_norm,
    conv2d,
    dropout,
    elementwise,
    embedding,
    layer_norm,
    linear,
    max_pool,
    product,
    residual,
    tied_linear,
)
from ringside.sim.workload.workload import Tensor
from ringside.topologies.names import one_of

_RESNET50_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
_VGG16_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def resnet50(side: int = 224, layout: str | None = None) -> Architecture:
    """ResNet-50 v1.5: 25,557,032 parameters, 4.09 G multiply-adds an image.

    He et al., arXiv:1512.03385, table 1, with the stride in the 3 x 3 convolution as torchvision and
    NVIDIA train it; figures from torchvision's page of the model (ResNet50_Weights.IMAGENET1K_V1).
    """
    _check_side(side)
    return assemble(
        "resnet50", f"image of {side} x {side}", list(_resnet50(side)), channels_last=_last(layout)
    )


def vgg16(side: int = 224, layout: str | None = None) -> Architecture:
    """VGG-16: 138,357,544 parameters, 15.47 G multiply-adds an image.

    Simonyan and Zisserman, arXiv:1409.1556, table 1, column D; figures from torchvision's page of the
    model (VGG16_Weights.IMAGENET1K_V1).
    """
    _check_side(side)
    return assemble("vgg16", f"image of {side} x {side}", list(_vgg16(side)), channels_last=_last(layout))


def _resnet50(side: int) -> Iterator[Module]:
    side //= 2
    yield conv2d("conv1", 3, 64, kernel=7, side=side, stride=2, first=True)
    yield batch_norm("bn1", 64, side)
    yield elementwise("relu", 64 * side**2, keeps=1)
    side //= 2
    yield max_pool("maxpool", 64, side)
    channels = 64
    for stage, (width, blocks) in enumerate(_RESNET50_STAGES, 1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            side //= stride
            yield from _bottleneck(f"layer{stage}.{block}", channels, width, side, stride)
            channels = 4 * width
    yield elementwise("avgpool", channels * side**2)
    yield linear("fc", channels, 1000)


def _bottleneck(name: str, channels: int, width: int, side: int, stride: int) -> Iterator[Module]:
    before = side * stride
    yield conv2d(f"{name}.conv1", channels, width, kernel=1, side=before)
    yield batch_norm(f"{name}.bn1", width, before)
    yield elementwise(f"{name}.relu1", width * before**2)
    yield conv2d(f"{name}.conv2", width, width, kernel=3, side=side, stride=stride)
    yield batch_norm(f"{name}.bn2", width, side)
    yield elementwise(f"{name}.relu2", width * side**2)
    yield conv2d(f"{name}.conv3", width, 4 * width, kernel=1, side=side)
    yield batch_norm(f"{name}.bn3", 4 * width, side)
    if channels != 4 * width:
        yield conv2d(f"{name}.downsample.0", channels, 4 * width, kernel=1, side=side, stride=stride)
        yield batch_norm(f"{name}.downsample.1", 4 * width, side)
    yield residual(f"{name}.add", 4 * width * side**2)
    yield elementwise(f"{name}.relu3", 4 * width * side**2)


def _vgg16(side: int) -> Iterator[Module]:
    channels, index = 3, 0
    for width, convs in _VGG16_STAGES:
        for conv in range(convs):
            yield conv2d(
                f"features.{index}", channels, width, kernel=3, side=side, bias=True, first=not index
            )
            yield elementwise(f"features.{index + 1}", width * side**2, keeps=int(conv == convs - 1))
            channels, index = width, index + 2
        side //= 2
        yield max_pool(f"features.{index}", width, side)
        index += 1
    yield linear("classifier.0", channels * 7**2, 4096)
    yield elementwise("classifier.1", 4096)
    yield dropout("classifier.2", 4096)
    yield linear("classifier.3", 4096, 4096)
    yield elementwise("classifier.4", 4096)
    yield dropout("classifier.5", 4096)
    yield linear("classifier.6", 4096, 1000)


def _last(layout: str | None) -> bool | None:
    """Return whether a layout, ``nchw`` or ``nhwc``, has channels last; None for the usual one."""
    if layout not in (None, "nchw", "nhwc"):
        raise ValueError(f"unknown layout {layout!r}; write nchw or nhwc")
    return None if layout is None else layout == "nhwc"


def _check_side(side: int) -> None:
    if side < 32 or side % 32:
        raise ValueError(f"images of {side} x {side} pixels; write a multiple of 32, for example 224")


def vit(
    name: str, patch: int, layers: int, width: int, hidden: int, head: int, side: int = 224
) -> Architecture:
    """Return a vision transformer with patches of ``patch`` x ``patch`` pixels.

    Dosovitskiy et al., arXiv:2010.11929, table 1; parameters as on torchvision's pages of the models
    (ViT_B_16_Weights.IMAGENET1K_V1: 86,567,656).
    """
    if side < patch or side % patch:
        fitting = max(patch, round(side / patch) * patch)
        raise ValueError(
            f"images of {side} x {side} pixels; write a multiple of {patch}, for example {fitting}"
        )
    modules = list(_vit(patch, layers, width, hidden, head, side))
    # the token is the model's own, and defined before its modules' tensors
    owners = [module.name for module in modules if module.parameters]
    definition = sorted(owners, key=lambda one: one != "class_token")
    return assemble(name, f"image of {side} x {side}", modules, definition)


vit_b_16 = partial(vit, "vit-b-16", 16, 12, 768, 3072, 64)
vit_l_16 = partial(vit, "vit-l-16", 16, 24, 1024, 4096, 64)
vit_h_14 = partial(vit, "vit-h-14", 14, 32, 1280, 5120, 80)


def _vit(patch: int, layers: int, width: int, hidden: int, head: int, side: int) -> Iterator[Module]:
    across = side // patch
    tokens = across**2 + 1
    yield conv2d("conv_proj", 3, width, kernel=patch, side=across, stride=patch, bias=True, first=True)
    # one kernel puts the token before the others, and one adds the embeddings
    yield Module(
        "class_token", (Tensor("class_token", width, rows=1),),
        forward=KernelSums(moved=2 * tokens * width, launches=1),
        backward=KernelSums(moved=width, launches=1),
    )  # fmt: skip
    yield Module(
        "encoder.pos_embedding", (Tensor("encoder.pos_embedding", tokens * width, rows=1),),
        forward=KernelSums(moved=2 * tokens * width, weights=tokens * width, launches=1),
        backward=KernelSums(moved=tokens * width, weights=tokens * width, launches=1),
    )  # fmt: skip
    for layer in range(layers):
        yield from _layer(f"encoder.layers.encoder_layer_{layer}", width, hidden, width // head, tokens)
    yield layer_norm("encoder.ln", width, tokens)
    yield linear("heads.head", width, 1000)
    yield elementwise("loss", 1000, keeps=1)


_COPIES = KernelSums(moved=14, launches=3), KernelSums(moved=53, launches=14)
"""What torch.nn.MultiheadAttention adds to a token's vector, as recorded: it transposes and copies its input,
queries, keys and values, adds their bias by a kernel of its own, and puts their gradients together one by
one."""


def _layer(name: str, width: int, hidden: int, heads: int, tokens: int) -> Iterator[Module]:
    yield layer_norm(f"{name}.ln_1", width, tokens)
    forward, backward = product(width, 3 * width, tokens, 3 * width**2)
    # torch.nn.MultiheadAttention has one weight for queries, keys and values, and names it so
    yield Module(
        f"{name}.self_attention.in_proj",
        parameters=(
            Tensor(f"{name}.self_attention.in_proj_weight", 3 * width**2, rows=3 * width),
            Tensor(f"{name}.self_attention.in_proj_bias", 3 * width),
        ),
        forward=forward + _COPIES[0].of(width * tokens),
        backward=backward + _COPIES[1].of(width * tokens),
        kept=width * tokens,
        reversed_arrival=True,
    )
    yield attention(f"{name}.self_attention", width, heads, tokens)
    yield linear(f"{name}.self_attention.out_proj", width, width, tokens)
    yield residual(f"{name}.add_1", width * tokens)
    yield layer_norm(f"{name}.ln_2", width, tokens)
    yield linear(f"{name}.mlp.0", width, hidden, tokens)
    yield elementwise(f"{name}.mlp.1", hidden * tokens, keeps=1)
    yield linear(f"{name}.mlp.3", hidden, width, tokens)
    yield residual(f"{name}.add_2", width * tokens)


def bert(
    name: str, layers: int, width: int, sequence: int = 512, predicted: int | None = None
) -> Architecture:
    """BERT, uncased, with both pre-training heads and dropout.

    Devlin et al., arXiv:1810.04805, section 3, whose "110M" and "340M" the model cards of
    google-bert/bert-base-uncased and bert-large-uncased give as 110M and 336M; 30,522 word pieces.
    """
    _check_sequence(sequence, 512)
    predicted = sequence if predicted is None else predicted
    if predicted > sequence:
        raise ValueError(f"{predicted} predicted of {sequence} tokens; write 0 to {sequence}")
    modules = list(_bert(layers, width, vocabulary=30522, tokens=sequence, predicted=predicted))
    definition = [module.name for module in modules if module.name != "cls.predictions"]
    definition.insert(definition.index("cls.predictions.transform.dense"), "cls.predictions")
    return assemble(name, f"sequence of {sequence} tokens", modules, definition, mixed=True, unfused=True)


def bert_encoder(sequence: int = 512) -> Architecture:
    """Return BERT-base without its pre-training heads, as in sentence embedding models."""
    model = bert("bert-encoder", 12, 768, sequence)
    blocks = (one for one in model.blocks if not one.name.startswith(("cls.", "loss")))
    parameters = (one for one in model.parameters if not one.name.startswith("cls."))
    return replace(model, blocks=tuple(blocks), parameters=tuple(parameters))


bert_base = partial(bert, "bert-base", 12, 768)
bert_large = partial(bert, "bert-large", 24, 1024)


def _bert(layers: int, width: int, vocabulary: int, tokens: int, predicted: int) -> Iterator[Module]:
    prefix = "bert.embeddings"
    yield embedding(f"{prefix}.word_embeddings", vocabulary, width, tokens)
    yield embedding(f"{prefix}.position_embeddings", 512, width, tokens)
    yield embedding(f"{prefix}.token_type_embeddings", 2, width, tokens)
    yield Module(f"{prefix}.add", forward=SUM.of(2 * width * tokens))
    yield layer_norm(f"{prefix}.LayerNorm", width, tokens)
    yield dropout(f"{prefix}.dropout", width * tokens)
    for layer in range(layers):
        yield from _bert_layer(f"bert.encoder.layer.{layer}", width, tokens)
    yield linear("bert.pooler.dense", width, width)
    yield elementwise("bert.pooler.activation", width, keeps=1)
    yield linear("cls.predictions.transform.dense", width, width, predicted)
    yield elementwise("cls.predictions.transform.transform_act_fn", width * predicted, keeps=1)
    yield layer_norm("cls.predictions.transform.LayerNorm", width, predicted)
    bias = Tensor("cls.predictions.bias", vocabulary)
    yield tied_linear("cls.predictions", width, vocabulary, predicted, bias)
    yield linear("cls.seq_relationship", width, 2)
    yield elementwise("loss", vocabulary * predicted, keeps=1)


def _bert_layer(name: str, width: int, tokens: int) -> Iterator[Module]:
    for projection in ("query", "key", "value"):
        yield linear(
            f"{name}.attention.self.{projection}", width, width, tokens, shares_input=projection != "query"
        )
    yield attention(f"{name}.attention.self", width, width // 64, tokens)
    yield linear(f"{name}.attention.output.dense", width, width, tokens)
    yield dropout(f"{name}.attention.output.dropout", width * tokens)
    yield residual(f"{name}.attention.output.add", width * tokens)
    yield layer_norm(f"{name}.attention.output.LayerNorm", width, tokens)
    yield linear(f"{name}.intermediate.dense", width, 4 * width, tokens)
    yield elementwise(f"{name}.intermediate.intermediate_act_fn", 4 * width * tokens, keeps=1)
    yield linear(f"{name}.output.dense", 4 * width, width, tokens)
    yield dropout(f"{name}.output.dropout", width * tokens)
    yield residual(f"{name}.output.add", width * tokens)
    yield layer_norm(f"{name}.output.LayerNorm", width, tokens)


def _check_sequence(sequence: int, longest: int) -> None:
    if not 1 <= sequence <= longest:
        raise ValueError(f"sequences of {sequence} tokens; this model takes 1 to {longest}")


MODELS: dict[str, Callable[..., Architecture]] = {
    "resnet50": resnet50,
    "vgg16": vgg16,
    "vit-b-16": vit_b_16,
    "vit-l-16": vit_l_16,
    "vit-h-14": vit_h_14,
    "bert-base": bert_base,
    "bert-large": bert_large,
    "bert-encoder": bert_encoder,
}
"""Every named model but decoders; the parameter is the size of a sample: an image's side, or tokens."""


def is_model(text: str) -> bool:
    """Return whether the text is `ringside.real.model.user_model`'s ``FILE.py:NAME``, not a workload."""
    return text.partition(":")[0].endswith(".py")


def find_model(text: str) -> Architecture | Decoder:
    """Parse ``gpt2-xl``, ``FILE.yaml:512`` or ``resnet50:160``: a model, with samples of that size."""
    name = text.partition(":")[0]
    if name in DECODERS:
        return decoder(text)
    if is_decoder_file(text):
        return read_decoder(text)
    if name not in MODELS:
        also = ", FILE.py:NAME, or a file of a decoder or timed layers (.yaml) or of measured steps (.json)"
        # a hub writes the owner before a slash
        known = one_of(NAMES, name.rpartition("/")[2], also=also)
        raise ValueError(f"unknown model {name!r}; write {known}")
    return architecture(text)


NAMES = (*MODELS, *DECODERS)
"""All models by name."""

SETTINGS = ("predicted", "layout")
"""Words after a sample's size, of models that have them."""


def architecture(text: str) -> Architecture:
    """Parse ``resnet50``, ``bert-large:512,predicted=80`` or ``vgg16:224,layout=nchw``."""
    name, _, settings = text.partition(":")
    make = MODELS[name]
    known = signature(make).parameters
    given: dict[str, int | str] = {}
    for setting in settings.split(",") if settings else ():
        key, is_named, value = setting.rpartition("=")
        if is_named and (key not in SETTINGS or key not in known):
            known_settings = ", ".join(f"{one}=" for one in SETTINGS if one in known) or "a size alone"
            raise ValueError(f"{text!r}: unknown word {key!r} of {name}; write {known_settings}")
        key = key or next(iter(known))
        if key in given:
            raise ValueError(f"{text!r} has {key} twice; write it once")
        if key != "layout" and not value.isdecimal():
            raise ValueError(f"{text!r}: {value!r} is not a sample's size; write for example {name}:256")
        given[key] = value if key == "layout" else int(value)
    return make(**given)
