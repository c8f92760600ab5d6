"""Vision transformers for images of ``side`` x ``side`` pixels and 1000 classes, without dropout.

Tensors have the names and the order that torchvision gives them. An image is cut into patches, one token
each; one more token stands for the whole image and is classified.
"""

from collections.abc import Iterator
from functools import partial

from ringside.sim.workload.architecture import Architecture, Module, assemble
from ringside.sim.workload.modules import attention, conv2d, elementwise, layer_norm, linear
from ringside.sim.workload.workload import Tensor


def vit(name: str, patch: int, layers: int, width: int, hidden: int, side: int = 224) -> Architecture:
    """Return a vision transformer with patches of ``patch`` x ``patch`` pixels.

    Dosovitskiy et al., arXiv:2010.11929, table 1; parameters as on torchvision's pages of the models
    (ViT_B_16_Weights.IMAGENET1K_V1: 86,567,656).
    """
    if side < patch or side % patch:
        fitting = max(patch, round(side / patch) * patch)
        raise ValueError(
            f"images of {side} x {side} pixels; write a multiple of {patch}, for example {fitting}"
        )
    modules = list(_vit(patch, layers, width, hidden, side))
    # the token is the model's own, and defined before its modules' tensors
    owners = [module.name for module in modules if module.parameters]
    definition = sorted(owners, key=lambda one: one != "class_token")
    return assemble(name, f"image of {side} x {side}", modules, definition)


vit_b_16 = partial(vit, "vit-b-16", 16, 12, 768, 3072)
vit_l_16 = partial(vit, "vit-l-16", 16, 24, 1024, 4096)
vit_h_14 = partial(vit, "vit-h-14", 14, 32, 1280, 5120)


def _vit(patch: int, layers: int, width: int, hidden: int, side: int) -> Iterator[Module]:
    across = side // patch
    tokens = across**2 + 1
    yield conv2d("conv_proj", 3, width, kernel=patch, side=across, stride=patch, bias=True)
    yield Module("class_token", (Tensor("class_token", width, rows=1),), traffic=2 * width)
    yield Module(
        "encoder.pos_embedding",
        (Tensor("encoder.pos_embedding", tokens * width, rows=1),),
        traffic=3 * tokens * width,
    )
    for layer in range(layers):
        yield from _layer(f"encoder.layers.encoder_layer_{layer}", width, hidden, tokens)
    yield layer_norm("encoder.ln", width, tokens)
    yield linear("heads.head", width, 1000)
    yield elementwise("loss", 1000, keeps=1)


def _layer(name: str, width: int, hidden: int, tokens: int) -> Iterator[Module]:
    yield layer_norm(f"{name}.ln_1", width, tokens)
    # torch.nn.MultiheadAttention has one weight for queries, keys and values, and names it so
    yield Module(
        f"{name}.self_attention.in_proj",
        parameters=(
            Tensor(f"{name}.self_attention.in_proj_weight", 3 * width**2, rows=3 * width),
            Tensor(f"{name}.self_attention.in_proj_bias", 3 * width),
        ),
        flops=6 * width**2 * tokens,
        traffic=4 * width * tokens,
        kept=width * tokens,
        reversed_arrival=True,
    )
    yield attention(f"{name}.self_attention", width, tokens)
    yield linear(f"{name}.self_attention.out_proj", width, width, tokens)
    yield elementwise(f"{name}.add_1", width * tokens, inputs=2)
    yield layer_norm(f"{name}.ln_2", width, tokens)
    yield linear(f"{name}.mlp.0", width, hidden, tokens)
    yield elementwise(f"{name}.mlp.1", hidden * tokens, keeps=1)
    yield linear(f"{name}.mlp.3", hidden, width, tokens)
    yield elementwise(f"{name}.add_2", width * tokens, inputs=2)
