import pytest

from ringside.sim.compute.prices import LAUNCH_S, Prices, StackOnGpu, prices_on
from ringside.sim.training.tensor.costs import Numerics
from ringside.sim.training.tensor.decoder import decoder_workload
from ringside.sim.workload.architecture import KEPT_SCORES, TENSOR_CORES, workload
from ringside.sim.workload.decoder import DECODERS, decoder
from ringside.sim.workload.devices import DEVICES, MEMORY_EFFICIENCY, Roofline, device
from ringside.sim.workload.models import MODELS, architecture, find_model

PARAMETERS = {
    "resnet50": 25_557_032,  # torchvision, ResNet50_Weights.IMAGENET1K_V1: num_params
    "vgg16": 138_357_544,  # torchvision, VGG16_Weights.IMAGENET1K_V1: num_params
    "vit-b-16": 86_567_656,  # torchvision, ViT_B_16_Weights.IMAGENET1K_V1: num_params
    "vit-l-16": 304_326_632,  # torchvision, ViT_L_16_Weights.IMAGENET1K_V1: num_params
    "vit-h-14": 632_045_800,  # torchvision, ViT_H_14_Weights.IMAGENET1K_SWAG_LINEAR_V1: num_params
    "bert-base": 110_106_428,  # model card of google-bert/bert-base-uncased: 110M
    "bert-large": 336_226_108,  # model card of google-bert/bert-large-uncased: 336M
    "gpt2": 124_439_808,  # model card of openai-community/gpt2: 124M
    "gpt2-medium": 354_823_168,  # model card of openai-community/gpt2-medium: 355M
    "gpt2-large": 774_030_080,  # model card of openai-community/gpt2-large: 774M
    "gpt2-xl": 1_557_611_200,  # model card of openai-community/gpt2-xl: 1.5B
    "bert-encoder": 109_482_240,  # BertModel of google-bert/bert-base-uncased, with its pooler
    "llama2-7b": 6_738_415_616,  # checkpoint of meta-llama/Llama-2-7b-hf
    "llama2-13b": 13_015_864_320,  # checkpoint of meta-llama/Llama-2-13b-hf
    "llama2-70b": 68_976_648_192,  # checkpoint of meta-llama/Llama-2-70b-hf
    "llama3-8b": 8_030_261_248,  # checkpoint of meta-llama/Meta-Llama-3-8B
    "llama3-70b": 70_553_706_496,  # checkpoint of meta-llama/Meta-Llama-3-70B
    "llama3-405b": 405_853_388_800,  # checkpoint of meta-llama/Llama-3.1-405B
    "llama3.1-8b": 8_030_261_248,  # checkpoint of meta-llama/Llama-3.1-8B
    "llama3.1-70b": 70_553_706_496,  # checkpoint of meta-llama/Llama-3.1-70B
    "llama3.1-405b": 405_853_388_800,  # checkpoint of meta-llama/Llama-3.1-405B
    "mixtral-8x7b": 46_702_792_704,  # checkpoint of mistralai/Mixtral-8x7B-v0.1: 93,405,585,408 bytes
    "mixtral-8x22b": 140_620_634_112,  # checkpoint of mistralai/Mixtral-8x22B-v0.1: 281,241,268,224 bytes
    "deepseek-v2": 235_741_434_880,  # deepseek-ai/DeepSeek-V2, model card: 236B
    "deepseek-v3": 671_026_419_200,  # main model of deepseek-ai/DeepSeek-V3, README_WEIGHTS.md: 671B
}

# Brown et al., arXiv:2005.14165, table D.1: total parameters in millions
GPT3 = {
    "gpt3-125m": 125,
    "gpt3-350m": 356,
    "gpt3-760m": 760,
    "gpt3-1.3b": 1_320,
    "gpt3-2.7b": 2_650,
    "gpt3-6.7b": 6_660,
    "gpt3-13b": 12_850,
    "gpt3-175b": 174_600,
}


def test_parameter_counts_are_the_published_ones() -> None:
    counts = {name: find_model(name).num_parameters for name in (*MODELS, *DECODERS) if name not in GPT3}
    assert counts == PARAMETERS


@pytest.mark.parametrize("name", GPT3)
def test_the_gpt_3_family_has_the_millions_that_its_paper_prints(name: str) -> None:
    assert decoder(name).num_parameters / 1e6 == pytest.approx(GPT3[name], rel=4e-3)


