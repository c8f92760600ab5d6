"""``ringside topo``: list the named clusters, or describe, draw and write one."""

import inspect
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.commands.topo.channels import show_channels
from ringside.pictures.style import check_format
from ringside.sim.collective import Collective
from ringside.sim.effort import consider, forced
from ringside.sim.libraries.find import default_library, find_library
from ringside.sim.libraries.library import Candidate
from ringside.sim.proof import prove
from ringside.sim.schedule import Schedule
from ringside.topologies import MAKERS, Routes, Topology, load, num_machines, parse_settings, ranks, settings
from ringside.topologies.catalogue import split
from ringside.topologies.disk import check_outputs, write_file
from ringside.topologies.fabrics.refitting import FABRICS, keys_of
from ringside.topologies.file import dumps
from ringside.topologies.machine_file import EXAMPLE
from ringside.topologies.units import format_duration, format_rate

NBYTES = 64 << 20
"""The size of the all-reduce shown: large enough for NCCL to use all its channels."""


def command(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME[:COUNT]|FILE]", help="List all without it.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(help="Number of machines, instead of :COUNT.")] = None,
    settings: options.Settings = None,
    output: Annotated[Path | None, typer.Option("-o", metavar="FILE", help="Write it as YAML.")] = None,
    plot: options.Plot = None,
    schedule: Annotated[
        str | None, typer.Option(metavar="ALGORITHM", help="Show the connections of an all-reduce.")
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Print a file that describes a cluster in ten lines.")
    ] = False,
    channels: Annotated[
        bool, typer.Option("--channels", help="Print NCCL's rings and trees, with reasons.")
    ] = False,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """List the named clusters, or describe, draw or write one."""
    with forced(force):
        run(
            *(name, nodes, settings or [], output, plot, schedule),
            example=example,
            channels=channels,
            as_json=json,
        )


def run(
    name: str | None,
    nodes: int | None,
    changes: list[str],
    output: Path | None,
    plot: Path | None,
    algorithm: str | None,
    *,
    example: bool,
    channels: bool,
    as_json: bool,
) -> None:
    """List all clusters, describe, write or draw one, or print an example file."""
    if example:
        given = (name, nodes, output, plot, algorithm)
        if changes or as_json or channels or any(x is not None for x in given):
            raise ValueError("--example only prints a cluster file; remove the other options")
        print(EXAMPLE, end="")
        return
    if channels and (name is None or output or plot or algorithm):
        raise ValueError(
            "--channels only prints NCCL's rings and trees of one cluster; "
            "write for example ringside topo dgx-h100:2 --channels"
        )
    if name is None:
        if changes or any(given is not None for given in (nodes, output, plot, algorithm)):
            raise ValueError("the cluster is missing; write its name first, for example star:4")
        _list(as_json=as_json)
        return
    check_format(plot)
    check_outputs((output, plot), inputs=[split(name)[0]])
    cluster = f"{console.check_count(name, nodes)}:{nodes}" if nodes is not None else name
    if channels:
        show_channels(cluster, changes, as_json=as_json)
        return
    graph = load(cluster, parse_settings(changes))
    if output:
        write_file(output, dumps(graph))
    if algorithm is not None:
        _show_schedule(cluster, changes, graph, algorithm, plot, as_json=as_json)
        return
    if plot:
        from ringside.pictures.topology import draw_topology

        draw_topology(graph, plot)
    if as_json:
        inputs = {"cluster": cluster, "settings": changes}
        console.print_json("topo", {"inputs": inputs, "library": default_library(cluster), **_content(graph)})
    else:
        _describe(graph)
        console.print_wrapped(f"library of collectives: {default_library(cluster)} by default")


def _list(*, as_json: bool) -> None:
    known = {
        name: {"counts": next(iter(inspect.signature(maker).parameters)), "settings": settings(name),
               "what": (inspect.getdoc(maker) or "").partition("\n")[0]}
        for name, maker in MAKERS.items()
    }  # fmt: skip
    fabrics = {name: keys_of(name) for name in FABRICS}
    if as_json:
        console.print_json("topo", {"clusters": known, "fabrics": fabrics})
        return
    for name, about in known.items():
        console.print_wrapped(f"{name}:{str(about['counts']).upper()}  {about['what']}")
        for key, default in settings(name).items():
            print(f"    --set {key}={default.replace(' ', '')}")
    print("any machines on a fabric, instead of their own switches:")
    for name, keys in fabrics.items():
        console.print_wrapped(f"    --set fabric={name}  with --set of {', '.join(keys)}", " " * 8)


def _content(graph: Topology) -> dict[str, Any]:
    return {
        "name": graph.graph["name"],
        "machines": num_machines(graph),
        "ranks": len(ranks(graph)),
        "nodes": dict(Counter(data["kind"] for _, data in graph.nodes(data=True))),
        "links": [
            {"kind": kind, "bandwidth": bandwidth, "latency": latency, "count": count}
            for (kind, bandwidth, latency), count in _link_counts(graph).items()
        ],
    }


def _link_counts(graph: Topology) -> Counter[tuple[str, float, float]]:
    return Counter((d["kind"], d["bandwidth"], d["latency"]) for _, _, d in graph.edges(data=True))


def _describe(graph: Topology) -> None:
    content = _content(graph)
    count = len(ranks(graph))
    print(f"{content['name']}: {count} ranks, machines: {content['machines']}")
    console.print_wrapped(
        "nodes  " + ", ".join(f"{number} {kind}" for kind, number in content["nodes"].items())
    )
    heads = (("links", "(one way)"), ("kind", ""), ("bandwidth", ""), ("latency", ""))
    rows = [
        (number, kind, format_rate(bandwidth), format_duration(latency))
        for (kind, bandwidth, latency), number in _link_counts(graph).items()
    ]
    console.print_table([], heads, rows)
    if count > 1:
        for far in sorted({1, count - 1}):
            route = Routes(graph).route(0, far)
            console.print_wrapped(f"rank 0 to {far}: " + " -> ".join([route[0][0], *(b for _, b in route)]))


def _show_schedule(
    cluster: str, settings: list[str], graph: Topology, algorithm: str, plot: Path | None, *, as_json: bool
) -> None:
    """Print the connections of an all-reduce on the cluster, and draw them to ``plot``."""
    plan = _plan(cluster, settings, len(ranks(graph)), algorithm)
    with console.simulating("proving"):
        consider(plan, graph)
        prove(plan)
        links = plan.links()
    if plot:
        from ringside.pictures.collectives.schedule import draw_schedule

        draw_schedule(links, f"{algorithm} all_reduce on {cluster}", plot)
    if as_json:
        channels = [{"channel": c, "connections": list(pairs)} for c, pairs in links.items()]
        console.print_json("schedule", {"cluster": cluster, "algorithm": algorithm, "channels": channels})
        return
    legend = f"{algorithm} all_reduce on {cluster}, {plan.ranks} ranks; a>b: a sends to b, a+b: b adds"
    console.print_comments([legend])
    for channel, pairs in links.items():
        console.print_wrapped(
            f"channel {channel:>2}  "
            + " ".join(f"{a}{'+' if adds else '>'}{b}" for (a, b), adds in pairs.items())
        )


def _plan(cluster: str, settings: list[str], count: int, algorithm: str) -> Schedule:
    if count == 1:
        raise ValueError(f"{cluster} is one rank without peers; write more")
    library = find_library(None, cluster, parse_settings(settings))
    collective = Collective("all_reduce", library.ranks, NBYTES, dtype="float32")
    return library.schedule(collective, Candidate(algorithm, "simple"))
