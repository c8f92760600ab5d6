"""``ringside goodput``: what failures, checkpoints and restarts leave of a long job's time."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.commands.goodput.job import GPUS_PER_NODE, WORK_S, GoodputRequest, job_of
from ringside.pictures.style import check_format
from ringside.sim.goodput.formulas import best_interval, daly, young
from ringside.sim.goodput.job import DAY_S, LongJob
from ringside.sim.goodput.published import PUBLISHED, TYPICAL, Published, published
from ringside.sim.goodput.study import Goodput, around, check_trials, study
from ringside.topologies.disk import check_outputs
from ringside.topologies.units import format_span, parse_duration

CURVE_POINTS = 9

HEADS = (
    *(("checkpoint", "every"), ("formula", "(%)"), ("first order", "(%)"), ("simulated", "(%)")),
    *(("99 % from", "(%)"), ("to", "(%)"), ("life: 5 %", "(%)"), ("95 %", "(%)"), ("wall", "")),
)


def _duration(help: str, default: str | None = None) -> Any:
    """An option that is a duration."""
    return typer.Option(metavar="DURATION", help=help, show_default=default or False)


def _published_or(seconds: float) -> str:
    """A default that the published training's own figure comes before."""
    return f"{format_span(seconds)}, or as published"


def command(
    context: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[TRAINING]", help="A published training; none: list them.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Nodes that the job needs.")] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option(show_default=str(GPUS_PER_NODE), help="GPUs of a node.")
    ] = None,
    failures: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[CAUSE=]RATE",
            help="gpu=2.4/1000node-days,node-lost or software=1/gpu-year,hang or 8/day; repeat for more.",
        ),
    ] = None,
    mtbf: Annotated[str | None, _duration("Mean time between failures of the whole job: 3h")] = None,
    work: Annotated[
        str | None, _duration("Training, were it never disturbed: 54d", _published_or(WORK_S))
    ] = None,
    checkpoint: Annotated[str | None, _duration("How long training stands still for one: 30s")] = None,
    persist: Annotated[
        str | None, _duration("Asynchronous: until a restart could use it: 2min.", "0s")
    ] = None,
    detect: Annotated[
        str | None, _duration("Until a failure is noticed.", _published_or(TYPICAL.detect_s))
    ] = None,
    timeout: Annotated[
        str | None, _duration("Until a hanging collective is given up.", _published_or(TYPICAL.timeout_s))
    ] = None,
    restart: Annotated[
        str | None,
        _duration(
            "Stop, rendezvous, processes, imports, communicators.",
            _published_or(TYPICAL.stop_s + TYPICAL.rendezvous_s + TYPICAL.start_s),
        ),
    ] = None,
    load: Annotated[str | None, _duration("Reading a checkpoint.", _published_or(TYPICAL.load_s))] = None,
    repair: Annotated[
        str | None, _duration("Until a lost node is back.", _published_or(TYPICAL.repair_s))
    ] = None,
    spares: Annotated[
        int | None, typer.Option(show_default="0", help="Nodes that stand ready beside the job's.")
    ] = None,
    replica: Annotated[
        int | None, typer.Option(metavar="NODES", help="Elastic: go on with whole replicas of so many nodes.")
    ] = None,
    interval: Annotated[list[str] | None, _duration("Between checkpoints; repeat.", "best")] = None,
    step: Annotated[str | None, _duration("A training step: intervals are whole steps.")] = None,
    trials: Annotated[int, typer.Option(help="Lives to simulate.")] = 40,
    seed: Annotated[int, typer.Option(help="Of all that is drawn.")] = 0,
    plot: options.Plot = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict a long job's goodput after failures, checkpoints and restarts."""
    request = GoodputRequest(
        name=name, nodes=nodes, gpus_per_node=gpus_per_node, failures=tuple(failures or ()), mtbf=mtbf,
        work=work, checkpoint=checkpoint, persist=persist, detect=detect, timeout=timeout, restart=restart,
        load=load, repair=repair, spares=spares, replica=replica,
    )  # fmt: skip
    if not console.given(context) - {"json", "all_columns"}:
        _list(as_json=json)
        return
    run(request, interval or [], step, plot, trials=trials, seed=seed, as_json=json)


def run(
    request: GoodputRequest,
    intervals: Sequence[str],
    step: str | None,
    plot: Path | None,
    *,
    trials: int,
    seed: int,
    as_json: bool,
) -> None:
    """Live the job with each interval, print and draw."""
    check_format(plot)
    check_outputs([plot])
    check_trials(trials, seed)
    job = job_of(request)
    known = published(request.name) if request.name else None
    step_s = parse_duration(step) if step else None
    if step_s == 0:
        raise ValueError(f"--step {step} takes no time; write for example 12s")
    best_s = min(best_interval(job), job.work_s)
    wanted = [job.check_interval(parse_duration(text)) for text in intervals] or [best_s]
    asked = [job.check_interval(_whole_steps(one, step_s)) for one in wanted]
    curve = around(job, best_s, CURVE_POINTS) if plot else []
    with console.progress("living", len(asked) + len(curve)) as bar:

        def lived(interval_s: float) -> Goodput:
            found = study(job, interval_s, trials=trials, seed=seed)
            bar.done(f"a checkpoint every {format_span(interval_s)}")
            return found

        answers = [lived(one) for one in asked]
        drawn = [lived(one) for one in curve]
    if plot:
        from ringside.pictures.jobs.goodput import draw_goodput

        draw_goodput(job, known.title if known else "", drawn, answers[0], best_s, plot)
    if as_json:
        console.print_json("goodput", _content(request, job, known, answers, step_s, seed))
    else:
        _print(job, known, answers)


