"""An option of ``train`` equal to its default changes nothing, to the last bit, on any way in."""

import json
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

import ringside
from ringside.sim.libraries.find import default_library, find_library
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.ddp.scaling import SPREAD, contention
from ringside.sim.training.layout_mesh import mesh_of
from ringside.sim.training.mesh import DATA
from ringside.sim.training.strategies import AT_ONCE, FSDP, MEGATRON, STRATEGIES, ULYSSES_STRATEGIES
from ringside.sim.training.tensor.decoder import DecoderOnGpu
from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.devices import STORED, device_of
from ringside.validation.questions.layout import ByLayout
from ringside.validation.questions.models import find_model
from ringside.validation.questions.step_time import StepTime
from ringside.validation.questions.training import Training
from tests.tiers import slow_or_proof

SLOW, IN_A_PROOF = [("ddp", 1), ("fsdp", 1)], 5
"""Strategies with the number of their random questions that are answered; in a proof all have as many."""

MODELS = (
    "gpt2",
    "gpt2:64",
    "gpt2-medium:128",
    "llama3-8b:128",
    "mixtral-8x7b:64",
    "bert-base:64",
    "resnet50:64",
)
CLUSTERS = ("dgx-a100:1", "dgx-a100:2", "dgx-h100:2", "star:8")

Words = dict[str, Any]
Train = Callable[[Words], Any]


@pytest.fixture
def answered(train: Callable[..., str]) -> Train:
    def run(words: Words) -> Any:
        options = [
            part
            for name, value in words.items()
            if value is not False or name == "clip"
            for part in (
                f"--{'no-' if value is False else ''}{name.replace('_', '-')}",
                *(() if isinstance(value, bool) else (str(value),)),
            )
        ]
        answer = json.loads(train(*options, "--json"))
        del answer["inputs"]
        # where ranks stand is told where their count was written, as inputs are
        answer["notes"] = [note for note in answer.get("notes", ()) if not note.startswith("placement ")]
        return answer

    return run


@pytest.mark.parametrize(
    ("strategy", "count"),
    slow_or_proof([*SLOW, *((strategy, IN_A_PROOF) for strategy in STRATEGIES)], SLOW),
)
def test_an_option_at_its_resolved_default_changes_nothing(
    strategy: str, count: int, answered: Train
) -> None:
    chance = np.random.default_rng(STRATEGIES.index(strategy))
    for words in questions(strategy, chance, count):
        usual = resolved(words)
        assert usual
        answer, step = answered(words), in_python(words)
        assert step.step_s == answer["step_s"], words
        chosen = chance.choice([*usual], size=2, replace=False)
        for more in (usual, *({name: usual[name]} for name in chosen)):
            assert answered({**words, **more}) == answer, (words, more)
            assert in_python({**words, **more}) == step, (words, more)


def questions(strategy: str, chance: np.random.Generator, count: int) -> Iterator[Words]:
    """Draw options of valid trainings under the strategy; every other one has a default layout."""
    found = 0
    for number in range(400):
        words: Words = {
            "model": str(chance.choice(MODELS)), "cluster": str(chance.choice(CLUSTERS)),
            **({"strategy": strategy} if strategy != "ddp" or chance.random() < 0.5 else {}),
            # all others pass the model's 32 samples one after another
            **({"batch": int(chance.choice([1, 2, 4]))}
               if strategy not in AT_ONCE or chance.random() < 0.7 else {}),
        }  # fmt: skip
        if number % 2:
            words |= _layout(chance)
        try:
            in_python(words)
        except ValueError:
            continue
        yield words
        found += 1
        if found == count:
            return
    raise AssertionError(f"{found} questions of {strategy} can be answered")


def _layout(chance: np.random.Generator) -> Words:
    words: Words = {}
    for name, values in (
        ("tp", (2, 4)), ("pp", (2, 4)), ("cp", (2,)), ("ep", (2, 4)), ("micro_batch", (1, 2)),
        ("checkpointing", ("selective", "full")), ("clip", (True,)), ("optimizer", ("sgd", "lamb")),
        ("precision", ("float16", "float32")),
    ):  # fmt: skip
        if chance.random() < 0.4:
            words[name] = chance.choice(values).item()
    if words.get("pp"):
        words |= {"schedule": str(chance.choice(["interleaved1f1b", "gpipe", "zbv"])), "batch": 8}
    if words.get("tp") and chance.random() < 0.5:
        words["sequence_parallel"] = True
    return words


