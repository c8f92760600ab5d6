"""``ringside pick``: the winner at every size and node count with its margin, and rules for NCCL."""

import math
from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options
from ringside.commands.pick.tuner_rules import write_rules
from ringside.fields import asks
from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.pick import ERROR, Pair, ranges
from ringside.sim.questions.algorithm_choice import AlgorithmChoice, AlgorithmPicks
from ringside.topologies.disk import check_outputs
from ringside.topologies.units import format_size

STRETCH = (("nodes", ""), ("from", ""), ("to", ""), ("algorithm", ""))
PROTOCOL = (("protocol", ""),)
VERDICT = (("margin", "(least)"), ("runner-up", ""), ("verdict", ""))
LEFT_OUT = ("begin", "end", "factor", "size", "placement")
"""Inputs that the table shows elsewhere."""


@asks(AlgorithmChoice)
def command(
    question: AlgorithmChoice,
    plot: options.Plot = None,
    tuner_csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Rules for NCCL's example tuner plugin; FILE.json: for NCCLX's."),
    ] = None,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Show which algorithm wins at every size and node count, and by how much."""
    inputs = [question.cluster, question.calibration, question.nccl_graph]
    inputs += [question.anchor.path] if question.anchor else []
    check_outputs((plot, tuner_csv), inputs=[str(one) for one in inputs if one])
    with console.simulating("simulating"):
        answer = question.ask()
        rules = write_rules(answer, tuner_csv) if tuner_csv else []
        picks = answer.picks
    if plot:
        from ringside.pictures.collectives.picks import draw_picks

        draw_picks(picks, _title(answer), plot)
    if json:
        content = {"inputs": answer.inputs, "error": ERROR, "notes": answer.notes, "rows": answer.rows}
        console.print_json("pick", content)
        return
    _print(answer)
    console.print_comments([*_losses(answer), *rules])


def _title(answer: AlgorithmPicks) -> str:
    """Return the picture's title: collective, cluster, library, release and times."""
    library, question = answer.library, answer.question
    whose = " ".join(filter(None, (LIBRARIES[library.name].title, library.version)))
    return f"{question.collective} on {question.cluster}: {whose}, {answer.clock} times"


def _print(answer: AlgorithmPicks) -> None:
    stretches = ranges(answer.picks, answer.question.by)
    several = any(one.protocol != "auto" for one in stretches)
    cells = [
        (
            *(r.nodes, format_size(r.min_bytes), format_size(r.max_bytes), r.algorithm),
            *([r.protocol] if several else ()),
            f"{r.margin:.1%}" if math.isfinite(r.margin) else "alone",
            _named(r.next_best) if r.next_best else "-",
            "close" if r.too_close else "clear",
        )
        for r in stretches
    ]
    inputs = {name: value for name, value in answer.inputs.items() if name not in LEFT_OUT}
    if answer.library.has_tuner:
        del inputs["network"]
    within = "within measurement uncertainty" if answer.is_measured else f"under {ERROR:.0%}"
    comments = [
        console.one_line_of(inputs),
        f"margin: by how much the runner-up takes longer; {within} is too close to call",
        *answer.notes,
    ]
    console.print_table(comments, (*STRETCH, *(PROTOCOL if several else ()), *VERDICT), cells)


def _losses(answer: AlgorithmPicks) -> list[str]:
    """Describe the sizes at which the library's own choice loses, a sentence each."""
    losses = []
    for one in answer.picks:
        if one.loss:
            default, best = _named(one.default or ("-", "auto")), _named(one.pair)
            sure = "" if one.loss >= one.loss_error else f", which may be off by {one.loss_error:.0%}"
            losses.append(
                f"{one.nodes} nodes, {format_size(one.nbytes)}: {LIBRARIES[answer.library.name].title}'s "
                f"default {default} takes {one.loss:.1%} longer than {best}{sure}"
            )
    return losses


def _named(pair: Pair) -> str:
    """Return an algorithm, with its protocol where the library has several."""
    algorithm, protocol = pair
    return algorithm if protocol == "auto" else f"{algorithm}/{protocol}"
