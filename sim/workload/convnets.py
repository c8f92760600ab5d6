"""Convolutional networks for images of ``side`` x ``side`` pixels and 1000 classes.

Tensors have the names and the order that torchvision gives them.
"""

from collections.abc import Iterator

from ringside.sim.workload.architecture import Architecture, Module, assemble
from ringside.sim.workload.modules import batch_norm, conv2d, elementwise, linear

_RESNET50_STAGES = ((64, 3), (128, 4), (256, 6), (512, 3))
_VGG16_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def resnet50(side: int = 224) -> Architecture:
    """ResNet-50 v1.5: 25,557,032 parameters, 4.09 G multiply-adds an image.

    He et al., arXiv:1512.03385, table 1, with the stride in the 3 x 3 convolution as torchvision and
    NVIDIA train it; figures from torchvision's page of the model (ResNet50_Weights.IMAGENET1K_V1).
    """
    _check_side(side)
    return assemble("resnet50", f"image of {side} x {side}", list(_resnet50(side)))


def vgg16(side: int = 224) -> Architecture:
    """VGG-16: 138,357,544 parameters, 15.47 G multiply-adds an image.

    Simonyan and Zisserman, arXiv:1409.1556, table 1, column D; figures from torchvision's page of the
    model (VGG16_Weights.IMAGENET1K_V1).
    """
    _check_side(side)
    return assemble("vgg16", f"image of {side} x {side}", list(_vgg16(side)))


def _resnet50(side: int) -> Iterator[Module]:
    side //= 2
    yield conv2d("conv1", 3, 64, kernel=7, side=side, stride=2)
    yield batch_norm("bn1", 64, side)
    yield elementwise("relu", 64 * side**2, keeps=1)
    side //= 2
    yield elementwise("maxpool", 64 * side**2, inputs=4, keeps=1)
    channels = 64
    for stage, (width, blocks) in enumerate(_RESNET50_STAGES, 1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            side //= stride
            yield from _bottleneck(f"layer{stage}.{block}", channels, width, side, stride)
            channels = 4 * width
    yield elementwise(
        "avgpool",
        channels * side**2,
    )
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
    yield elementwise(f"{name}.add", 4 * width * side**2, inputs=2)
    yield elementwise(f"{name}.relu3", 4 * width * side**2)


def _vgg16(side: int) -> Iterator[Module]:
    channels, index = 3, 0
    for width, convs in _VGG16_STAGES:
        for conv in range(convs):
            yield conv2d(f"features.{index}", channels, width, kernel=3, side=side, bias=True)
            yield elementwise(f"features.{index + 1}", width * side**2, keeps=int(conv == convs - 1))
            channels, index = width, index + 2
        side //= 2
        yield elementwise(f"features.{index}", width * side**2, inputs=4, keeps=1)
        index += 1
    yield linear("classifier.0", channels * 7**2, 4096)
    yield elementwise("classifier.1", 4096)
    yield linear("classifier.3", 4096, 4096)
    yield elementwise("classifier.4", 4096)
    yield linear("classifier.6", 4096, 1000)


def _check_side(side: int) -> None:
    if side < 32 or side % 32:
        raise ValueError(f"images of {side} x {side} pixels; write a multiple of 32, for example 224")
