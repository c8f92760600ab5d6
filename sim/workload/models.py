"""Well-known models by name: what ``--model NAME[:SIZE]`` means."""

from collections.abc import Callable

from sim.workload.architecture import Architecture
from sim.workload.convnets import resnet50, vgg16
from sim.workload.transformers import (
    bert_base,
    bert_large,
    gpt2_large,
    gpt2_medium,
    gpt2_small,
    gpt2_xl,
    llama2_7b,
    llama2_70b,
)

MODELS: dict[str, Callable[..., Architecture]] = {
    "resnet50": resnet50,
    "vgg16": vgg16,
    "bert-base": bert_base,
    "bert-large": bert_large,
    "gpt2": gpt2_small,
    "gpt2-medium": gpt2_medium,
    "gpt2-large": gpt2_large,
    "gpt2-xl": gpt2_xl,
    "llama2-7b": llama2_7b,
    "llama2-70b": llama2_70b,
}
"""Every named model; the parameter is the size of a sample: an image's side in pixels, or tokens."""


def architecture(text: str) -> Architecture:
    """The model that ``gpt2-xl`` or ``gpt2-xl:512`` names, with samples of that size."""
    name, _, size = text.partition(":")
    if name not in MODELS:
        raise ValueError(
            f"{name!r} is no known model; write one of {', '.join(MODELS)}, or a YAML file's name"
        )
    if size and not size.isdecimal():
        raise ValueError(f"{text!r}: {size!r} is not a sample's size; write for example {name}:256")
    return MODELS[name](int(size)) if size else MODELS[name]()
