"""``ringside topo``: list the named clusters, or describe, draw and write one."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options
from ringside.options import asks
from ringside.sim.libraries.nccl.device.connect import Tree
from ringside.sim.questions.cluster_facts import Catalogue, Channels, ClusterFacts, ClusterLinks, Connections
from ringside.topologies import Routes
from ringside.topologies.catalogue import split
from ringside.topologies.disk import check_outputs, write_file
from ringside.topologies.file import dumps
from ringside.topologies.machine_file import EXAMPLE
from ringside.topologies.units import format_duration, format_rate


@asks(ClusterFacts)
def command(
    question: ClusterFacts,
    output: Annotated[Path | None, typer.Option("-o", metavar="FILE", help="Write it as YAML.")] = None,
    plot: options.Plot = None,
    example: Annotated[
        bool, typer.Option("--example", help="Print a file that describes a cluster in ten lines.")
    ] = False,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """List the named clusters, or describe, draw or write one."""
    if example:
        if question != ClusterFacts() or json or output or plot:
            raise ValueError("--example only prints a cluster file; remove the other options")
        print(EXAMPLE, end="")
        return
    if question.channels and (output or plot):
        raise ValueError(
            "--channels only prints NCCL's rings and trees of one cluster; "
            "write for example ringside topo dgx-h100:2 --channels"
        )
    if question.cluster is None:
        if output or plot:
            raise ValueError("the cluster is missing; write its name first, for example star:4")
    else:
        check_outputs((output, plot), inputs=[split(question.cluster)[0]])
    if output:
        write_file(output, dumps(question.graph()))
    if question.schedule:
        with console.simulating("proving"):
            answer = question.ask()
    else:
        answer = question.ask()
    if plot:
        answer.plot(plot)
    _SHOWN[type(answer)](answer, as_json=json)


def _list(answer: Catalogue, *, as_json: bool) -> None:
    if as_json:
        clusters = {row["cluster"]: {key: row[key] for key in row if key != "cluster"} for row in answer.rows}
        console.print_json("topo", {"clusters": clusters, **answer.totals})
        return
    lines = []
    for row in answer.rows:
        lines.append(f"{row['cluster']}:{row['counts'].upper()}  {row['what']}")
        lines += [f"    --set {key}={value.replace(' ', '')}" for key, value in row["settings"].items()]
    lines.append("any machines on a fabric, instead of their own switches:")
    for name, keys in answer.totals["fabrics"].items():
        lines.append(f"    --set fabric={name}  with --set of {', '.join(keys)}")
    console.print_answer(answer.headline, *lines)


def _describe(answer: ClusterLinks, *, as_json: bool) -> None:
    totals, count = answer.totals, answer.totals["ranks"]
    if as_json:
        console.print_json("topo", {"inputs": answer.inputs, **totals, "links": answer.rows})
        return
    heads = (("links", "(one way)"), ("kind", ""), ("bandwidth", ""), ("latency", ""))
    rows = [
        (row["count"], row["kind"], format_rate(row["bandwidth"]), format_duration(row["latency"]))
        for row in answer.rows
    ]
    routes = []
    for far in sorted({1, count - 1} if count > 1 else ()):
        route = Routes(answer.graph).route(0, far)
        routes.append(f"rank 0 to {far}: " + " -> ".join([route[0][0], *(b for _, b in route)]))
    console.print_answer(answer.headline, console.TextTable(heads, rows), *routes, rests_on=answer.rests_on)


def _show_connections(answer: Connections, *, as_json: bool) -> None:
    algorithm, cluster = answer.question.schedule, answer.question.machines
    if as_json:
        content = {"cluster": cluster, "algorithm": algorithm, "channels": answer.rows}
        console.print_json("schedule", content)
        return
    lines = [
        f"channel {channel:>2}  "
        + " ".join(f"{a}{'+' if adds else '>'}{b}" for (a, b), adds in pairs.items())
        for channel, pairs in answer.links.items()
    ]
    console.print_answer(answer.headline, *lines)


def _show_channels(answer: Channels, *, as_json: bool) -> None:
    """Print every channel's ring and tree, as NCCL's log does."""
    if as_json:
        inputs = {key: answer.inputs[key] for key in ("cluster", "settings")}
        content = {**inputs, "notes": list(answer.notes), **answer.totals, "channels": answer.rows}
        console.print_json("channels", content)
        return
    lines = [
        f"Channel {number:02}/{len(answer.paths):02} : " + " ".join(map(str, ring))
        for number, (ring, _) in enumerate(answer.paths)
    ]
    for rank in range(answer.ranks):
        around = (f"[{n}] {_around(tree, rank)}" for n, (_, tree) in enumerate(answer.paths))
        lines.append("Trees " + " ".join(around))
    notes = [*answer.notes, *(f"{count} channels: {reason}" for count, reason in answer.reasons)]
    console.print_answer(answer.headline, *lines, rests_on=answer.rests_on, notes=notes)


def _around(tree: Tree, rank: int) -> str:
    """Format a rank's children, the rank and its parent, as NCCL logs a tree."""
    below = [*tree.children(rank), -1, -1, -1][:3]
    return f"{'/'.join(map(str, below))}->{rank}->{tree.parent[rank]}"


_SHOWN: dict[type, Callable[..., None]] = {
    Catalogue: _list, ClusterLinks: _describe, Connections: _show_connections, Channels: _show_channels,
}  # fmt: skip
