"""``ringside pick``: the winner at every size and node count with its margin, and rules for NCCL."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options
from ringside.options import asks
from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.libraries.nccl.files.rules import own_stretches, picked_stretches, tuner_csv, tuner_json
from ringside.sim.pick import ERROR, Pair, ranges
from ringside.sim.questions.algorithm_choice import AlgorithmChoice, AlgorithmPicks, way_of
from ringside.topologies.disk import check_outputs, write_file
from ringside.topologies.units import format_size


def write_rules(answer: AlgorithmPicks, path: Path) -> list[str]:
    """Write rules of NCCLX's tuner (.json) or of NCCL's example plugin; return the differences from NCCL.

    Rules by NCCL's own times are exact. By measured times they keep NCCL's own choice unless it certainly
    loses.
    """
    question = answer.question
    if not answer.library.has_tuner:
        title = LIBRARIES[answer.library.name].title
        raise ValueError(f"NCCL's tuner has no algorithms of {title}; write --library nccl")
    comms = {nodes: one.comm for nodes, one in answer.libraries.items() if one.comm}
    kind, types = question.collective, (question.dtype, question.redop)
    stretches = {}
    for nodes, comm in comms.items():

        def winners(sizes: list[int], nodes: int = nodes) -> list[Pair]:
            return [one.pair if question.times else one.advised for one in answer.picked([nodes], sizes)]

        if not answer.is_measured and question.times in (None, "tuner"):
            stretches[nodes] = own_stretches(comm, kind, *types)
        else:
            stretches[nodes] = picked_stretches(comm, kind, question.sizes, winners, *types)
    is_json = path.suffix == ".json"
    rules = tuner_json(comms, kind, stretches) if is_json else tuner_csv(comms, kind, stretches, *types)
    write_file(path, rules)
    return _departures(answer, path) if answer.is_measured else []


def _departures(answer: AlgorithmPicks, path: Path) -> list[str]:
    """Describe the differences of the rules from NCCL's own choice, a sentence for each node count."""
    sentences = []
    for nodes in answer.libraries:
        moved = [one for one in answer.picks if one.nodes == nodes and one.advised != one.default]
        where = ", ".join(f"{format_size(one.nbytes)} {'/'.join(one.advised)}" for one in moved) or "nowhere"
        sentences.append(
            f"{path}: rules by measured times on {nodes} nodes: {where}; elsewhere NCCL's own choice"
        )
    return sentences


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
        _ = answer.picks  # which takes the time
    if plot:
        answer.plot(plot)
    if json:
        content = {"inputs": answer.inputs, "error": ERROR, "notes": answer.notes, "rows": answer.rows}
        console.print_json("pick", content)
        return
    _print(answer, rules)


def _print(answer: AlgorithmPicks, rules: Sequence[str]) -> None:
    stretches = ranges(answer.picks, answer.question.by)
    several = any(one.protocol != "auto" for one in stretches)
    cells = [
        (
            *(r.nodes, format_size(r.min_bytes), format_size(r.max_bytes), r.algorithm),
            *([r.protocol] if several else ()),
            f"{r.margin:.1%}" if math.isfinite(r.margin) else "alone",
            way_of(r.next_best) if r.next_best else "-",
            "close" if r.too_close else "clear",
        )
        for r in stretches
    ]
    inputs = {name: value for name, value in answer.inputs.items() if name not in LEFT_OUT}
    if answer.library.has_tuner:
        del inputs["network"]
    within = "within measurement uncertainty" if answer.is_measured else f"under {ERROR:.0%}"
    notes = [
        console.one_line_of(inputs),
        f"margin: by how much the runner-up takes longer; {within} is too close to call",
        *answer.notes,
        *answer.losses,
    ]
    heads = [*STRETCH, *(PROTOCOL if several else ()), *VERDICT]
    if len({r.too_close for r in stretches}) == 1:  # which the headline says once
        heads, cells = heads[:-1], [some[:-1] for some in cells]
    console.print_answer(
        answer.headline, console.TextTable(heads, cells), rests_on=answer.rests_on, notes=[*notes, *rules]
    )