# billions that a token passes: arXiv:2401.04088, section 1; mistral.ai/news/mixtral-8x22b; of DeepSeek-V3
# without its embedding, README_WEIGHTS.md
@pytest.mark.parametrize(
    ("name", "billions", "embedding"),
    [("mixtral-8x7b", 13, 0), ("mixtral-8x22b", 39, 0), ("deepseek-v3", 36.6, 129280 * 7168)],
)
def test_a_token_passes_as_much_of_a_mixture_of_experts_as_was_published(
    name: str, billions: float, embedding: int
) -> None:
    passed = decoder(name).parameters(active=True) - embedding
    assert passed / 1e9 == pytest.approx(billions, rel=0.01)


def test_a_decoder_without_experts_is_passed_whole() -> None:
    assert decoder("llama3-8b").parameters(active=True) == decoder("llama3-8b").num_parameters


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_and_its_workload_are_one_model(name: str) -> None:
    # a token count that experts divide
    model = decoder(f"{name}:640")
    computing = StackOnGpu(Prices(roofline=Roofline(1e9, 1e300, 2)))
    found = decoder_workload(model, computing, 1, "float32", Numerics(attention="full"))
    assert model.num_parameters == found.num_parameters
    assert model.flops() == pytest.approx(1e9 * found.totals.forward_s, rel=1e-12)
    assert model.training_flops() == pytest.approx(
        1e9 * (found.totals.forward_s + found.totals.backward_s), rel=1e-12
    )


@pytest.mark.parametrize(
    ("name", "multiply_adds"),
    [
        ("resnet50", 4.09e9),
        ("vgg16", 15.47e9),
        ("vit-b-16", 17.56e9),
        ("vit-l-16", 61.55e9),
        ("vit-h-14", 167.29e9),
    ],
)
def test_flops_are_the_published_ones(name: str, multiply_adds: float) -> None:
    assert architecture(name).flops / 2 == pytest.approx(multiply_adds, rel=2e-3)


@pytest.mark.parametrize("name", ["gpt2-xl", "llama2-7b", "llama2-70b"])
def test_language_models_cost_about_two_flops_a_parameter_and_token(name: str) -> None:
    model = decoder(f"{name}:128")
    assert model.flops() / 128 == pytest.approx(2 * model.num_parameters, rel=0.05)


def test_time_is_the_slower_of_arithmetic_and_memory_and_a_launch_a_kernel() -> None:
    model, a100 = architecture("resnet50"), device("a100")
    by_name = {block.name: block for block in model.blocks}
    step = {layer.name: layer for layer in workload(model, a100, 64, "float16").layers}

    conv = by_name["layer3.1.conv2"]
    assert step[conv.name].forward_s == pytest.approx(64 * conv.forward.flops / (TENSOR_CORES * 312e12))
    assert step[conv.name].backward_s == pytest.approx(2 * step[conv.name].forward_s)
    norm, streams = by_name["bn1"], MEMORY_EFFICIENCY * 2039e9
    assert (norm.forward.moved, norm.backward.moved) == (2 * 64 * 112**2, 3 * 64 * 112**2)
    assert step[norm.name].forward_s == pytest.approx(64 * norm.forward.moved * 2 / streams + 2 * LAUNCH_S)
    assert step[norm.name].backward_s == pytest.approx(64 * norm.backward.moved * 2 / streams + LAUNCH_S)


@pytest.mark.parametrize(("gpu", "precision", "transposed"), [
    ("a100", "float16", 0), ("a100", "tfloat32", 1), ("a100", "float32", 1), ("v100", "float32", 0),
])  # fmt: skip
def test_what_tensor_cores_convolve_is_transposed_unless_channels_are_last(
    gpu: str, precision: str, transposed: int
) -> None:
    usual, first, last = (
        workload(architecture(f"resnet50:224{words}"), device(gpu), 64, precision).totals
        for words in ("", ",layout=nchw", ",layout=nhwc")
    )
    tensor_cores = (gpu, precision) != ("v100", "float32")
    assert usual == (first if transposed or not tensor_cores else last)
    assert (last.forward_s < first.forward_s) is tensor_cores
    assert (last.backward_s < first.backward_s) is tensor_cores


