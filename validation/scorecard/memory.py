"""Published peaks of a GPU's memory beside those that their arguments alone predict."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ringside.sim.training.step import ParallelStep
from ringside.validation.published.training import simumax
from ringside.validation.published.training.megatron_golden import GoldenCase, golden_cases
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.judged import JudgedRow, Score, score

LOW = -0.05
"""The error below which a prediction is too low: a layout that is said to fit may not."""

SIMUMAX = "simumax"
"""The name of SimuMax's rows."""

GROUPS = ("layout", "optimizer", "checkpointing", "gpu")
"""What runs of Megatron-LM are grouped by."""


@dataclass(frozen=True, slots=True)
class MemoryScore:
    """Errors of a group of peaks, and the share of those that are predicted too low."""

    score: Score
    too_low: float


@dataclass(frozen=True, slots=True)
class MemoryScores:
    """Scores of all runs and of each group, the rows, and of Megatron-LM's cases those that are not judged.

    ``refused`` counts cases by reason, ``unmodelled`` judged cases by an argument that no option says.
    """

    scores: Sequence[MemoryScore]
    rows: Sequence[JudgedRow]
    cases: int
    judged: int
    refused: Mapping[str, int]
    unmodelled: Mapping[str, int]


def memory_parts() -> list[str]:
    """Return the names of what is predicted, one after another."""
    return [*(case.arguments.name for case in golden_cases()), SIMUMAX]


def memory_scores(done: Callable[[str], object] = lambda _: None) -> MemoryScores:
    """Predict the peak of every run; ``done`` is called with the name of each case."""
    cases = golden_cases()
    rows: list[JudgedRow] = []
    refused, unmodelled = Counter[str](), Counter[str]()
    for case in cases:
        try:
            own, missing = _golden(case)
        except ValueError as error:
            refused[_reason(error, case.arguments.name)] += 1
        else:
            rows += own
            unmodelled.update(dict.fromkeys(missing, 1))
            if not own:
                refused["no run of it can be judged"] += 1
        done(case.arguments.name)
    judged = len(cases) - refused.total()
    others = _simumax()
    done(SIMUMAX)
    scores = [scored("megatron", "", rows)]
    for trait in GROUPS:
        names = dict.fromkeys(row.traits[trait] for row in rows if row.traits[trait])
        scores += [scored(trait, name, [row for row in rows if row.traits[trait] == name]) for name in names]
    kinds = dict.fromkeys(row.part for row in others)
    scores += [scored(SIMUMAX, kind, [row for row in others if row.part == kind]) for kind in kinds]
    return MemoryScores(scores, [*rows, *others], len(cases), judged, refused, unmodelled)


def peaks(question: StepTime) -> tuple[int, int]:
    """Return the predicted peak of the first pipeline stage, and of the last, whose rank logs."""
    step = question.step()
    if not isinstance(step, ParallelStep):
        raise ValueError("plain DistributedDataParallel has no stages; write `strategy` megatron_ddp")
    return step.stages[0].peak.nbytes, step.stages[-1].peak.nbytes


def _golden(case: GoldenCase) -> tuple[list[JudgedRow], Sequence[str]]:
    rows: list[JudgedRow] = []
    missing: Sequence[str] = ()
    for gpu in dict.fromkeys(run.gpu for run in case.runs):
        question, missing = case.training(gpu)
        _, predicted = peaks(question)
        traits = _traits(question, gpu)
        rows += [
            JudgedRow(case.arguments.name, run.name, run.peak, predicted, traits=traits)
            for run in case.runs
            if run.gpu == gpu
        ]
    if not case.runs:
        case.training("h100")  # its reason counts before that no run is judged
    return rows, missing


def _traits(question: StepTime, gpu: str) -> dict[str, str]:
    experts = getattr(question.model, "experts", None)
    layout = next(
        name
        for name, is_so in (
            ("experts", experts is not None),
            ("context", question.cp > 1),
            ("interleaved", bool(question.virtual)),
            ("1F1B", question.pp > 1),
            ("tensor", True),
        )
        if is_so
    )
    return {
        "layout": layout,
        "optimizer": "distributed" if question.strategy == "distributed_optimizer" else "replicated",
        "checkpointing": "" if question.checkpointing == "none" else question.checkpointing,
        "gpu": gpu,
    }


def _simumax() -> list[JudgedRow]:
    rows = []
    for one in simumax.steps():
        predicted = peaks(replace(one.training(None), strategy="distributed_optimizer"))
        measured = one.first_mib, one.last_mib
        kind = "experts" if one.expert > 1 else "dense"
        for stage, both in enumerate(list(zip(measured, predicted, strict=True))[: one.pipeline]):
            what = f"{one.name} stage {stage}"
            rows.append(JudgedRow(f"{SIMUMAX} {one.model}", what, both[0] * 2**20, both[1], part=kind))
    return rows


def scored(group: str, name: str, rows: Sequence[JudgedRow]) -> MemoryScore:
    """Return the score of a group of rows."""
    low = [row.error < LOW for row in rows]
    return MemoryScore(
        replace(score(group, name, rows), rules={}), sum(low) / len(low) if low else float("nan")
    )


def _reason(error: ValueError, name: str) -> str:
    """Return why a case is not judged, without its name, its numbers and what to write instead."""
    text = str(error).replace(f"{name}: ", "").partition(";")[0].partition("\n")[0]
    return re.sub(r"\b\d+\b", "N", text)
