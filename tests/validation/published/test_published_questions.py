"""Predictions in tables equal answers of ``ringside train`` to a row's command line, to the last bit."""

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import typer

from ringside.commands.train.command import command
from ringside.sim.questions.question import options_of
from ringside.sim.training.search.bounds import Bounds
from ringside.validation.published.training import (
    aleph_alpha,
    data_parallel,
    dgxc,
    internevo,
    korthikanti,
    libai,
    llm_foundry,
    megascale,
    megatron,
    mlperf,
    torchtitan,
)
from ringside.validation.published.training.ddp.throughput import sources
from ringside.validation.published.training.ddp.throughput import training as ddp_training
from ringside.validation.published.training.steps import ROUNDS, whole_s
from ringside.validation.questions.step_time import StepTime
from tests.tiers import slow_or_proof

TOP = Path(__file__).parents[3]


def options(question: StepTime) -> Iterator[str]:
    """Return the options of ``ringside train`` for a question."""
    names = {one.name for one in options_of(question)} - {"model", "cluster"}
    for name in question.changed(*sorted(names)):
        option, value = f"--{name.replace('_', '-')}", getattr(question, name)
        if name == "settings":
            yield from (part for key, figure in value.items() for part in ("--set", f"{key}={figure}"))
        elif name == "calibration":
            machine = value and value.cluster.partition(":")[0]
            yield from (option, f"family:{machine}" if machine else "none")
        elif name == "measured":
            samples_per_s, ranks = value
            yield from (option, f"{samples_per_s!r}@{ranks}")
        else:
            yield from (option,) if value is True else (option, str(value))
    yield from ("--cluster", question.cluster, "--model", question.model)


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., float]:
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command)

    def run(question: StepTime) -> float:
        monkeypatch.setattr(sys, "argv", ["train", *options(question), "--json"])
        with pytest.raises(SystemExit) as end:
            app()
        out = capsys.readouterr()
        assert not end.value.code, out.err
        return float(json.loads(out.out)["step_s"])

    return run


def rows(each: int | None) -> Iterator[tuple[str, StepTime, float]]:
    """Yield so many of some rows of each table: the question, and the table's seconds of a step."""
    for step in [*megatron.steps()][1:9:3][:each]:
        yield "megatron", step.training(0.4), step.predicted_s(0.4)
    for row in [one for one in libai.steps() if one.batch <= 2 * one.data * one.micro_batch][:3][:each]:
        count = row.batch // row.data // row.micro_batch
        yield "libai", row.training(0.4, count), row.predicted_s(0.4)
    short = [one for one in llm_foundry.runs() if (one.accumulation, one.sequence) == (1, 2048)]
    for run in short[:9:4][:each]:
        yield "llm_foundry", llm_foundry.training(run, 0.5, 1), llm_foundry.predicted_s(run, 0.5)
    for of in [one for one in dgxc.steps() if (one.framework, one.gpus) == ("paxml", 32)][:each]:
        yield "dgxc", of.training(0.8), of.predicted_s(0.8)
    nemo = next(one for one in dgxc.steps() if one.model == "nemotron4-340b")
    yield "dgxc", nemo.training(0.6, 16), nemo.predicted_s(0.6)
    *_, most = mlperf.submissions()
    yield "mlperf", most.training(0.6, most.micro_batches), most.predicted_s(0.6)
    for one in [*torchtitan.runs()][::5][:each]:
        yield "torchtitan", torchtitan.training(one, 0.5, 0.02), torchtitan.predicted_s(one, 0.5, 0.02)
    for _, own in [*internevo.runs()][:2][:each]:
        question = internevo.training(own[0], 0.5, internevo.host_s())
        yield "internevo", question, internevo.predicted_s(own[0], 0.5, 0.0)
    for strategy in data_parallel.runs()[1:][:each]:
        found = data_parallel.training(strategy, data_parallel.efficiency(strategy.series))
        yield "data_parallel", found, data_parallel.predicted_s(strategy)
    resnets = [
        (source, one, one.rows[1])
        for source in sources()
        for one in source.series
        if one.rows[1].accumulation == 1 and one.id.startswith("resnet50") and "amp" in one.id
    ]
    for several in resnets[:each]:
        found = ddp_training(*several, 0.02)
        yield "ddp", found, found.step().step_s


@pytest.mark.parametrize("each", slow_or_proof([1, None]))
def test_tables_judge_what_train_answers(answered: Callable[..., float], each: int | None) -> None:
    for table, question, judged_s in rows(each):
        assert answered(question) == judged_s, (table, [*options(question)])


def extrapolated() -> Iterator[tuple[str, Callable[[int], StepTime], int]]:
    """Yield a case of each table that extrapolates: its question by micro-batches, and the pipeline ranks."""
    step = next(one for one in libai.steps() if (one.model, one.pipeline, one.data) == ("gpt-2", 8, 1))
    yield "libai", partial(step.training, 0.4), 8
    run = next(one for one in llm_foundry.runs() if one.accumulation > ROUNDS)
    yield "llm_foundry", partial(llm_foundry.training, run, 0.5), 1
    yield "megascale", partial(megascale.training, megascale.FrameworkStep("Megatron-LM", 256, 40.0), 0.5), 8
    yield "mlperf", partial(mlperf.submissions()[0].training, 0.6), 8
    nemo = [one for one in dgxc.steps() if one.tensor and one.is_modelled]
    for pipeline in (1, 4):
        row = next(one for one in nemo if one.pipeline == pipeline)
        yield f"dgxc {row.model}", partial(row.training, 0.6), pipeline


@pytest.mark.proof
@pytest.mark.parametrize(
    ("asked", "pipeline"), [pytest.param(*case, id=name) for name, *case in extrapolated()]
)
def test_steps_of_many_micro_batches_follow_from_answers_of_fewer(
    asked: Callable[[int], StepTime], pipeline: int
) -> None:
    count = (ROUNDS + 1) * pipeline
    step_s = whole_s(lambda number: asked(number).step().step_s, count, pipeline)
    assert step_s == pytest.approx(asked(count).step().step_s, rel=1e-3)


@pytest.mark.slow
def test_a_layout_is_judged_by_no_more_than_train_answers(answered: Callable[..., float]) -> None:
    """A row of hundreds of micro-batches goes by the bound that ``--search`` leaves layouts out by."""
    run = next(run for run in aleph_alpha.layouts() if (run.pipeline, run.micro_batches) == (4, 64))
    question = run.training
    bound_s = Bounds(question.libraries).step_s(question.job)
    assert bound_s <= answered(question) <= 1.1 * bound_s
    iteration = korthikanti.iterations()[0]
    judged_s = korthikanti.predicted_s(iteration, 0.7)
    assert judged_s * (1 - 1e-9) <= answered(korthikanti.training(iteration, 0.7)) <= 1.01 * judged_s


def test_a_job_is_made_in_one_file() -> None:
    """Jobs that are really trained on CPUs have no GPU to ask ``train`` for."""
    found = [
        path.relative_to(TOP).as_posix()
        for package in ("topologies", "sim", "real", "validation", "ringside")
        for path in (TOP / package).rglob("*.py")
        if "ParallelJob(" in path.read_text(encoding="utf-8")
    ]
    assert found == ["sim/training/parallel.py", "validation/training/memory.py"]
