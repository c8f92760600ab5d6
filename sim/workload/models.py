"""Well-known models by name: what ``--model NAME[:SIZE]`` means."""

from collections.abc import Callable
from functools import partial

from sim.workload.architecture import Architecture
from sim.workload.convnets import resnet50, vgg16
from sim.workload.decoder import DECODERS
from sim.workload.transformers import bert_base, bert_large, decoder_architecture
from sim.workload.vision import vit_b_16, vit_h_14, vit_l_16
from topologies.words import one_of

MODELS: dict[str, Callable[..., Architecture]] = {
    "resnet50": resnet50,
    "vgg16": vgg16,
    "vit-b-16": vit_b_16,
    "vit-l-16": vit_l_16,
    "vit-h-14": vit_h_14,
    "bert-base": bert_base,
    "bert-large": bert_large,
    **{name: partial(decoder_architecture, name) for name in DECODERS},
}
"""Every named model; the parameter is the size of a sample: an image's side in pixels, or tokens."""


def architecture(text: str) -> Architecture:
    """The model that ``gpt2-xl`` or ``gpt2-xl:512`` names, with samples of that size."""
    name, _, size = text.partition(":")
    if name not in MODELS:
        known = one_of(MODELS, name, also=", or a YAML file's name")
        raise ValueError(f"{name!r} is no known model; write {known}")
    if size and not size.isdecimal():
        raise ValueError(f"{text!r}: {size!r} is not a sample's size; write for example {name}:256")
    return MODELS[name](int(size)) if size else MODELS[name]()
