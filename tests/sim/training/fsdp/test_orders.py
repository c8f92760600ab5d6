"""FSDP2's collectives: order and sizes equal PyTorch's, as recorded and as run again."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from ringside.sim.program import Call, Wait
from ringside.sim.program.check import PROVED, check
from ringside.sim.training.fsdp_policy import FullyShardPolicy
from ringside.sim.training.mesh import Mesh
from tests.sim.training.fsdp.models import driven, labels, language_model, layer, program, tensor
from tests.tiers import slow_or_proof

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "golden_orders.json").read_text(encoding="utf-8"))["cases"]
TIMEOUT_S = 240

POLICIES = {
    "plain": (language_model(), FullyShardPolicy(), Mesh(shard=2), 1),
    "ends wrapped, head kept whole": (
        language_model(ends=True), FullyShardPolicy(reshard_of={"head": False}), Mesh(shard=2), 1,
    ),
    "two micro-batches, the first not summed": (
        language_model(), FullyShardPolicy(no_sync=True), Mesh(shard=2), 2,
    ),
    "HSDP 2x2": (language_model(), FullyShardPolicy(), Mesh(shard=2, replicate=2), 1),
    "blocks kept whole": (
        language_model(), FullyShardPolicy(reshard_after_forward=False), Mesh(shard=2), 1,
    ),
    "inputs that need no gradient": (
        [*language_model()[1:4], layer("head", tensor("weight", 10, 8), wrapped=False)],
        FullyShardPolicy(), Mesh(shard=2), 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("library", ["nccl", "gloo"])
@pytest.mark.parametrize("case", GOLDEN)
def test_collectives_are_asked_for_as_fully_shard_does(case: str, library: str) -> None:
    layers, policy, mesh, micro_batches = POLICIES[case]
    made = program(layers, policy, mesh, micro_batches=micro_batches, library=library)
    assert labels(made) == GOLDEN[case]
    assert check(made).verdict == PROVED


REAL = {
    "plain": {},
    "kept": {"reshard": False},
    "ends": {"ends": True},
    "accumulated": {"micro_batches": 2},
    "summed each time": {"micro_batches": 2, "sync": True},
    "whole between": {"micro_batches": 2, "reshard_after_backward": False},
    "whole all the step": {"micro_batches": 3, "reshard": False, "reshard_after_backward": False},
    "mixed": {"param_dtype": "bfloat16", "reduce_dtype": "float32", "micro_batches": 2, "sync": True},
    "mixed and accumulated": {"param_dtype": "bfloat16", "reduce_dtype": "float32", "micro_batches": 2},
    "gathered ahead in forward": {"forward_prefetch": True},
    "gathered two ahead in backward": {"backward_prefetch": True},
    "clipped": {"clips": True},
    "driven as by a pipeline": {"driven": True, "micro_batches": 3, "reshard": False},
}
"""What the installed PyTorch is asked for; see ``real_collectives.py``."""

REAL_OF_FOUR = {
    "four": {},
    "kept by pairs": {"reshard": 2},
    "HSDP": {"replicas": 2},
    "HSDP, clipped": {"replicas": 2, "clips": True, "micro_batches": 2},
    "HSDP kept by pairs": {"replicas": 2, "reshard": 2},
}


@pytest.mark.gloo
@pytest.mark.parametrize(("ranks", "cases"), slow_or_proof([(2, REAL), (4, REAL_OF_FOUR)]))
def test_the_installed_pytorch_asks_for_the_same(
    ranks: int, cases: dict[str, dict[str, object]], tmp_path: Path
) -> None:
    seen = asked_of_pytorch(ranks, cases, tmp_path)
    assert {name: predicted(ranks, case) for name, case in cases.items()} == seen


def asked_of_pytorch(
    ranks: int, cases: dict[str, dict[str, object]], folder: Path
) -> dict[str, list[list[object]]]:
    script = str(HERE / "real_collectives.py")
    started = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(ranks), str(folder), json.dumps(cases)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        ended = [process.communicate(timeout=TIMEOUT_S) for process in started]
    finally:
        for process in started:
            process.kill()
    assert not any(process.returncode for process in started), [errors for _, errors in ended]
    return json.loads(ended[0][0])  # type: ignore[no-any-return]


def predicted(ranks: int, case: dict[str, object]) -> list[list[object]]:
    """Return the program's collectives in the form of ``real_collectives.py``."""
    ends, kept = bool(case.get("ends")), case.get("reshard")
    blocks = [f"b{number}" for number in range(3)]
    forward = {one: (following,) for one, following in pairwise(blocks)}
    backward = {one: tuple(blocks[:place][-2:][::-1]) for place, one in enumerate(blocks)}
    of = {} if kept is None else dict.fromkeys([*blocks, "emb"] if ends else blocks, kept)
    policy = FullyShardPolicy(
        reshard_of=of | ({"head": False} if ends else {}),  # type: ignore[arg-type]
        param_dtype=case.get("param_dtype"),  # type: ignore[arg-type]
        reduce_dtype=case.get("reduce_dtype"),  # type: ignore[arg-type]
        no_sync=not case.get("sync"),
        reshard_after_backward=bool(case.get("reshard_after_backward", True)),
        forward_prefetch=forward if case.get("forward_prefetch") else {},
        backward_prefetch=backward if case.get("backward_prefetch") else {},
    )
    replicas = int(case.get("replicas", 1))  # type: ignore[call-overload]
    layers = language_model(words=11, ends=ends)
    layers[1:4] = [
        layer(name, tensor("up.weight", 7, 8), tensor("up.bias", 7), tensor("down.weight", 8, 7))
        for name in blocks
    ]
    if case.get("driven"):
        made = driven(policy, layers, micro_batches=3, library="gloo")
    else:
        made = program(
            layers, policy, Mesh(shard=ranks // replicas, replicate=replicas), library="gloo",
            micro_batches=case.get("micro_batches", 1), clips=bool(case.get("clips")),
        )  # fmt: skip
    operations = made.operations(0)
    found: list[list[object]] = []
    for place, one in enumerate(operations):
        if isinstance(one.action, Call):
            collective = one.action.collective
            after = operations[place + 1]
            waits = isinstance(after.action, Wait) and after.after == (place,)
            ranks = len(one.action.group.ranks)
            found.append([one.action.name, collective.nbytes, collective.dtype, ranks, waits])
    return found
