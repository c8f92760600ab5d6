"""Train a model on random data on one GPU; print the seconds of a step and the most memory as JSON.

python benchmarks/one_gpu/train.py MODEL [--batch N] [--precision amp|half|bf16|fp32|tf32] ...

It knows nothing of Ringside. Models are those of transformers (measured with 5.17), an LSTM and a U-Net.
"""

import argparse
import json
import statistics
import time
from itertools import pairwise

import torch
import transformers as hf
from torch import nn
from torch.nn.functional import cross_entropy, max_pool2d

VOCABULARY = 32000
CLASSES = 1000


class Recurrent(nn.Module):
    """Two layers of an LSTM on words."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, 1024)
        self.lstm = nn.LSTM(1024, 1024, 2, batch_first=True, dropout=0.2)
        self.head = nn.Linear(1024, VOCABULARY)

    def forward(self, ids):
        return self.head(self.lstm(self.embed(ids))[0])


class UNet(nn.Module):
    """Four levels of two convolutions each, down and up again."""

    def __init__(self, widths=(64, 128, 256, 512)):
        super().__init__()
        self.down = nn.ModuleList([self.block(a, b) for a, b in zip((3, *widths), widths, strict=False)])
        self.ups = nn.ModuleList([nn.ConvTranspose2d(b, a, 2, 2) for a, b in pairwise(widths)])
        self.merge = nn.ModuleList([self.block(2 * a, a) for a in widths[:-1]])
        self.head = nn.Conv2d(widths[0], 10, 1)

    @staticmethod
    def block(before, after):
        halves = [
            (nn.Conv2d(width, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True))
            for width in (before, after)
        ]
        return nn.Sequential(*halves[0], *halves[1])

    def forward(self, x):
        kept = []
        for level, block in enumerate(self.down):
            x = block(max_pool2d(x, 2) if level else x)
            kept.append(x)
        for level in reversed(range(len(self.ups))):
            x = self.merge[level](torch.cat([self.ups[level](x), kept[level]], 1))
        return self.head(x)


MODELS = {
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=2048, intermediate_size=5632, num_hidden_layers=16,
        num_attention_heads=16, num_key_value_heads=8, use_cache=False)),
    "qwen": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(
        vocab_size=151936, hidden_size=896, intermediate_size=4864, num_hidden_layers=24,
        num_attention_heads=14, num_key_value_heads=2, use_cache=False, tie_word_embeddings=True)),
    "gpt2": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=24, n_embd=1024, n_head=16, use_cache=False)),
    "gpt2-small": lambda: hf.GPT2LMHeadModel(hf.GPT2Config(use_cache=False)),
    "bert": lambda: hf.BertForMaskedLM(hf.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096)),
    "resnet50": lambda: hf.ResNetForImageClassification(hf.ResNetConfig(num_labels=CLASSES)),
    "vit": lambda: hf.ViTForImageClassification(hf.ViTConfig(num_labels=CLASSES)),
    "convnext": lambda: hf.ConvNextForImageClassification(hf.ConvNextConfig(num_labels=CLASSES)),
    "whisper": lambda: hf.WhisperForConditionalGeneration(hf.WhisperConfig(
        d_model=768, encoder_layers=12, decoder_layers=12, encoder_attention_heads=12,
        decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072)),
    "opt": lambda: hf.OPTForCausalLM(hf.OPTConfig(
        hidden_size=2048, ffn_dim=8192, num_hidden_layers=12, num_attention_heads=32,
        word_embed_proj_dim=2048, use_cache=False)),
    "neox": lambda: hf.GPTNeoXForCausalLM(hf.GPTNeoXConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=12, num_attention_heads=16,
        use_cache=False)),
    "t5": lambda: hf.T5ForConditionalGeneration(hf.T5Config(
        d_model=768, d_kv=64, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0)),
    "swin": lambda: hf.SwinForImageClassification(hf.SwinConfig(num_labels=CLASSES)),
    "dino": lambda: hf.Dinov2ForImageClassification(hf.Dinov2Config(num_labels=CLASSES, image_size=224)),
    "mobilenet": lambda: hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config(num_labels=CLASSES)),
    "lstm": Recurrent,
    "unet": UNet,
}  # fmt: skip

IMAGES = ("resnet50", "vit", "convnext", "swin", "dino", "mobilenet")


def loss_of(model, args):
    """Return what computes the loss of one fixed batch."""
    if args.model in IMAGES:
        pixels = torch.randn(args.batch, 3, args.size, args.size, device="cuda")
        if args.channels_last:
            pixels = pixels.to(memory_format=torch.channels_last)
        labels = torch.randint(CLASSES, (args.batch,), device="cuda")
        return lambda: cross_entropy(model(pixels).logits, labels)
    if args.model == "unet":
        pixels = torch.randn(args.batch, 3, args.size, args.size, device="cuda")
        labels = torch.randint(10, (args.batch, args.size, args.size), device="cuda")
        return lambda: cross_entropy(model(pixels), labels)
    if args.model == "whisper":
        sound = torch.randn(args.batch, 80, 3000, device="cuda")
        words = torch.randint(VOCABULARY, (args.batch, 128), device="cuda")
        return lambda: model(input_features=sound, labels=words).loss
    words = torch.randint(VOCABULARY // 2, (args.batch, args.tokens), device="cuda")
    if args.model == "lstm":
        return lambda: cross_entropy(model(words).flatten(0, 1), words.flatten())
    return lambda: model(input_ids=words, labels=words).loss


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=1024)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--precision", default="amp", choices=["amp", "half", "bf16", "fp32", "tf32"])
    parser.add_argument("--optimizer", default="adamw", choices=["adamw", "fused", "sgd"])
    parser.add_argument("--attention", default="sdpa", choices=["sdpa", "eager"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--checkpointing", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--steps", type=int, default=12)
    return parser.parse_args()


def main():
    args = arguments()
    torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.allow_tf32 = args.precision != "fp32"
    with torch.device("cuda"):
        model = MODELS[args.model]()
    if args.attention != "sdpa":
        model.set_attn_implementation(args.attention)
    if args.checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = model.to("cuda", torch.bfloat16 if args.precision == "bf16" else None).train()
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    loss = loss_of(torch.compile(model) if args.compile else model, args)
    if args.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=args.optimizer == "fused" or None)
    scaler = torch.amp.GradScaler("cuda", enabled=args.precision == "half")
    cast = {"amp": torch.bfloat16, "half": torch.float16}.get(args.precision)
    seconds = []
    for _ in range(args.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", cast, enabled=cast is not None):
            of_batch = loss()
        scaler.scale(of_batch).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    timed = seconds[args.steps // 3 :]
    measured = {"step_s": statistics.median(timed), "least_s": min(timed), "most_s": max(timed)}
    print(json.dumps({**measured, "steps": len(timed), "peak_bytes": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    main()
