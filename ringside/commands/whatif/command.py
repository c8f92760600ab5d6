"""``ringside whatif``: a prediction beside those of changed clusters or algorithms, with their limits."""

from dataclasses import asdict
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.sim.collective import KINDS
from ringside.topologies import parse_settings
from ringside.topologies.placement import EVEN, in_words, placement_told
from ringside.topologies.units import parse_size
from ringside.whatif import Changed, ask, asked_of, usual_changes

HEADS = (
    *(("what if", ""), ("time", "(ms)"), ("as is = 1", ""), ("limited by", ""), ("for", "(%)")),
    *(("busiest", ""), ("busy", "(%)"), ("by", ""), ("ranks", "")),
)

BELIEVED = "all by the library's own estimate, uncalibrated"
MEASURED = "all as measured ({}); changed rates scale this by the library's own model"


def command(
    context: typer.Context,
    what: Annotated[
        str,
        typer.Argument(metavar="COLLECTIVE|MODEL", help="all_reduce, ..., or a model: resnet50, ..."),
    ],
    cluster: options.Cluster,
    settings: options.Settings = None,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="KEY=VALUE,...",
            show_default="network, nodes and algorithm",
            help="nic=2x, nodes=2x, algorithm=tree, ...; repeat for more.",
        ),
    ] = None,
    size: Annotated[str, typer.Option(metavar="SIZE", help="Size of a collective.")] = "64M",
    ranks: options.Ranks = None,
    placement: options.Placement = EVEN,
    library: options.Library = None,
    algorithm: options.Algorithm = "auto",
    protocol: options.Protocol = "auto",
    batch: Annotated[
        int | None, typer.Option(show_default="32 or the file's", help="Training: samples per rank.")
    ] = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict the effect of another network, more nodes or another algorithm, and the new limit."""
    given = console.given(context)
    collective = what in KINDS
    if lost := given & ({"batch"} if collective else {"size", "algorithm", "protocol"}):
        other = "trainings" if collective else "collectives"
        raise ValueError(f"--{min(lost)} is an option of {other}, and {what} is not one; remove it")
    question = asked_of(
        cluster, parse_settings(settings or []), what=what, nbytes=parse_size(size) if collective else 0,
        library=library, algorithm=algorithm, protocol=protocol, batch=batch, ranks=ranks,
        placement=placement,
    )  # fmt: skip
    changes = change or usual_changes(question)
    with console.simulating("simulating", 1) as bar:
        rows = ask(question, changes)
        bar.done("simulated")
    clock = next((one.measured for one in rows if one.measured is not None), "")
    basis = MEASURED.format(clock) if clock else BELIEVED
    if json:
        content: dict[str, Any] = {"inputs": asdict(question) | {"changes": changes}, "note": basis}
        console.print_json("whatif", content | {"rows": [_row(one, rows[0]) for one in rows]})
        return
    where = " ".join([cluster, *(settings or [])])
    subject = f"{what} of {size}" if collective else f"a step of {what}"
    comments = [f"{subject} on {where}", *placement_told(ranks, placement, rows[0].placed), basis]
    console.print_table(comments, HEADS, [_cells(one, rows[0]) for one in rows])


def _row(one: Changed, first: Changed) -> dict[str, Any]:
    row = {
        "change": one.change, "cluster": one.asked.cluster, "settings": dict(one.asked.figures),
        "ranks": one.ranks, "placed": in_words(one.placed), "time_s": one.time_s, "times": _times(one, first),
        "by": one.way, "limit": one.limit, "share": one.share, "busiest": one.busiest, "busy": one.busy,
    }  # fmt: skip
    return row if one.throughput is None else {**row, "throughput": one.throughput}


def _times(one: Changed, first: Changed) -> float | None:
    """Return the time relative to the original's; None relative to no time."""
    if first.time_s:
        return one.time_s / first.time_s
    return None if one.time_s else 1.0


def _cells(one: Changed, first: Changed) -> tuple[console.Cell, ...]:
    times = _times(one, first)
    return (
        *(one.change or "as_is", one.time_s * 1e3, "-" if times is None else f"{times:.4g}"),
        *(one.limit.replace(" ", "_"), one.share * 100),
        *(one.busiest.replace(" ", "_") or "-", one.busy * 100, one.way, one.ranks),
    )
