from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, scaled_dot_product_attention, silu

from ringside.real.model.architecture import architecture as traced
from ringside.sim.compute.prices import Prices, StackOnGpu
from ringside.sim.compute.stacks import STACKS
from ringside.sim.training.tensor.costs import Numerics
from ringside.sim.training.tensor.decoder import decoder_workload
from ringside.sim.workload.architecture import Architecture, KernelSums
from ringside.sim.workload.decoder import DECODERS, Decoder, decoder
from ringside.sim.workload.devices import Roofline
from ringside.sim.workload.models import MODELS, architecture

# The models as torch modules, with the names that torchvision and Hugging Face give their parts


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        if inputs != 4 * width:
            shortcut = nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)
            self.downsample: nn.Module = nn.Sequential(shortcut, nn.BatchNorm2d(4 * width))
        else:
            self.downsample = nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn1(self.conv1(x)).relu_()
        y = self.bn2(self.conv2(y)).relu_()
        return (self.bn3(self.conv3(y)) + self.downsample(x)).relu_()


class ResNet50(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 64, 7, 2, padding=3, bias=False), nn.BatchNorm2d(64)
        inputs = 64
        for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
            strides = [1 if stage == 1 else 2] + [1] * (blocks - 1)
            ins = [inputs] + [4 * width] * (blocks - 1)
            layer = nn.Sequential(*[Bottleneck(i, width, s) for i, s in zip(ins, strides, strict=True)])
            setattr(self, f"layer{stage}", layer)
            inputs = 4 * width
        self.fc = nn.Linear(2048, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu_(), 3, 2, 1)
        for stage in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = stage(x)
        return self.fc(x.mean((2, 3)))


class Vgg16(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for width, convs in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
            for _ in range(convs):
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU(inplace=True)]
                inputs = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        head = [
            nn.Linear(25088, 4096),
            nn.ReLU(),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(),
            nn.Dropout(),
        ]
        self.classifier = nn.Sequential(*head, nn.Linear(4096, 1000))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))


def attend(q: Tensor, k: Tensor, v: Tensor, head: int = 64) -> Tensor:
    q, k, v = (x.unflatten(-1, (-1, head)).transpose(1, 2) for x in (q, k, v))
    return scaled_dot_product_attention(q, k, v, enable_gqa=True).transpose(1, 2).flatten(2)


def named(**parts: nn.Module) -> nn.ModuleDict:
    return nn.ModuleDict(parts)


class BertLayer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        linear, norm = nn.Linear(width, width), nn.LayerNorm(width)
        heads = named(
            query=nn.Linear(width, width), key=nn.Linear(width, width), value=nn.Linear(width, width)
        )
        self.attention = named(self=heads, output=named(dense=linear, LayerNorm=norm))
        self.intermediate = named(dense=nn.Linear(width, 4 * width))
        self.output = named(dense=nn.Linear(4 * width, width), LayerNorm=nn.LayerNorm(width))

    def forward(self, x: Tensor) -> Tensor:
        heads, output = self.attention["self"], self.attention["output"]
        y = attend(heads["query"](x), heads["key"](x), heads["value"](x))
        x = output["LayerNorm"](dropout(output["dense"](y), 0.1) + x)
        y = self.output["dense"](nn.functional.gelu(self.intermediate["dense"](x)))
        return self.output["LayerNorm"](dropout(y, 0.1) + x)


class BertPredictions(nn.Module):
    def __init__(self, width: int, table: nn.Embedding) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(table.num_embeddings))
        self.transform = named(dense=nn.Linear(width, width), LayerNorm=nn.LayerNorm(width))
        self.decoder = nn.Linear(width, table.num_embeddings)
        self.decoder.weight, self.decoder.bias = table.weight, self.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.transform["LayerNorm"](nn.functional.gelu(self.transform["dense"](x))))


class Bert(nn.Module):
    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        embeddings = named(
            word_embeddings=nn.Embedding(30522, width),
            position_embeddings=nn.Embedding(512, width),
            token_type_embeddings=nn.Embedding(2, width),
            LayerNorm=nn.LayerNorm(width),
        )
        encoder = named(layer=nn.ModuleList(BertLayer(width) for _ in range(layers)))
        self.bert = named(embeddings=embeddings, encoder=encoder, pooler=named(dense=nn.Linear(width, width)))
        predictions = BertPredictions(width, embeddings["word_embeddings"])
        self.cls = named(predictions=predictions, seq_relationship=nn.Linear(width, 2))

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        embeddings = self.bert["embeddings"]
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        x = embeddings["word_embeddings"](tokens)
        x = x + embeddings["position_embeddings"](positions) + embeddings["token_type_embeddings"](tokens * 0)
        x = dropout(embeddings["LayerNorm"](x), 0.1)
        for layer in self.bert["encoder"]["layer"]:
            x = layer(x)
        pooled = torch.tanh(self.bert["pooler"]["dense"](x[:, 0]))
        return self.cls["predictions"](x), self.cls["seq_relationship"](pooled)


class Conv1d(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.zeros(inputs, outputs)),
            nn.Parameter(torch.zeros(outputs)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.flatten(0, 1), self.weight).unflatten(0, x.shape[:2])


