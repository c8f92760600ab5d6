"""Operators are the kernels that torch counts, and cost what a GPU's kernels cost."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import flop_registry

from ringside.real.model.kernels import operator, tensors
from ringside.sim.compute.kernels import Flash, Gemm, Streaming
from ringside.sim.compute.prices import prices_on
from ringside.sim.recorded.job import Operator, Shaped
from ringside.sim.recorded.kernels import Convolution, HostCopy, flops, kernels
from ringside.sim.recorded.prices import OperatorPrices
from ringside.sim.workload.devices import device

aten = torch.ops.aten

GIVEN = {
    "mm": ((5, 7), (7, 3)),
    "addmm": ((3,), (5, 7), (7, 3)),
    "bmm": ((4, 5, 7), (4, 7, 3)),
    "baddbmm": ((4, 5, 3), (4, 5, 7), (4, 7, 3)),
}


@pytest.mark.parametrize("name", GIVEN)
def test_products_count_the_flops_that_torch_counts(name: str) -> None:
    with FakeTensorMode():
        args = tuple(torch.empty(shape) for shape in GIVEN[name])
        op = getattr(aten, name)
        made = op(*args)
        (kernel,) = kernels(operator(name, args, [made], args))
    assert isinstance(kernel, Gemm)
    assert flops(kernel) == flop_registry[op](*args, out_val=made)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_convolutions_count_the_flops_that_torch_counts(transposed: bool, groups: int) -> None:
    with FakeTensorMode():
        image = torch.empty(2, 8, 9, 9)
        weight = torch.empty(*((8, 6 // groups) if transposed else (6, 8 // groups)), 3, 3)
        settings = ([2, 2], [1, 1], [1, 1], transposed, [0, 0], groups)
        args = (image, weight, None, *settings)
        made = aten.convolution(*args)
        (one,) = kernels(operator("convolution", tensors(args), [made], args))
        back = (made, image, weight, [6], *settings, [True, True, True])
        gradients = aten.convolution_backward(*back)
        (both,) = kernels(operator("convolution_backward", tensors(back), tensors(gradients), back))
    assert isinstance(one, Convolution)
    assert one.flops == flop_registry[aten.convolution](*args, out_val=made)
    assert both.flops == 2 * one.flops


HEADS = Shaped((2, 8, 512, 64), "bfloat16")


@pytest.mark.parametrize("name", ["flash", "efficient", "cudnn"])
def test_attention_is_one_kernel(name: str) -> None:
    causal = (("is_causal", True),)
    forward = Operator(f"aten._scaled_dot_product_{name}_attention", (HEADS,) * 3, (HEADS,), causal)
    (one,) = kernels(forward)
    assert isinstance(one, Flash)
    assert (one.heads, one.sequence, one.scored, one.causal, one.backward) == (16, 512, 128, True, False)
    (back,) = kernels(Operator(f"{forward.name}_backward", (HEADS,) * 6, (HEADS,) * 3, causal))
    assert back == one._replace(backward=True)
    other = Shaped((2, 512, 8, 64), "bfloat16")
    assert kernels(Operator(f"aten._{name}_attention_forward", (other,) * 3, (other,), causal)) == (one,)


A = Shaped((1024, 1024), "float32")


@pytest.mark.parametrize(
    ("operator", "nbytes", "launches"),
    [
        (Operator("aten.add", (A, A), (A,)), 12 << 20, 1),
        (Operator("aten.add.Tensor", (A, A), (A,)), 12 << 20, 1),
        (Operator("aten.copy_", (A, A), (A,)), 8 << 20, 1),
        (Operator("aten.zero_", (A,), (A,)), 4 << 20, 1),
        (Operator("aten.embedding", (A, Shaped((8,), "int64")), (Shaped((8, 1024), "float32"),)), 65600, 1),
        (Operator("aten._foreach_mul_", (A,) * 200, (A,) * 200), 1600 << 20, 2),
        (Operator("aten._fused_adamw_", (A,) * 4, (A,) * 3), 28 << 20, 1),
        (Operator("aten._fused_adamw_", (A,) * 4), 28 << 20, 1),
        (Operator("fsdp.all_gather_copy_in", (A,) * 9, (A, Shaped((8, 1024, 1024), "float32"))), 8 << 20, 1),
    ],
    ids=lambda value: getattr(value, "name", ""),
)  # fmt: skip
def test_other_operators_move_what_they_read_and_write(
    operator: Operator, nbytes: int, launches: int
) -> None:
    assert kernels(operator) == (Streaming(nbytes, launches),)


@pytest.mark.parametrize("name", ["view", "detach", "empty", "t", "expand", "_unsafe_view"])
def test_views_and_empty_tensors_cost_nothing(name: str) -> None:
    operator = Operator(f"aten.{name}", (A,), (A,))
    assert kernels(operator) == ()
    assert OperatorPrices(device("h100")).seconds(operator) == 0


def test_a_copy_between_host_and_device_takes_the_slot() -> None:
    assert kernels(Operator("copy_to_device", (A,), (A,))) == (HostCopy(4 << 20),)
    assert OperatorPrices(device("h100"), 0.5).seconds(Operator("copy_to_host", (A,), ())) == pytest.approx(
        (4 << 20) / 48e9
    )


def product(dtype: str, *options: tuple[str, bool]) -> Operator:
    side = Shaped((8192, 8192), dtype)
    return Operator("aten.mm", (side, side), (side,), options)


def test_prices_are_those_of_kernels_in_the_type_of_their_inputs() -> None:
    gpu = device("h100")
    prices = OperatorPrices(gpu)
    for dtype in ("bfloat16", "float32"):
        wanted = prices_on(gpu, dtype).seconds(Gemm(8192, 8192, 8192))
        assert prices.seconds(product(dtype)) == pytest.approx(wanted)
    assert prices.precision(product("float32", ("allow_tf32", True))) == "tfloat32"
    assert prices.seconds(product("float32", ("allow_tf32", True))) < prices.seconds(product("float32"))
    share = OperatorPrices(gpu, efficiency=0.5)
    peak = gpu.peak("bfloat16")
    assert share.seconds(product("bfloat16")) == pytest.approx(2 * 8192**3 / (0.5 * peak))


def test_products_of_experts_are_one_launch() -> None:
    x, weights, ends = (Shaped(shape, "bfloat16") for shape in ((96, 32), (8, 32, 64), (8,)))
    made, gradient = Shaped((96, 64), "bfloat16"), Shaped((32, 96), "bfloat16")
    (forward,) = kernels(Operator("aten._grouped_mm", (x, weights, ends), (made,)))
    (back,) = kernels(Operator("aten._grouped_mm", (gradient, made, ends), (weights,)))
    assert forward == Gemm(12, 64, 32, 8)
    assert back == Gemm(32, 64, 12, 8)
    assert forward.flops == back.flops == 2 * 96 * 32 * 64


def test_a_convolution_is_in_tf32_unless_it_may_not_be() -> None:
    prices = OperatorPrices(device("h100"))
    image, weight = Shaped((64, 256, 56, 56), "float32"), Shaped((256, 256, 3, 3), "float32")
    said, allowed, denied = (
        Operator("aten.convolution", (image, weight), (image,), options)
        for options in ((), (("allow_tf32", True),), (("allow_tf32", False),))
    )
    assert prices.seconds(said) == prices.seconds(allowed) < prices.seconds(denied)


def test_a_product_of_nothing_takes_no_time() -> None:
    empty = Operator("aten.mm", (Shaped((0, 8), "float32"), Shaped((8, 8), "float32")))
    assert OperatorPrices(device("h100")).seconds(empty) == 0


def convolved(*options: tuple[str, bool], side: int = 3) -> Operator:
    image, filters = Shaped((32, 64, 56, 56), "bfloat16"), Shaped((64, 64, side, side), "bfloat16")
    return Operator("aten.convolution", (image, filters), (image,), options)


def normalized(channels: int, dtype: str, *options: tuple[str, bool], way: str = "") -> Operator:
    image = Shaped((32, channels, 56, 56), dtype)
    inputs = (image, image) if way else (image,)
    return Operator(f"aten.native_batch_norm{way}", inputs, (image,), options)


@given(
    st.sampled_from(["a100", "h100", "b200"]), st.sampled_from(["bfloat16", "float16", "float32"]),
    *[st.integers(1, 5000)] * 3,
)  # fmt: skip
def test_no_layout_makes_a_product_faster(gpu: str, dtype: str, m: int, n: int, k: int) -> None:
    prices = OperatorPrices(device(gpu))

    def seconds(*options: tuple[str, bool | int]) -> float:
        factors, result = (Shaped((m, k), dtype), Shaped((k, n), dtype)), (Shaped((m, n), dtype),)
        return prices.seconds(Operator("aten.mm", factors, result, options))

    narrower = [seconds(("alignment", alignment)) for alignment in (8, 4, 2)]
    assert [seconds(), *narrower] == sorted([seconds(), *narrower])
    if dtype == "float32":  # no tensor cores, whose instructions need whole vectors
        assert narrower == [seconds()] * 3


def test_images_whose_channels_do_not_vary_fastest_are_transposed() -> None:
    prices = OperatorPrices(device("h100"))
    apart, last = (("channels_last", False),), (("channels_last", True),)
    traffic = convolved().inputs[0].nbytes * 2 + convolved().inputs[1].nbytes
    more = prices.seconds(convolved(*apart)) - prices.seconds(convolved(*last))
    assert more == pytest.approx(2 * traffic / device("h100").streaming)
    assert prices.seconds(convolved(*apart, side=1)) == prices.seconds(convolved(*last, side=1))


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("way", ["", "_backward"])
def test_batch_norm_of_few_channels_leaves_multiprocessors_idle(dtype: str, way: str) -> None:
    prices, apart = OperatorPrices(device("h100")), ("channels_last", False)
    for channels in (16, 64, 256):
        together = prices.seconds(normalized(channels, dtype, ("channels_last", True), way=way))
        seconds = prices.seconds(normalized(channels, dtype, apart, way=way))
        assert seconds >= together > normalized(channels, dtype).inputs[0].nbytes * 3 / 3.35e12
    few, many = (prices.seconds(normalized(channels, dtype, apart, way=way)) for channels in (16, 64))
    assert few == pytest.approx(many, rel=0.01)  # a block each, with as many elements


def test_a_recurrent_layer_takes_its_steps_in_turn() -> None:
    data, state = Shaped((128, 64, 512), "bfloat16"), Shaped((1, 64, 1024), "bfloat16")
    weights = Shaped((4096, 512), "bfloat16"), Shaped((4096, 1024), "bfloat16")
    steps = (("steps", 128),)
    forward = kernels(Operator("cudnn_rnn", (data, state, state, *weights), (), steps))
    back = kernels(Operator("cudnn_rnn_backward", (data, state, state, *weights), (), steps))
    assert forward.count(Gemm(64, 4096, 1024)) == back.count(Gemm(64, 1024, 4096)) == 128
    assert sum(map(flops, forward)) * 2 == sum(map(flops, back)) == 4 * 128 * 64 * 4096 * 1536


@pytest.mark.parametrize("gpu", ["h100", "h200", "b200"])
def test_hopper_takes_cudnns_attention(gpu: str) -> None:
    heads = Shaped((4, 16, 2048, 128), "bfloat16")
    one = Operator("aten._scaled_dot_product_flash_attention", (heads,) * 3, (heads,), (("is_causal", True),))
    older = prices_on(device(gpu), "bfloat16").seconds(Flash(64, 2048, 256, version=2))
    assert OperatorPrices(device(gpu)).seconds(one) < older


@st.composite
def operators(draw: st.DrawFn) -> Operator:
    dtype = draw(st.sampled_from(["bfloat16", "float16", "float32"]))
    extents = st.integers(1, 300)
    batch, channels, side, more = (draw(extents) for _ in range(4))
    image = Shaped((batch, channels, side, side), dtype)
    last = (("channels_last", draw(st.booleans())),)
    kind = draw(st.sampled_from(["attention", "attention_backward", "convolution", "batch_norm", "layers"]))
    if kind == "convolution":
        filters = Shaped((more, channels, 3, 3), dtype)
        return Operator(
            "aten.convolution", (image, filters), (Shaped((batch, more, side, side), dtype),), last
        )
    if kind == "batch_norm":
        return Operator("aten.native_batch_norm", (image,), (image,), last)
    if kind == "layers":
        data, weights = Shaped((side, batch, channels), dtype), Shaped((4 * channels, channels), dtype)
        state = Shaped((1, batch, channels), dtype)
        return Operator("cudnn_rnn", (data, state, weights, weights), (data,), (("steps", side),))
    heads = Shaped((batch, more, 64 * side, 64), dtype)
    name = f"aten._scaled_dot_product_flash_{kind}"
    return Operator(name, (heads,) * (4 if "back" in kind else 3), (heads,), (("is_causal", last[0][1]),))


@given(st.sampled_from(["v100", "a100", "h100", "h200", "b200", "rtx4090", "mi300x"]), operators())
def test_no_operator_beats_its_flops_or_its_bytes(name: str, operator: Operator) -> None:
    gpu = device(name)
    dtype = operator.inputs[0].dtype
    if dtype not in gpu.flops_per_s:
        return
    peak = max(gpu.peak(dtype), gpu.flops_per_s.get("tfloat32", 0.0) if dtype == "float32" else 0.0)
    bounded = sum(flops(one) for one in kernels(operator) if isinstance(one, Gemm | Flash | Convolution))
    traffic = operator.inputs[0].nbytes + operator.outputs[0].nbytes
    least = max(bounded / peak, traffic / gpu.memory_bandwidth)
    assert OperatorPrices(gpu).seconds(operator) >= least