def resolved(words: Words) -> Words:
    """Return every omitted option with its default, which may depend on the strategy."""
    strategy, cluster = words.get("strategy", "ddp"), words["cluster"]
    gpu = device_of(cluster)
    training = Training(**{name: words[name] for name in ("model", "batch", "precision") if name in words})
    library = default_library(cluster)
    ranks = find_library(library, cluster).ranks
    libraries = Libraries(library, cluster, {}, ranks)
    layout_names = {one.name for one in fields(ByLayout)}
    layout = ByLayout(**{name: value for name, value in words.items() if name in layout_names})
    mesh = mesh_of(layout.layout(), ranks, libraries.machine)
    group = mesh.together(0, *DATA)
    alone = all(words.get(name, 1) == 1 for name in ("tp", "cp", "pp", "ep"))
    on_gpu = training.model_on(gpu)
    asked = StepTime(**words).ask()
    batch = on_gpu.batch
    usual: Words = {
        "strategy": "ddp", "tp": 1, "cp": 1, "pp": 1, "ep": 1, "ep_imbalance": 1.0, "checkpointing": "none",
        "optimizer": "adam", "network": "fifo", "library": library, "ranks": ranks, "device": gpu.name,
        "batch": batch, "dtype": "float32", "precision": on_gpu.precision,
        "spread": SPREAD,
        "contention": contention(libraries.of(group), gpu) if len(group) > 1 else 0.0,
        # torch's wrapper of whole models, and the one process, pass what they are given; all else one sample
        "micro_batch": batch if strategy in AT_ONCE and alone else 1,
        "clip": strategy in MEGATRON, "reserve": asked.fit.reserve,
    }  # fmt: skip
    model = find_model(words["model"])
    if isinstance(model, Decoder):
        on_ranks = asked.question.model_on_gpu
        assert isinstance(on_ranks, DecoderOnGpu)
        usual |= {"attention": on_ranks.numerics.attention, "dropout": False, "loss": "written"}
    if ":" not in words["model"]:
        assert isinstance(model, Decoder)
        usual["seq"] = model.sequence
    if words.get("tp", 1) > 1:
        usual["tp_style"] = "megatron"
    if strategy in FSDP:
        usual |= {
            "param_dtype": STORED[words.get("precision", usual.get("precision"))],
            "reduce_dtype": "float32",
        }
    if words.get("cp", 1) > 1:
        usual["cp_method"] = "zigzag" if strategy in MEGATRON else "all-gather"
        usual["cp_method"] = "ulysses" if strategy in ULYSSES_STRATEGIES else usual["cp_method"]
    if words.get("pp", 1) > 1:
        usual |= {
            "schedule": "1f1b",
            "virtual": {"interleaved1f1b": 2, "zbv": 2}.get(words.get("schedule"), 1),
        }
    if strategy == "hsdp":
        usual["shard"] = libraries.machine // words.get("tp", 1) // words.get("cp", 1)
    if strategy in MEGATRON:
        usual["reduce_dtype"] = "float32"
    if strategy in ("hybrid_zero", "distributed_optimizer"):
        usual["shard"] = len(group)
    return {name: value for name, value in usual.items() if name not in words}


def in_python(words: Words) -> ringside.TrainingStep | ringside.ParallelStep:
    """Return the same answer by the Python function."""
    named = {
        name: value for name, value in words.items() if name not in ("model", "cluster", "seq", "reserve")
    }
    model = words["model"] + (f":{words['seq']}" if "seq" in words else "")
    step = ringside.train(model, words["cluster"], **named)
    if isinstance(step, ringside.TrainingStep):
        return step
    # groups are equal to themselves alone
    return replace(step, timeline=replace(step.timeline, groups=()))