class Gpt2Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = named(c_attn=Conv1d(width, 3 * width), c_proj=Conv1d(width, width))
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = named(c_fc=Conv1d(width, 4 * width), c_proj=Conv1d(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn["c_proj"](attend(*self.attn["c_attn"](self.ln_1(x)).chunk(3, -1)))
        return x + self.mlp["c_proj"](nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x))))


class Gpt2(nn.Module):
    def __init__(self, layers: int, width: int, positions: int = 1024) -> None:
        super().__init__()
        self.transformer = named(
            wte=nn.Embedding(50257, width),
            wpe=nn.Embedding(positions, width),
            h=nn.ModuleList(Gpt2Block(width) for _ in range(layers)),
            ln_f=nn.LayerNorm(width),
        )
        self.lm_head = nn.Linear(width, 50257, bias=False)
        self.lm_head.weight = self.transformer["wte"].weight

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        x = self.transformer["wte"](tokens) + self.transformer["wpe"](positions)
        for block in self.transformer["h"]:
            x = block(x)
        return self.lm_head(self.transformer["ln_f"](x))


class LlamaLayer(nn.Module):
    def __init__(self, width: int, hidden: int, key_value: int) -> None:
        super().__init__()
        shapes = {"q": (width, width), "k": (width, key_value), "v": (width, key_value), "o": (width, width)}
        self.self_attn = named(**{f"{n}_proj": nn.Linear(*s, bias=False) for n, s in shapes.items()})
        shapes = {"gate": (width, hidden), "up": (width, hidden), "down": (hidden, width)}
        self.mlp = named(**{f"{n}_proj": nn.Linear(*s, bias=False) for n, s in shapes.items()})
        self.input_layernorm, self.post_attention_layernorm = nn.RMSNorm(width), nn.RMSNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        heads, mlp, y = self.self_attn, self.mlp, self.input_layernorm(x)
        x = x + heads["o_proj"](attend(heads["q_proj"](y), heads["k_proj"](y), heads["v_proj"](y), head=128))
        y = self.post_attention_layernorm(x)
        return x + mlp["down_proj"](silu(mlp["gate_proj"](y)) * mlp["up_proj"](y))


