"""``ringside train``: a data-parallel training step, what it hides and what stays exposed."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options
from ringside.commands.fields import asks
from ringside.commands.train import parallel as train_parallel
from ringside.commands.train import search as train_search
from ringside.commands.train.answer import Answer, unfit
from ringside.commands.train.disturbed import disturbed_step
from ringside.commands.train.parallel import ParallelAnswer
from ringside.commands.train.search import STOPPED, SearchAnswer
from ringside.commands.train.sweep import sweep_of, whole_nodes
from ringside.pictures.style import check_format
from ringside.report.page import check_page, write_page
from ringside.sim.effort import forced
from ringside.sim.program.groups import process_group
from ringside.sim.questions.buckets import ByBuckets
from ringside.sim.questions.disturbances import Disturbances
from ringside.sim.questions.question import options_of
from ringside.sim.training.ddp.memory import memory
from ringside.sim.training.ddp.scaling import recommended_cap
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.training.layout import COPIES
from ringside.sim.training.memory import find_optimizer, room_of
from ringside.topologies.catalogue import split
from ringside.topologies.disk import check_outputs, write_file
from ringside.validation.questions.layout_search import LAYOUT_FIELDS, LayoutSearch
from ringside.validation.questions.outcome import Outcome, outcomes
from ringside.validation.questions.step_time import StepTime, TrainingOnCluster

DDP_STEP = {"sweep", "global_batch"}
"""Options that only a step of DistributedDataParallel alone has."""

ONE_LAYOUT = {"sweep", "accumulation", *(one.name for one in fields(Disturbances))}
"""Options that a search leaves no room for."""

BUCKETS = {one.name for one in fields(ByBuckets)} - {"accumulation"}
"""Options of DistributedDataParallel, under any layout."""


@asks(StepTime, LayoutSearch)
def command(
    question: StepTime,
    context: typer.Context,
    sweep: Annotated[
        str | None, typer.Option(metavar="PARAMETER=A,B,C", help="bucket-cap-mb=1,5,25 or nodes=1,2,4")
    ] = None,
    must_fit: Annotated[
        bool, typer.Option("--must-fit", help="Exit with 1 where it is tight or does not fit.")
    ] = False,
    search: Annotated[
        bool, typer.Option("--search", help="Find the fastest layout that fits; given options are fixed.")
    ] = False,
    top: int = 0,
    fixed: Sequence[str] = (),
    plot: options.Plot = None,
    html: options.Html = None,
    trace: options.Trace = None,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict a training step: what communication it hides and what stays exposed."""
    question, given = question.simple, console.given(context)
    answer: Answer | ParallelAnswer | SearchAnswer
    _check_search(given, search=search)
    read = [question.model, split(question.cluster)[0]]
    check_page(html, [plot, trace], read)
    if search or question.is_parallel:
        _check_has_effect(given - ({"global_batch"} if search else set()), question.strategy)
    _check_outputs(plot, trace, sweep, read)
    with forced(force):
        if search:
            options = {one.name: getattr(question, one.name) for one in options_of(TrainingOnCluster)}
            named = [*(fixed or ()), *(name for name in LAYOUT_FIELDS if name in given)]
            answer = train_search.run(LayoutSearch(**options, top=top, fixed=named), plot=plot, trace=trace)
        elif question.is_parallel:
            answer = train_parallel.run(question, plot=plot, trace=trace)
        else:
            answer = run(question, sweep, plot=plot, trace=trace)
    if html:
        write_page(answer.page(), html, [*read, plot, trace])
    answer.print_json() if json else answer.print()
    if search and isinstance(answer, SearchAnswer) and answer.ranked.result.left:
        raise typer.Exit(STOPPED)
    if must_fit and not answer.fits:
        smaller = "--global-batch" if search else "--batch"
        raise RuntimeError(
            f"{unfit(question.model, answer.verdict)}; a smaller {smaller} or another --device may fit"
        )


