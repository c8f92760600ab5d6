"""``ringside train``: a data-parallel training step, what it hides and what stays exposed."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options
from ringside.commands.train import search as train_search
from ringside.commands.train.answer import ParallelAnswer, StepsAnswer, unfit
from ringside.commands.train.recorded import RecordedAnswer
from ringside.commands.train.search import SearchAnswer
from ringside.options import asks
from ringside.report.page import write_page
from ringside.sim.program.timeline import ProgramTimeline
from ringside.sim.questions.disturbances import Disturbances
from ringside.sim.questions.question import options_of
from ringside.sim.training.ddp.scaling import recommended_cap
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.training.step import StagedStep
from ringside.topologies.catalogue import MAX_LINKS, split
from ringside.topologies.disk import check_outputs, write_file
from ringside.validation.questions.layout_search import LAYOUT_FIELDS, TOP, LayoutSearch
from ringside.validation.questions.recorded import StepOfRecording
from ringside.validation.questions.step_time import DataParallelSteps, StepTime, StepUnderLayout
from ringside.validation.questions.training import TrainingOnCluster

SWEEPS = ("bucket-cap-mb", "nodes")


def sweep_of(text: str) -> tuple[str, list[float]]:
    """Parse a ``parameter=value,value`` text."""
    parameter, _, values = text.partition("=")
    try:
        numbers = [float(value) for value in values.split(",")]
    except ValueError:
        numbers = []
    if parameter not in SWEEPS or not numbers or any(not 0 <= value < float("inf") for value in numbers):
        raise ValueError(
            f"{text!r} is not a sweep of {' or '.join(SWEEPS)}; write for example bucket-cap-mb=1,5,25"
        )
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"{text!r} names a value twice; write each once")
    return parameter, numbers


def whole_nodes(nodes: float) -> int:
    """Return a value of a sweep as a number of machines."""
    if nodes != int(nodes) or not 1 <= nodes <= MAX_LINKS:
        raise ValueError(
            f"{nodes:g} is not a number of nodes; write 1 to {MAX_LINKS}, for example nodes=1,2,4"
        )
    return int(nodes)


ONE_LAYOUT = {"sweep", "accumulation", *(one.name for one in fields(Disturbances))}
"""Options that do not apply to a search."""


Memory = Annotated[
    bool, typer.Option("--memory", help="Print what the memory is for, and which changes save some.")
]
PlotMemory = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", callback=options.check_picture, help="Draw each stage's memory over the step."
    ),
]


@asks(StepTime, LayoutSearch)
def command(
    question: StepTime,
    context: typer.Context,
    sweep: Annotated[
        str | None, typer.Option(metavar="PARAMETER=A,B,C", help="bucket-cap-mb=1,5,25 or nodes=1,2,4")
    ] = None,
    must_fit: Annotated[
        bool, typer.Option("--must-fit", help="Exit with 1 if it is tight or does not fit.")
    ] = False,
    search: Annotated[
        bool, typer.Option("--search", help="Find the fastest layout that fits; given options are fixed.")
    ] = False,
    top: int = 0,
    fixed: Sequence[str] = (),
    by: str = "time",
    memory: Memory = False,
    plot: options.Plot = None,
    plot_memory: PlotMemory = None,
    animate: options.Animate = None,
    html: options.Html = None,
    trace: options.Trace = None,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict a training step: what communication it hides and what stays exposed."""
    answer: OneAnswer | SearchAnswer
    model = str(question.model)
    read: list[Path | str] = [model.partition(":")[0], split(question.cluster)[0]]
    read += [question.megatron] if question.megatron else []
    if trace and sweep:
        raise ValueError("a trace shows one step, not a sweep; leave --trace or --sweep out")
    check_outputs((plot, plot_memory, animate, trace, html), read)
    if question.recorded is not None and search:
        raise ValueError(f"{model} is as it was recorded, and --search has many layouts; leave one out")
    if question.megatron is not None:
        _check_launched(question, context, search=search)
    if search:
        layouts = _search(question, console.given(context), fixed, top=top, by=by)
        answer = train_search.run(layouts, plot=plot, trace=trace)
    else:
        if fixed or top != TOP:
            raise ValueError(f"--{'fixed' if fixed else 'top'} is of --search; add it, or leave it out")
        if by != "time":
            raise ValueError("--by is of --search; add it, or leave it out")
        answer = _asked(question, sweep, plot, trace)
        if animate:
            _animate(answer, animate)
        if plot_memory or memory:
            answer = _with_memory(answer, plot_memory, shown=memory)
    if html:
        write_page(answer.page(), html, [*read, plot, plot_memory, trace])
    answer.print_json() if json else answer.print()
    if search and isinstance(answer, SearchAnswer) and answer.stopped_by:
        raise typer.Exit(128 + answer.stopped_by)
    if must_fit and not answer.fits:
        smaller = "--global-batch" if search else "--batch"
        raise RuntimeError(f"{unfit(model, answer.verdict)}; a smaller {smaller} or another --device may fit")


def _search(question: StepTime, given: set[str], fixed: Sequence[str], *, top: int, by: str) -> LayoutSearch:
    """Return the search; raise ValueError for options of one layout."""
    for name in sorted(given & {*ONE_LAYOUT, "plot_memory", "memory", "animate"}):
        raise ValueError(f"--{name.replace('_', '-')} is of one layout, and --search has many; leave it out")
    options = {one.name: getattr(question.simple, one.name) for one in options_of(TrainingOnCluster)}
    named = [*(fixed or ()), *(name for name in LAYOUT_FIELDS if name in given)]
    return LayoutSearch(**options, top=top, fixed=named, by=by)


