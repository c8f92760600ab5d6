"""Real scripts beside Ringside's own strategies, at one price: steps, exposed communication, differences.

``pytest -s -m "slow or proof"`` of this file prints the rows of docs/recorded.md.
"""

from pathlib import Path

import pytest

import ringside
from ringside.sim.recorded.job import GroupCall
from ringside.validation.beside import beside
from tests.tiers import slow_or_proof

SCRIPT = Path(__file__).parents[1] / "scripts/transformer.py"

MODEL = "llama3-8b:2048,layers=4,width=2048,heads=16,key_value_heads=16,hidden=5632,vocabulary=32000"
"""The model of the script."""

FSDP = {"micro_batch": 4, "reduce_dtype": "float32"}

CASES = {
    "ddp": (8, "ddp", {}),
    "fsdp": (16, "fsdp", FSDP),
    "fsdp apart": (16, "fsdp", {**FSDP, "wrap_ends": True}),
    "fsdp kept": (16, "fsdp", {**FSDP, "no_reshard": True}),
    "fsdp1": (16, "fsdp1", FSDP),
    "fsdp1 kept": (16, "fsdp1", {**FSDP, "no_reshard": True}),
    "hsdp": (16, "hsdp", {**FSDP, "shard": 8}),
    "tp": (8, "ddp", {"tp": 8, "tp_style": "dtensor", "sequence_parallel": True, "micro_batch": 4}),
    "pp": (4, "ddp", {"pp": 4, "micro_batch": 1}),
}
"""Ranks, strategy and options of what the script calls so."""


EXPLAINED = {
    # clipping: the script sums the squares of its 39 tensors' norms, Ringside of one
    ("all_reduce", 4 * 39): (1, 0),
    ("all_reduce", 4): (0, 1),
}
"""How many times ``fsdp apart clip`` and Ringside do what they do not do alike."""


def asked(name, *words, **more):
    """Return the recorded script beside Ringside's strategy."""
    ranks, strategy, options = CASES[name]
    types = {} if strategy in ("fsdp", "fsdp1", "hsdp") else {"dtype": "bfloat16"}
    job = ringside.record(str(SCRIPT), *name.split(), *words, ranks=ranks, timeout=1500.0)
    return beside(job, MODEL, strategy, batch=4, **types, **options, **more)


def row(name, made):
    """Return a row of the table."""
    script, own = made.steps
    first, second = (sum(one.exchanges.totals[side] for one in made.ranks) for side in (0, 1))
    common = sum(one.exchanges.common for one in made.ranks)
    errors = own.step_s / script.step_s - 1, own.exposed_s / script.exposed_s - 1
    cells = (
        f"`{name}`", made.job.ranks, f"{common} of {first}", second, f"{script.step_s * 1e3:.3f} ms",
        f"{errors[0]:+.2%}", f"{script.exposed_s * 1e3:.3f} ms", f"{errors[1]:+.2%}",
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


@pytest.mark.parametrize("name", slow_or_proof(CASES))
def test_a_script_takes_the_step_of_ringsides_strategy(name):
    made = asked(name)
    assert all(one.unsteady == "" for one in made.job.recorded)
    print(row(name, made))
    script, own = made.steps
    assert own.step_s == pytest.approx(script.step_s, rel=0.02)
    assert own.exposed_s == pytest.approx(script.exposed_s, rel=0.1)
    for rank in made.ranks:
        assert rank.exchanges.different == ()
        assert rank.exchanges.parting is None
        for pool in ("parameters", "optimizer", *(["gradients"] if name == "ddp" else [])):
            first, second = rank.memory[pool]
            assert first == pytest.approx(second, rel=1e-3)


@pytest.mark.proof
def test_what_a_script_does_otherwise_is_told():
    made = asked("fsdp apart", "clip", clip=True)
    print(row("fsdp apart clip", made))
    (rank,) = made.ranks
    different = {
        (one.exchanged.kind, one.exchanged.nbytes): (one.first, one.second)
        for one in rank.exchanges.different
    }
    assert different == EXPLAINED


@pytest.mark.slow
def test_products_of_tensor_parallelism_wait_for_their_tokens():
    script = SCRIPT.with_name("tensor.py")
    job = ringside.record(str(script), "sequence", ranks=2, timeout=1500.0)
    (one,) = job.recorded
    gathers = [
        number
        for number, entry in enumerate(one.entries)
        if isinstance(action := one.actions[entry.action], GroupCall) and action.collective == "all_gather"
    ]
    assert gathers
    assert all(number in one.entries[number + 1].after for number in gathers)
