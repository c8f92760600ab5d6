"""Stacks: the bytes that each moves besides products, and what changes them."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import ringside
from ringside.sim.compute.kernels import Kernel, Streaming
from ringside.sim.compute.prices import Prices, StackOnGpu
from ringside.sim.compute.stacks import STACKS, find_stack
from ringside.sim.training.layers import Kernels
from ringside.sim.training.tensor.costs import Numerics
from ringside.sim.training.tensor.layers import rank_layers
from ringside.sim.workload.decoder import DECODERS, Decoder
from ringside.sim.workload.devices import Roofline

PAGE = Path(ringside.__file__).parents[1] / "docs/compute.md"
LLAMA = replace(DECODERS["llama3-8b"], layers=1)
GPT = replace(DECODERS["gpt3-6.7b"], layers=1, biases=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bytes(Prices):
    """Prices that count the bytes of kernels that only move memory."""

    def seconds(self, kernel: Kernel) -> float:
        return kernel.nbytes if isinstance(kernel, Streaming) else 0.0


def moved(stack: str, decoder: Decoder, **how: Any) -> float:
    """Return the bytes of one layer, forward and backward, per token and column."""
    computing = StackOnGpu(Bytes(roofline=Roofline(1.0, 1.0, 2)), find_stack(stack))
    layer = rank_layers(decoder, computing, numerics=Numerics(**how))[1]
    parts = (*layer.forward, *layer.backward)
    total = sum(part.seconds for part in parts if isinstance(part, Kernels))
    return total / decoder.sequence / decoder.width


def test_the_page_has_what_each_stack_moves() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    table = lines[lines.index(next(line for line in lines if line.startswith("| `te` "))) :]
    rows = [line.split("|") for line in table[: table.index("")]]
    told = {}
    for _, names, _, llama, gpt, overhead, _ in rows:
        several = llama.split(",")
        for name, one in zip(names.replace("`", "").split(","), several, strict=True):
            told[name.strip()] = float(one), float(gpt), float(overhead)
    assert told == {
        name: (round(moved(name, LLAMA)), round(moved(name, GPT)), stack.overhead)
        for name, stack in STACKS.items()
    }


@pytest.mark.parametrize("name", STACKS)
def test_dropout_biases_and_written_scores_move_more(name: str) -> None:
    plain = moved(name, GPT)
    assert moved(name, GPT, dropout=True) > plain
    assert (moved(name, replace(GPT, biases=True)) > plain) == (STACKS[name].biased > 0)
    scores = moved(name, GPT, attention="unfused")
    assert moved(name, GPT, attention="unfused", dropout=True) > scores > plain


def test_an_unknown_stack_is_told_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown stack 'TE'; write te \(known: te, "):
        find_stack("TE")