def test_attention_that_writes_its_scores_takes_longer_and_keeps_them() -> None:
    model, gpu = architecture("bert-base:384"), device("a100")
    unfused, full = (workload(model.attending(kind), gpu, 8) for kind in ("unfused", "full"))
    assert unfused == workload(model, gpu, 8), "as BERT's own code"
    assert full.totals.forward_s < unfused.totals.forward_s
    kept = unfused.totals.activation_nbytes - full.totals.activation_nbytes
    assert kept == 12 * 12 * 384**2 * KEPT_SCORES * 8 * 2
    for one, kind, message in (
        (model, "flash", "write one of full, unfused"),
        (architecture("resnet50"), "full", "leave it out"),
    ):
        with pytest.raises(ValueError, match=message):
            one.attending(kind)


def test_masked_tokens_alone_may_be_predicted() -> None:
    whole, some = architecture("bert-large:128"), architecture("bert-large:128,predicted=20")
    head = 2 * 1024 * (30522 + 1024)
    assert whole.flops - some.flops == head * 108
    assert whole == architecture("bert-large:128,predicted=128")


def test_a_workload_keeps_the_gradients_in_their_dtype() -> None:
    encoder, gpt, gpu = architecture("bert-base:128"), decoder("gpt2:128"), device("h100")
    for mixed, cast, parameters in (
        (
            workload(encoder, gpu, 4, "bfloat16"),
            workload(encoder, gpu, 4, "bfloat16", dtype="bfloat16"),
            encoder.num_parameters,
        ),
        (
            *(
                decoder_workload(gpt, StackOnGpu(prices_on(gpu, "bf16")), 4, dtype)
                for dtype in ("float32", "bfloat16")
            ),
            gpt.num_parameters,
        ),
    ):
        assert mixed.totals.nbytes == 2 * cast.totals.nbytes == 4 * parameters
        assert mixed.layers == cast.layers
        assert mixed.arrival == tuple(index for layer in mixed.layers for index in layer.gradients)


def test_an_efficiency_is_that_of_products_and_convolutions_of_any_kind() -> None:
    model, gpu = architecture("vgg16"), device("v100")
    slow, quick = (workload(model, gpu, 64, "fp32", compute_efficiency=share).totals for share in (0.3, 0.6))
    products = model.flops * 64 / (0.3 * 15.7e12)
    assert slow.forward_s - quick.forward_s == pytest.approx(products / 2, rel=0.02)


@pytest.mark.parametrize("name", DEVICES)
def test_lower_precision_is_never_slower(name: str) -> None:
    peaks = list(DEVICES[name].flops_per_s.values())
    assert peaks == sorted(peaks)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet51", "unknown model 'resnet51'; write resnet50 "),
        ("gpt2:x", "'x' is not a number of tokens; write for example gpt2:2048"),
        ("gpt2:4096", "sequences of 4096 tokens; this model takes 1 to 1024"),
        ("bert-large:0", "sequences of 0 tokens; this model takes 1 to 512"),
        ("vit-h-14:225", "images of 225 x 225 pixels; write a multiple of 14, for example 224"),
        ("vgg16:100", "images of 100 x 100 pixels; write a multiple of 32"),
        ("vgg16:224,layout=chwn", "unknown layout 'chwn'; write nchw or nhwc"),
        ("vgg16:224,predicted=2", "unknown word 'predicted' of vgg16; write layout="),
        ("bert-base:128,predicted=129", "129 predicted of 128 tokens; write 0 to 128"),
        ("bert-base:128,64", "has sequence twice; write it once"),
    ],
)
def test_a_wrong_name_says_what_to_write(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_model(name)


def test_a_wrong_device_precision_or_efficiency_says_what_to_write() -> None:
    model = architecture("resnet50")
    with pytest.raises(ValueError, match="unknown GPU 'b100'; write b200 "):
        device("b100")
    with pytest.raises(ValueError, match="v100 has no peak for 'bfloat16'; write float16 "):
        workload(model, device("v100"), 1, "bfloat16")
    with pytest.raises(ValueError, match=r"a compute efficiency of 2; write a share from 1e-06 to 1"):
        workload(model, device("v100"), 1, compute_efficiency=2)
    with pytest.raises(ValueError, match="a batch of 0; write 1 to"):
        workload(model, device("v100"), 0)