def _whole_steps(interval_s: float, step_s: float | None) -> float:
    """The interval as a whole number of steps, one at least."""
    return max(1, round(interval_s / step_s)) * step_s if step_s else interval_s


def _list(*, as_json: bool) -> None:
    """The published trainings."""
    if as_json:
        rows = [
            {"name": one.name, "title": one.title, "source": one.source, **_facts(one.job)}
            for one in PUBLISHED.values()
        ]
        console.print_json("goodput_trainings", {"trainings": rows})
        return
    heads = (("training", ""), ("nodes", ""), ("a failure", "every"), ("reported", ""))
    table = [
        (one.name, one.job.nodes, format_span(one.job.mtbf_s), one.reported or "-")
        for one in PUBLISHED.values()
    ]
    console.print_table([], heads, table)
    for one in PUBLISHED.values():
        console.print_comments([f"{one.name}: {one.source}"])


def _facts(job: LongJob) -> dict[str, Any]:
    """What a job's answer rests on; None where nothing fails."""
    calm = math.isinf(job.mtbf_s)
    write = job.checkpoints.write_s
    return {
        **{"nodes": job.nodes, "spares": job.spares, "replica_nodes": job.replica_nodes},
        **{"work_s": job.work_s, "mtbf_s": None if calm else job.mtbf_s, "restart_s": job.restart_s},
        **{"checkpoint": asdict(job.checkpoints), "restart": asdict(job.restart)},
        "causes": [
            {**asdict(cause), "per_1000_node_days": cause.per_node_s * DAY_S * 1000} for cause in job.causes
        ],
        "best_interval_s": None if calm else best_interval(job),
        "young_s": None if calm else young(write, job.mtbf_s),
        "daly_s": None if calm else daly(write, job.mtbf_s),
    }


def _content(
    request: GoodputRequest,
    job: LongJob,
    known: Published | None,
    answers: Sequence[Goodput],
    step_s: float | None,
    seed: int,
) -> dict[str, Any]:
    inputs = {**asdict(request), "step_s": step_s, "seed": seed}
    said = {"source": known.source, "assumed": known.assumed, "reported": known.reported} if known else None
    return {
        "inputs": inputs, "published": said, **_facts(job), "notes": _notes(job),
        "rows": [asdict(one) for one in answers],
    }  # fmt: skip


def _notes(job: LongJob) -> list[str]:
    """Where the formula says something else than the simulation."""
    lost = sum(cause.per_node_s for cause in job.causes if cause.loses_node) * job.nodes
    if not lost:
        return []
    return [
        f"a node is lost every {format_span(1 / lost)} and away for {format_span(job.restart.repair_s)}; "
        "the formula takes all of them to be there"
    ]


def _print(job: LongJob, known: Published | None, answers: Sequence[Goodput]) -> None:
    write, persist = job.checkpoints.write_s, job.checkpoints.persist_s
    fails = f"a failure every {format_span(job.mtbf_s)}" if job.rate else "never a failure"
    lines = [
        f"{job.nodes} nodes, {job.spares} spare, {fails}; {format_span(job.work_s)} of work",
        f"a checkpoint stops training for {format_span(write)}"
        + (f", usable {format_span(persist)} later" if persist else ""),
    ]
    if job.rate:
        lines[-1] += (
            f"; a restart takes {format_span(job.restart_s)}, loading {format_span(job.restart.load_s)} of it"
        )
    if known:
        lines = [known.title, f"source: {known.source}", f"assumed: {known.assumed}", *lines]
        lines += [f"reported: {known.reported}"] if known.reported else []
    if job.rate:
        lines.append(
            f"best interval {format_span(best_interval(job))}, by Young "
            f"{format_span(young(write, job.mtbf_s))}, by Daly {format_span(daly(write, job.mtbf_s))}"
        )
    console.print_table([*lines, *_notes(job)], HEADS, [_row(one) for one in answers])
    first = answers[0]
    print("#")
    heads = (("badput", ""), ("of the time", "(%)"))
    console.print_table(
        [], heads, [(name.replace(" ", "_"), 100 * lost) for name, lost in first.badput.items()]
    )
    if len(job.causes) > 1:
        print("#")
        worst = sorted(job.causes, key=lambda cause: -first.lost_s[cause.name])
        rows = [
            (
                one.name.replace(" ", "_"),
                first.failures[one.name],
                100 * first.lost_s[one.name] / first.wall_s,
            )
            for one in worst
        ]
        console.print_table([], (("cause", ""), ("failures", "a life"), ("of the time", "(%)")), rows)


def _row(one: Goodput) -> tuple[console.Cell, ...]:
    shares = (one.expected, one.first_order, one.simulated, one.low99, one.high99, one.p5, one.p95)
    return (
        format_span(one.interval_s).replace(" ", ""),
        *(100 * share for share in shares),
        format_span(one.wall_s).replace(" ", ""),
    )
