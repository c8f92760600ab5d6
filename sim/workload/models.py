"""Well-known models by name: the values of ``--model NAME[:SIZE]``."""

from collections.abc import Callable

from ringside.sim.workload.architecture import Architecture
from ringside.sim.workload.convnets import resnet50, vgg16
from ringside.sim.workload.decoder import DECODERS, Decoder, decoder
from ringside.sim.workload.transformers import bert_base, bert_encoder, bert_large
from ringside.sim.workload.vision import vit_b_16, vit_h_14, vit_l_16
from ringside.topologies.names import one_of

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


def find_model(text: str) -> Architecture | Decoder:
    """Parse ``gpt2-xl``, ``gpt2-xl:512`` or ``resnet50:160``: a model, with samples of that size."""
    name = text.partition(":")[0]
    if name in DECODERS:
        return decoder(text)
    if name not in MODELS:
        also = ", FILE.py:NAME, or a file of timed layers (.yaml) or of measured steps (.json)"
        # a hub writes the owner before a slash
        known = one_of([*MODELS, *DECODERS], name.rpartition("/")[2], also=also)
        raise ValueError(f"unknown model {name!r}; write {known}")
    return architecture(text)


def architecture(text: str) -> Architecture:
    """Parse ``resnet50`` or ``bert-large:512``: a model, with samples of that size."""
    name, _, size = text.partition(":")
    if size and not size.isdecimal():
        raise ValueError(f"{text!r}: {size!r} is not a sample's size; write for example {name}:256")
    return MODELS[name](int(size)) if size else MODELS[name]()
