"""``ringside goodput``: the productive share of a long job with failures, checkpoints and restarts."""

from dataclasses import asdict

import typer

from ringside import console, options
from ringside.options import asks
from ringside.sim.faults.law import RELAPSE_S
from ringside.sim.goodput.cost import Cost
from ringside.sim.goodput.formulas import best_interval, daly, young
from ringside.sim.goodput.published import PUBLISHED
from ringside.sim.goodput.study import Goodput
from ringside.sim.questions.job_faults import SHARES, JobFaults
from ringside.topologies.disk import check_outputs
from ringside.topologies.units import format_amount, format_count, format_span
from ringside.validation.questions.job_goodput import JobGoodput, JobGoodputs, facts

CURVE_POINTS = 9

HEADS = (
    *(("checkpoint", "every"), ("formula", "(%)"), ("first order", "(%)"), ("simulated", "(%)")),
    *(("99 % from", "(%)"), ("to", "(%)"), ("life: 5 %", "(%)"), ("95 %", "(%)"), ("wall", "")),
)


@asks(JobGoodput)
def command(
    question: JobGoodput,
    context: typer.Context,
    plot: options.Plot = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict a long job's goodput after failures, checkpoints and restarts."""
    if not console.given(context) - {"json", "all_columns"}:
        _list(as_json=json)
        return
    check_outputs([plot])
    with console.progress("living", None) as bar:
        answer = question.ask(
            curve=CURVE_POINTS if plot else 0,
            on_interval=lambda interval_s: bar.done(f"a checkpoint every {format_span(interval_s)}"),
        )
    if plot:
        from ringside.pictures.jobs.goodput import draw_goodput

        title = question.known.title if question.known else ""
        best_s = answer.best_interval_s
        draw_goodput(answer.job, title, list(answer.curve), answer.goodputs[0], best_s, plot)
    if json:
        known = question.known
        of = {"source": known.source, "assumed": known.assumed, "reported": known.reported} if known else None
        content = {"inputs": answer.inputs, "published": of, **facts(answer.job)}
        if step := question.model_step:
            content["step"] = asdict(step)
        if faults := question.job_faults:
            content["faults"] = faults.content()
        console.print_json("goodput", {**content, "notes": answer.notes, "rows": answer.rows})
    else:
        _print(answer)


def _list(*, as_json: bool) -> None:
    """List the published trainings."""
    if as_json:
        rows = [
            {"name": one.name, "title": one.title, "source": one.source, **facts(one.job)}
            for one in PUBLISHED.values()
        ]
        console.print_json("goodput_trainings", {"trainings": rows})
        return
    heads = (("training", ""), ("nodes", ""), ("a failure", "every"), ("reported", ""))
    table = [
        (one.name, one.job.nodes, format_span(one.job.mtbf_s), one.reported or "-")
        for one in PUBLISHED.values()
    ]
    headline = f"{len(table)} published trainings; ringside goodput NAME predicts one"
    console.print_answer(
        headline, console.TextTable(heads, table),
        notes=[f"{one.name}: {one.source}" for one in PUBLISHED.values()],
    )  # fmt: skip


def _print(answer: JobGoodputs) -> None:
    faults = answer.question.job_faults
    job, known = answer.job, answer.question.known
    write, persist = job.checkpoints.write_s, job.checkpoints.persist_s
    fails = f"a failure every {format_span(job.mtbf_s)}" if job.rate else "no failures"
    lines = [
        f"{format_count(job.nodes, 'node')}, {job.spares} spare, {fails}; {format_span(job.work_s)} of work",
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
    lines += [_cost_line(answer, *pair) for pair in zip(answer.goodputs, answer.costs, strict=False)]
    first = answer.goodputs[0]
    heads = (("badput", ""), ("of the time", "(%)"))
    grids = [
        console.TextTable(HEADS, [_row(one) for one in answer.goodputs]),
        console.TextTable(
            heads, [(name.replace(" ", "_"), 100 * lost) for name, lost in first.badput.items()]
        ),
    ]
    if len(job.causes) > 1:
        worst = sorted(job.causes, key=lambda cause: -first.lost_s[cause.name])
        rows = [
            (
                one.name.replace(" ", "_"),
                first.failures[one.name],
                100 * first.lost_s[one.name] / first.wall_s,
            )
            for one in worst
        ]
        grids.append(console.TextTable((("cause", ""), ("failures", "a life"), ("of the time", "(%)")), rows))
    if faults:
        grids += _grids_of(faults)
        lines += _lines_of(faults)
    notes = [*lines, *answer.notes]
    console.print_answer(answer.headline, *grids, rests_on=answer.rests_on, notes=notes)


def _lines_of(faults: JobFaults) -> list[str]:
    """Return what the record says, a sentence each."""
    content, law = faults.content(), faults.law
    spread = content["expected"]
    return [
        *([f"source: {content['source']}"] if content["source"] else []),
        f"{content['faults']} faults of {content['nodes_with_faults']} of {law.nodes} nodes in "
        f"{format_span(law.span_s)}, {content['per_1000_node_days']:.3g} in 1000 node-days",
        f"{law.relapse:.0%} of repairs are followed by another fault of the node within "
        f"{format_span(RELAPSE_S)}, beyond what chance gives",
        f"node-days down: {content['recorded']['node_days']:.4g}; nine of ten as long records drawn from "
        f"the law have {spread['p5_node_days']:.4g} to {spread['p95_node_days']:.4g}",
        f"{faults.nodes} nodes with {faults.spares} spares are whole for {content['whole']:.1%} of the time",
    ]


def _grids_of(faults: JobFaults) -> list[console.TextTable]:
    """Return nodes down, as recorded and by the law, spares, and repairs by kind."""
    content = faults.content()
    heads: tuple[tuple[str, str], ...] = (
        ("nodes down", ""),
        ("mean", ""),
        *((f"{share:.0%}", "of the time") for share in SHARES),
    )
    rows = [
        (name.replace(" ", "_"), *(content[key][one] for one in ("mean", "p50", "p90", "p99")))
        for name, key in (("recorded", "recorded"), ("by the law", "expected"))
    ]
    spares = ["-" if row["spares"] is None else row["spares"] for row in content["spares"]]
    down = console.TextTable(heads, [*rows, ("spares_needed", "-", *spares)])
    heads = (("kind", ""), ("faults", ""), ("repair", "mean"), ("50 %", ""), ("90 %", ""))
    kinds = [
        (
            one["name"].replace(" ", "_"), one["faults"],
            *(format_span(one[key]).replace(" ", "") for key in ("mean_s", "p50_s", "p90_s")),
        )
        for one in content["kinds"]
    ]  # fmt: skip
    return [down, console.TextTable(heads, kinds)]


def _cost_line(answer: JobGoodputs, one: Goodput, cost: Cost) -> str:
    """Return what the job costs with an interval."""
    amount = "" if cost.steps is None else f"{format_amount(answer.question.tokens or 0)} tokens: "
    steps = "" if cost.steps is None else f"{cost.steps:,} steps, "
    spares = ", spare ones too" if answer.job.spares else ""
    return (
        f"{amount}{steps}{cost.text()}, failures included; {cost.gpus:,} GPUs{spares}, "
        f"a checkpoint every {format_span(one.interval_s)}"
    )


def _row(one: Goodput) -> tuple[console.Cell, ...]:
    shares = (one.expected, one.first_order, one.simulated, one.low99, one.high99, one.p5, one.p95)
    return (
        format_span(one.interval_s).replace(" ", ""),
        *(100 * share for share in shares),
        format_span(one.wall_s).replace(" ", ""),
    )
