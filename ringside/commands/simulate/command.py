"""``ringside simulate``: a table of predictions, one row per size; for NCCL also its alternatives."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.commands.simulate.links import Links, content_of, links_of, named, show
from ringside.commands.simulate.links import draw as draw_links
from ringside.commands.simulate.outputs import Outputs, draw_answer
from ringside.fields import asks
from ringside.sim.questions.collective_time import CollectiveTime, CollectiveTimes
from ringside.sim.questions.disturbances import Disturbances
from ringside.sim.questions.question import BySize

SIZE = (("size", "(B)"), ("time", "(us)"), ("algbw", "(GB/s)"), ("busbw", "(GB/s)"))
BAND = (("lo", "(us)"), ("hi", "(us)"))
FACTOR = ("band", "(x)")
WAY = (("algorithm", ""), ("protocol", ""), ("engine", ""))
NCCL_WAY = (("algorithm", ""), ("proto", ""), ("ch", ""))
WEIGHED = (("runner-up", ""), ("by", "(%)"), ("engine", ""))
WORDS = (
    "ch: channels; runner-up: the tuner's second choice, and how much longer it takes",
    "remaining columns: NCCL's estimate for every algorithm and protocol",
)
FACTOR_WORDS = "band: 80 % of times lie between time / band and time * band"


MOST_LINKS = 10
"""The default number of links that are printed."""


@asks(CollectiveTime)
def command(
    question: CollectiveTime,
    trace: options.Trace = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=options.check_picture,
            help="Draw ranks and links over time: .svg, .png or .pdf.",
        ),
    ] = None,
    links: Annotated[
        bool, typer.Option("--links", help="Print the busiest links and the waits for them.")
    ] = False,
    top: Annotated[
        int | None, typer.Option(min=1, show_default="10", help="Number of links that --links prints.")
    ] = None,
    plot: options.Plot = None,
    export: options.Export = None,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict how long a collective takes."""
    if top is not None and not links:
        raise ValueError(f"--top {top} limits the links that --links prints; add --links, or remove it")
    outputs = Outputs(trace=trace, timeline=timeline, plot=plot, export=export, links=links)
    outputs.check(question)
    with console.simulating("simulating") as bar:
        answer = question.ask(traced=bool(trace or timeline), on_size=bar.done)
    comments = outputs.write(answer)
    busiest = links_of(answer.first) if links else None
    if plot and answer.disturbed:
        from ringside.pictures.jobs.disturbance import draw_disturbed

        draw_disturbed(f"{named(answer.predictions[0])}, disturbed", answer.disturbed, plot)
    elif plot and busiest:
        draw_links(busiest, answer.first.library, plot)
    elif plot:
        draw_answer(answer, plot)
    _show(answer, comments, busiest, top=top or MOST_LINKS, as_json=json)


def _show(
    answer: CollectiveTimes,
    exported: list[str],
    busiest: Links | None,
    *,
    top: int,
    as_json: bool,
) -> None:
    if as_json:
        content: dict[str, Any] = {"inputs": answer.inputs, **answer.totals, "rows": answer.rows}
        content |= {"no_effect": answer.idle} if answer.idle else {}
        content |= {"links": content_of(busiest, top)} if busiest else {}
        console.print_json("simulate", content)
        return
    rows, question, disturbed = answer.rows, answer.question, answer.disturbed
    is_nccl = "choices_us" in rows[0]
    comments: list[console.Comment] = [_headline(answer), *answer.notes, *exported]
    comments += [answer.basis] if answer.basis else []
    if is_nccl:
        comments += [*([FACTOR_WORDS] if answer.is_measured else ()), *WORDS]
        pairs = list(dict.fromkeys(pair for row in rows for pair in row["choices_us"]))
        has_band = any(row["time_hi_s"] > row["time_lo_s"] for row in rows)
        band = (FACTOR,) if answer.is_measured else BAND if has_band else ()
        heads = [*SIZE, *NCCL_WAY, *band, *WEIGHED]
        heads += [*(BAND if answer.is_measured else ()), *((pair, "(us)") for pair in ("tuner", *pairs))]
        cells = [_weighed(row, pairs, band) for row in rows]
    else:
        band = BAND if answer.is_measured else ()
        heads = [*SIZE, *WAY, *band]
        cells = [(*_cells(row), row["engine"], *_band(row)[: len(band)]) for row in rows]
    if disturbed:  # has one size only
        late = disturbed.columns()
        heads = [*heads[:2], *((name, "(us)") for name in late), *heads[2:]]
        cells = [(*some[:2], *(late_s * 1e6 for late_s in late.values()), *some[2:]) for some in cells]
    if question.nodes:
        heads = [("nodes", ""), *heads]
        cells = [(row["num_nodes"], *some) for row, some in zip(rows, cells, strict=True)]
    console.print_table([*comments, *(disturbed.lines() if disturbed else ())], heads, cells)
    if busiest:
        show(busiest, top)


def _headline(answer: CollectiveTimes) -> dict[str, Any]:
    """Return the inputs that the first line of the table repeats."""
    left_out = {"placement", "placed", *(one.name for one in (*fields(BySize), *fields(Disturbances)))}
    return {name: value for name, value in answer.inputs.items() if name not in left_out}


def _cells(row: dict[str, Any]) -> tuple[console.Cell, ...]:
    way = row["algorithm"], row["protocol"]
    return (row["size_bytes"], row["time_s"] * 1e6, row["algbw_GBps"], row["busbw_GBps"], *way)


def _band(row: dict[str, Any]) -> tuple[console.Cell, ...]:
    return row["time_lo_s"] * 1e6, row["time_hi_s"] * 1e6


def _weighed(
    row: dict[str, Any], pairs: Sequence[str], band: Sequence[tuple[str, str]]
) -> tuple[console.Cell, ...]:
    """Return a row of NCCL: its choice, ``band``, the runner-up, and its estimate for every pair."""
    taken, times = f"{row['algorithm']}/{row['protocol']}", row["choices_us"]
    others = [pair for pair in times if pair != taken]
    runner_up = min(others, key=times.__getitem__, default="-")
    by = round(100 * (times[runner_up] / row["tuner_us"] - 1)) if others else "-"
    factor = max(row["time_hi_s"] / row["time_s"], row["time_s"] / row["time_lo_s"])
    return (
        *(*_cells(row), row["channels"], *([factor] if FACTOR in band else _band(row)[: len(band)])),
        *(runner_up, by, row["engine"], *(_band(row) if FACTOR in band else ())),
        *(row["tuner_us"], *(times.get(pair, "-") for pair in pairs)),
    )