def run(question: StepTime, sweep: str | None, *, plot: Path | None, trace: Path | None) -> Answer:
    """Simulate one step, or one for each value of a sweep."""
    cluster, ddp = question.cluster, question.ddp
    parameter, values = _checked(question, sweep)
    disturbance = question.disturbances.disturbance
    counted = [f"{cluster}:{whole_nodes(value)}" for value in values] if parameter == "nodes" else [cluster]
    libraries = [question.bound(one) for one in counted]
    caps = values if parameter == "bucket-cap-mb" else [ddp.bucketing.bucket_cap_mb]
    work = question.trained(libraries[0])
    with console.simulating("simulating", len(libraries) * len(caps)) as bar:
        rows = outcomes(question, work, libraries, caps, question.global_batch, bar.done)
    best = None
    if parameter == "bucket-cap-mb":
        best = recommended_cap({cap: row.step for cap, row in zip(values, rows, strict=True)})
    disturbed = None
    if disturbance:
        step = rows[0].step
        disturbed = disturbed_step(question.disturbances, disturbance, work, libraries[0], ddp, step.step_s)
        disturbed.write(f"{step.workload} on {step.ranks} ranks, disturbed", plot, trace)
    elif plot:
        _draw(parameter, values, rows, best, plot)
    if trace and not disturbed:
        write_file(trace, rows[0].step.dumps())
    before = None
    if ddp.compresses:
        plain = replace(ddp, comm_hook="allreduce")
        group, costs = process_group(libraries[0]), work.costs_on(libraries[0])
        before = simulate_step(work.sized(None), group, plain, costs).step_s
    return Answer(
        question=question,
        inputs=question.understood(libraries[0].name, work.precision) | {"sweep": sweep},
        precision=work.precision,
        rows=rows,
        held=memory(work.sized(None), ddp, find_optimizer(question.optimizer)),
        room=room_of(question.gpu, question.reserve),
        best_mb=best,
        disturbed=disturbed,
        uncompressed_s=before,
        swept=(parameter, values) if parameter else None,
    )


def _check_has_effect(given: set[str], strategy: str) -> None:
    """Refuse options of the command line that mean nothing under a layout."""
    for name in sorted(
        given & (DDP_STEP if strategy in COPIES and strategy != "data_parallel" else DDP_STEP | BUCKETS)
    ):
        option = f"--{name.replace('_', '-')}"
        raise ValueError(
            f"{option} is of a step of DistributedDataParallel"
            + (" alone" if name in DDP_STEP else f", and --strategy is {strategy}")
            + "; leave it out"
        )


def _check_search(given: set[str], *, search: bool) -> None:
    """Refuse options that a search leaves no room for, and those of a search without it."""
    for name in sorted(given & (ONE_LAYOUT if search else {"top", "fixed"})):
        why = "of one layout, and --search has many;" if search else "of --search; add it, or"
        raise ValueError(f"--{name.replace('_', '-')} is {why} leave it out")


def _checked(question: StepTime, sweep: str | None) -> tuple[str | None, list[float]]:
    """Return the parameter and values of a sweep; raise ValueError for options that contradict it."""
    parameter, values = sweep_of(sweep)
    if parameter == "nodes" and (question.ranks is not None or split(question.cluster)[1] is not None):
        raise ValueError("a sweep of nodes counts for itself; leave -g and the cluster's own count out")
    if parameter and (disturbed_by := question.disturbances.disturbed_by):
        raise ValueError(
            f"{disturbed_by}: what disturbs a step is of one, not of a sweep; remove one of them"
        )
    bucketing = question.ddp.bucketing
    if parameter == "bucket-cap-mb" and (bucketing.bucket_cap_mb is not None or bucketing.bucket_cap_mb_list):
        option = "--bucket-cap-mb-list" if bucketing.bucket_cap_mb_list else "--bucket-cap-mb"
        raise ValueError(f"{option} and a sweep of bucket-cap-mb; remove one of them")
    return parameter, values


def _check_outputs(plot: Path | None, trace: Path | None, sweep: str | None, inputs: list[str]) -> None:
    """Refuse files that could not be written, before any work is done for them."""
    if trace and sweep:
        raise ValueError("a trace shows one step, not a sweep; leave --trace or --sweep out")
    check_format(plot)
    check_outputs((plot, trace), inputs)


def _draw(
    parameter: str | None, values: list[float], rows: list[Outcome], best: float | None, plot: Path
) -> None:
    from ringside.pictures.jobs.training import draw_sweep, draw_timelines

    steps = [row.step for row in rows]
    if parameter:
        draw_sweep(parameter, values, steps, best, plot)
    else:
        draw_timelines({f"{steps[0].workload} on {steps[0].ranks} ranks": steps[0]}, plot)