def _check_launched(question: StepTime, context: typer.Context, *, search: bool) -> None:
    """Raise ValueError for a search, and for a default that is given where the launch has another value."""
    if search:
        raise ValueError(f"{question.megatron} has one layout, and --search has many; leave one of them out")
    given = console.given(context)
    for one in options_of(StepTime):
        value = getattr(question, one.name)
        if one.name in given and context.params[one.name] == one.default != value:
            raise ValueError(
                f"--{one.name.replace('_', '-')} {one.default}, and {question.megatron} has {value}; leave "
                "it out, or change the file"
            )


OneAnswer = StepsAnswer | ParallelAnswer | RecordedAnswer


def _asked(question: StepTime, sweep: str | None, plot: Path | None, trace: Path | None) -> OneAnswer:
    """Simulate the step, or those of a sweep; draw and trace them."""
    if sweep:
        return _swept(question, sweep, plot)
    with console.simulating("simulating") as bar:
        answer = question.ask(on_step=bar.done)
    step = answer.steps[0].step if isinstance(answer, DataParallelSteps) else answer.step
    timeline: TrainingStep | ProgramTimeline | None
    timeline = step.timeline if isinstance(step, StagedStep) else step
    if answer.disturbed:
        timeline = answer.disturbed.typical
    if plot and answer.disturbed:
        from ringside.pictures.jobs.program import draw_disturbed

        draw_disturbed(f"{step.workload} on {step.ranks} ranks, disturbed", answer.disturbed, plot)
    elif plot and isinstance(step, StagedStep):
        from ringside.pictures.jobs.pipeline import draw_pipeline

        draw_pipeline(step, plot)
    elif plot and isinstance(step, TrainingStep):
        from ringside.pictures.jobs.training import draw_timelines

        draw_timelines({f"{step.workload} on {step.ranks} ranks": step}, plot)
    if trace and timeline:
        write_file(trace, timeline.dumps())
    return shown_answer(answer)


def shown_answer(answer: DataParallelSteps | StepUnderLayout | StepOfRecording) -> OneAnswer:
    """Return an answer for output."""
    if isinstance(answer, StepOfRecording):
        return RecordedAnswer(answer=answer)
    return ParallelAnswer(answer=answer) if isinstance(answer, StepUnderLayout) else StepsAnswer(steps=answer)


def _with_memory(answer: OneAnswer, plot: Path | None, *, shown: bool) -> ParallelAnswer | RecordedAnswer:
    """Draw the memory of a step under a layout; return the answer, which shows it if requested."""
    if isinstance(answer, StepsAnswer):
        option = "--memory" if shown else "--plot-memory"
        raise ValueError(f"{option} is of a layout, and this is plain ddp; add for example --micro-batch 1")
    if plot:
        from ringside.pictures.jobs.memory import draw_memory

        draw_memory(answer.answer.step, answer.answer.fit, plot)
    return replace(answer, shows_memory=shown)


def _animate(answer: OneAnswer, path: Path) -> None:
    """Write the page on which micro-batches of a pipeline move."""
    if not isinstance(answer, ParallelAnswer):
        raise ValueError("--animate shows a pipeline, and this has none; add for example --pp 4")
    from ringside.pictures.animation.page import write_animation
    from ringside.pictures.animation.pipeline import animated

    question = answer.answer.question
    write_animation(animated(answer.answer.step, question.job.layout.schedule, question.where), path)


def _swept(question: StepTime, sweep: str, plot: Path | None) -> StepsAnswer:
    """Simulate a step for each value of a sweep."""
    parameter, values = _checked(question, sweep)
    clusters, caps = [question.cluster], [question.bucket_cap_mb]
    if parameter == "nodes":
        clusters = [f"{question.cluster}:{whole_nodes(value)}" for value in values]
    else:
        caps = [*values]
    with console.simulating("simulating", len(values)) as bar:
        answer = question.ask_each(clusters, caps, on_step=bar.done)
    steps = [one.step for one in answer.steps]
    best = None
    if parameter == "bucket-cap-mb":
        best = recommended_cap(dict(zip(values, steps, strict=True)))
    if plot:
        from ringside.pictures.jobs.training import draw_sweep

        draw_sweep(parameter, values, steps, best, plot)
    return StepsAnswer(steps=answer, best_mb=best, swept=(sweep, parameter, values))


def _checked(question: StepTime, sweep: str) -> tuple[str, list[float]]:
    """Return the parameter and values of a sweep; raise ValueError for options that contradict it."""
    if question.is_staged:
        raise ValueError("--sweep applies to plain DistributedDataParallel alone; leave it out")
    parameter, values = sweep_of(sweep)
    if parameter == "nodes" and (question.ranks is not None or split(question.cluster)[1] is not None):
        raise ValueError("--sweep nodes sets the node count; leave -g and the cluster's own count out")
    if parameter and (disturbed_by := question.disturbances.disturbed_by):
        raise ValueError(
            f"{disturbed_by}: a disturbance applies to one step, not to a sweep; remove one of them"
        )
    has_caps = question.bucket_cap_mb is not None or question.bucket_cap_mb_list
    if parameter == "bucket-cap-mb" and has_caps:
        option = "--bucket-cap-mb-list" if question.bucket_cap_mb_list else "--bucket-cap-mb"
        raise ValueError(f"{option} and a sweep of bucket-cap-mb exclude each other; remove one of them")
    return parameter, values