class Llama(nn.Module):
    def __init__(self, layers: int, width: int, hidden: int, key_value: int, vocabulary: int = 32000) -> None:
        super().__init__()
        self.model = named(
            embed_tokens=nn.Embedding(vocabulary, width),
            layers=nn.ModuleList(LlamaLayer(width, hidden, key_value) for _ in range(layers)),
            norm=nn.RMSNorm(width),
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.model["embed_tokens"](tokens)
        for layer in self.model["layers"]:
            x = layer(x)
        return self.lm_head(self.model["norm"](x))


class VitLayer(nn.Module):
    def __init__(self, width: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps=1e-6)
        self.self_attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.ln_2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, hidden), nn.GELU(), nn.Dropout(0.0), nn.Linear(hidden, width), nn.Dropout(0.0)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.ln_1(x)
        x = x + self.self_attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class VitEncoder(nn.Module):
    def __init__(self, layers: int, width: int, hidden: int, heads: int, tokens: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.zeros(1, tokens, width))
        self.layers = nn.Sequential()
        for number in range(layers):
            self.layers.add_module(f"encoder_layer_{number}", VitLayer(width, hidden, heads))
        self.ln = nn.LayerNorm(width, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return self.ln(self.layers(x + self.pos_embedding))


class Vit(nn.Module):
    def __init__(self, patch: int, layers: int, width: int, hidden: int, heads: int, side: int = 224) -> None:
        super().__init__()
        self.conv_proj = nn.Conv2d(3, width, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.encoder = VitEncoder(layers, width, hidden, heads, (side // patch) ** 2 + 1)
        self.heads = named(head=nn.Linear(width, 1000))

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_proj(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1)
        return self.heads["head"](self.encoder(x)[:, 0])


REFERENCES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet50": (ResNet50, (3, 224, 224)),
    "vgg16": (Vgg16, (3, 224, 224)),
    "bert-base:128": (lambda: Bert(12, 768), (128,)),
    "bert-large:128": (lambda: Bert(24, 1024), (128,)),
    "gpt2:64": (lambda: Gpt2(12, 768), (64,)),
    "gpt2-medium:64": (lambda: Gpt2(24, 1024), (64,)),
    "gpt2-large:64": (lambda: Gpt2(36, 1280), (64,)),
    "gpt2-xl:64": (lambda: Gpt2(48, 1600), (64,)),
    "llama2-7b:64": (lambda: Llama(32, 4096, 11008, 4096), (64,)),
    "llama3-8b:64": (lambda: Llama(32, 4096, 14336, 1024, 128256), (64,)),
    "gpt3-350m:64": (lambda: Gpt2(24, 1024, 2048), (64,)),
    "llama2-70b:64": (lambda: Llama(80, 8192, 28672, 1024), (64,)),
    "vit-b-16": (lambda: Vit(16, 12, 768, 3072, 12), (3, 224, 224)),
    "vit-h-14": (lambda: Vit(14, 32, 1280, 5120, 16), (3, 224, 224)),
}

MIXTURES = {"mixtral", "deepseek"}
"""Their tokens go where their numbers say, which a trace without numbers cannot follow."""


LLAMA = {
    "embedding.embedding": "model.embed_tokens", "head.norm": "model.norm", "head.head": "lm_head",
    "query": "self_attn.q_proj", "key": "self_attn.k_proj", "value": "self_attn.v_proj",
    "output": "self_attn.o_proj", "gate": "mlp.gate_proj", "up": "mlp.up_proj", "down": "mlp.down_proj",
    "attention_norm": "input_layernorm", "feed_forward_norm": "post_attention_layernorm",
}  # fmt: skip
GPT = {
    "embedding.embedding": "transformer.wte", "embedding.positions": "transformer.wpe",
    "head.norm": "transformer.ln_f", "query_key_value": "attn.c_attn", "output": "attn.c_proj",
    "up": "mlp.c_fc", "down": "mlp.c_proj", "attention_norm": "ln_1", "feed_forward_norm": "ln_2",
}  # fmt: skip
"""Hugging Face's names of a decoder's modules, by Ringside's."""


def test_every_family_of_models_has_a_reference() -> None:
    families = {name.partition("-")[0].partition(".")[0] for name in (*MODELS, *DECODERS)} - MIXTURES
    assert {name.partition(":")[0].partition("-")[0] for name in REFERENCES} == families


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in REFERENCES if name.partition(":")[0] in DECODERS])
def test_a_decoder_is_what_the_module_is(name: str) -> None:
    make, shape = REFERENCES[name]
    with torch.device("meta"):
        found = traced(make(), torch.zeros(2, *shape, dtype=torch.long))
    model = decoder(name)
    table, read = (
        decoder_workload(
            model, StackOnGpu(Prices(roofline=Roofline(*rates, 2))), 1, "float32", Numerics(attention="full")
        )
        for rates in ((1e9, 1e300), (1e300, 2e9))
    )

    assert tuple(replace(one, name=hugging_face(one.name, model)) for one in table.parameters) == (
        found.parameters
    )
    assert table.buffers == found.buffers
    assert list(table.arrival) == arrival(found)
    assert 1e9 * table.totals.forward_s == pytest.approx(found.flops, rel=1e-12)
    logits = model.sequence * model.vocabulary
    products = [one for one in table.parameters if one.rows and not one.name.startswith("embedding")]
    # a tied output product reads the embedding
    tied = model.vocabulary * model.width if model.tied else 0
    loss = STACKS["eager"].loss.forward / 2 * logits
    moved = 1e9 * read.totals.forward_s - sum(one.count for one in products) - tied - loss
    forward = added(found, "forward")
    # the reference does not turn queries and keys
    assert 0.9 < moved / (forward.touched + forward.moved) < 1.35
    # logits in float32 stand for the loss
    assert (
        0.7
        < (sum(layer.activation_nbytes for layer in table.layers) - 4 * logits) / 2 / total(found, "kept")
        < 1.3
    )


def hugging_face(name: str, model: Decoder) -> str:
    """Return Hugging Face's name of ``layer 3.query.weight``."""
    names = GPT if model.positions else LLAMA
    layer, module, kind = name.split(".")
    if not layer.startswith("layer "):
        return f"{names[f'{layer}.{module}']}.{kind}"
    layers = "transformer.h" if model.positions else "model.layers"
    return f"{layers}.{layer.removeprefix('layer ')}.{names[module]}.{kind}"


@pytest.mark.parametrize("name", [name for name in REFERENCES if name.partition(":")[0] not in DECODERS])
def test_table_is_what_the_module_is(name: str) -> None:
    make, shape = REFERENCES[name]
    image = len(shape) == 3
    with torch.device("meta"):
        module = make().bfloat16()
        found = traced(module, torch.zeros(2, *shape, dtype=torch.bfloat16 if image else torch.long))
    table = architecture(name)

    assert tuple(replace(one, dtype="bfloat16") for one in table.parameters) == found.parameters
    assert [one.name for one in table.buffers] == [one.name for one in found.buffers]
    assert arrival(table) == arrival(found)
    for passing in ("forward", "backward"):
        ours, recorded = (added(model, passing) for model in (table, found))
        assert ours.flops == recorded.flops
        for figure in ("touched", "moved", "weights", "launches"):
            assert getattr(ours, figure) == pytest.approx(getattr(recorded, figure), rel=0.03)
    assert 0.95 < total(table, "kept") / total(found, "kept") < 1.15


def added(model: Architecture, passing: str) -> KernelSums:
    """Return the work of a pass without the loss, which references lack."""
    return sum((getattr(block, passing) for block in model.blocks if block.name != "loss"), KernelSums())


def total(model: Architecture, what: str) -> float:
    """Return the sum without the loss, which references lack."""
    return sum(getattr(block, what) for block in model.blocks if block.name != "loss")


def arrival(model: Architecture) -> list[int]:
    return [index for block in reversed(model.blocks) for index in block.gradients]
