"""A narrower fabric is never faster, and its bands are no narrower; faster cards are never slower."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ringside.sim.libraries.library import answer
from tests.sim.network.test_traffic import GIB, KINDS, MACHINES, MIB, ROUNDING, Question, on

RATES = "12.5GB/s", "25GB/s", "50GB/s", "100GB/s"
NARROWER = ("1", "1.5", "2", "4", "8", "20", "100")
JOINED: tuple[dict[str, str], ...] = (
    {"fabric": "leaf_spine"},
    {"fabric": "leaf_spine", "hosts_per_leaf": "1"},
    {"fabric": "torus"},
    {"fabric": "fat_tree"},
    {"fabric": "fat_tree", "radix": "32", "ecmp": "hash"},
    {"fabric": "rail_optimized", "radix": "16", "tiers": "3"},
)
WIDE_AS_ASKED = "leaf_spine", "torus"
"""Fabrics of which no cable is of whole ports."""
WAYS = [("ring", "simple"), ("tree", "simple"), ("tree", "ll128"), ("auto", "auto")]


def _joined(seed: int) -> Question:
    """Return a question on machines on a fabric, by a seed."""
    rng = np.random.default_rng(seed)

    def one(of: Any) -> Any:
        return of[int(rng.integers(len(of)))]

    machine, nodes, kind = one(MACHINES), int(2 ** rng.uniform(1, 6.5)), one(KINDS)
    way = one(WAYS) if kind == "all_reduce" else WAYS[-1]
    nodes = max(nodes, 3) if machine == "h100-1gpu" else nodes
    return on(f"{machine}:{nodes}", kind, 4 * int(2 ** rng.uniform(8, 28)), "nccl", *way, **one(JOINED))


def _narrower(question: Question, ratios: tuple[str, ...] = NARROWER) -> list[Question]:
    return [replace(question, values={**question.values, "oversubscription": ratio}) for ratio in ratios]


@pytest.mark.parametrize(
    "seed", [*range(80), *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(80, 580))]
)
def test_a_narrower_fabric_is_never_faster_and_nothing_is_surer_on_it(seed: int) -> None:
    question = _joined(seed)
    is_tree = question.values["fabric"] not in WIDE_AS_ASKED
    questions = _narrower(question, NARROWER[:5] if is_tree else NARROWER)
    if not is_tree:
        _never_faster(questions)
    _never_surer([replace(question, values={}), *questions])


def test_on_trees_of_whole_ports_few_steps_are_faster_and_by_little() -> None:
    """Larger leaves save hops, and another number of ways up shares them out otherwise (docs/fabrics.md)."""
    trees = [one for one in map(_joined, range(80)) if one.values["fabric"] not in WIDE_AS_ASKED]
    steps: list[float] = []
    for question in trees:
        times = [one.answer().time_s for one in _narrower(question, ("1", "2", "4", "8"))]
        steps += [later / earlier for earlier, later in pairwise(times)]
    assert min(steps) > 0.5
    assert sum(step < 0.99 for step in steps) <= 0.05 * len(steps)


@pytest.mark.parametrize("kind", ["all_reduce", "all_to_all", "broadcast", "reduce_scatter"])
def test_a_narrower_fabric_is_never_faster_for_mpi(kind: str) -> None:
    _never_faster(_narrower(on("leaf-spine:4", kind, 4 * MIB, "mpi")))


@pytest.mark.parametrize(
    "way",
    [
        ("all_reduce", "ring", "simple"),
        *((kind, "auto", "auto") for kind in ("all_gather", "all_to_all", "gather")),
    ],
)
@pytest.mark.parametrize(
    "fabric", [{}, {"fabric": "leaf_spine", "hosts_per_leaf": "2", "oversubscription": "8"}]
)
def test_faster_cards_are_never_slower(way: tuple[str, str, str], fabric: dict[str, str]) -> None:
    question = on("dgx-h100:4", way[0], GIB, "nccl", *way[1:], **fabric)
    asked = [replace(question, times="tuner", values={**fabric, "nic": rate}) for rate in RATES]
    bounds = [library.bound(one, library.choose(one)) for library, one in (each.bound() for each in asked)]
    assert all(later <= earlier * (1 + ROUNDING) for earlier, later in pairwise(bounds))
    _never_faster(asked[::-1])


def _never_faster(questions: list[Question]) -> None:
    times = [question.answer().time_s for question in questions]
    assert all(later >= earlier * (1 - ROUNDING) for earlier, later in pairwise(times)), questions[0]


def _never_surer(questions: list[Question]) -> None:
    """Check that no side of a band becomes narrower, except a lower end at the links' bound."""
    highs, wholes, lows = [], [], []
    for question in questions:
        library, collective = question.bound()
        found = answer(library, collective)
        highs.append(found.time_hi_s / found.time_s)
        wholes.append(found.time_hi_s / found.time_lo_s)
        if found.time_lo_s > library.bound(collective, library.choose(collective)) * (1 + ROUNDING):
            lows.append(found.time_s / found.time_lo_s)
    for widths in (highs, wholes, lows):
        assert all(later >= earlier * (1 - ROUNDING) for earlier, later in pairwise(widths)), questions[0]
