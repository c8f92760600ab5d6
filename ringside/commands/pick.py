"""``ringside pick``: the winner at every size and node count, by how much, and rules for NCCL."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ringside import console
from ringside.pictures.style import check_format
from ringside.request import library_of, refuse_nccl_options
from ringside.simulate_nccl import settings_of
from sim.collective import check_redop, itemsize, kind_of
from sim.libraries.nccl.cluster import communicators
from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.constants import DEFAULT_VERSION
from sim.libraries.nccl.files.plugin_csv import tuner_csv
from sim.pick import ERROR, Pick, pick, ranges
from sim.rankings import ideal_times, nccl_default, pipeline_times, tuner_times
from topologies import Topology, load, parse_settings
from topologies.disk import check_outputs, write_file
from topologies.units import format_size

TIMES = "tuner"
"""By which NCCL's pairs are ranked if nobody says otherwise."""

HEADS = (
    *(("nodes", ""), ("from", ""), ("to", ""), ("algorithm", ""), ("protocol", "")),
    *(("margin", "(%, least)"), ("verdict", "")),
)


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for, in the words of the command line."""

    collective: str
    cluster: str
    nodes: str
    settings: tuple[str, ...]
    sweep: tuple[str, str, int, str | None]
    library: str | None
    algorithm: str
    protocol: str
    times: str | None
    nccl_version: str | None
    nccl_graph: Path | None
    dtype: str
    redop: str


def run(request: Request, plot: Path | None, csv: Path | None, *, as_json: bool) -> None:
    """Pick, print, draw and write the tuner's rules where asked to."""
    check_format(plot)
    check_outputs((plot, csv), inputs=[request.cluster, request.nccl_graph or ""])
    check_redop(request.redop)
    itemsize(request.dtype)
    library = library_of(request.library, request.cluster)
    kind, counts = kind_of(request.collective), _counts(request.nodes)
    sizes = console.sizes(*request.sweep)
    if library == "nccl":
        comms = _communicators(request, counts)
        picks = _pick_nccl(request, comms, kind, counts, sizes)
        if csv:
            write_file(csv, tuner_csv(comms, kind, picks, request.dtype, request.redop))
    elif library == "ideal":
        refuse_nccl_options(
            library, protocol=None if request.protocol == "auto" else request.protocol, times=request.times,
            nccl_version=request.nccl_version, nccl_graph=request.nccl_graph,
        )  # fmt: skip
        if csv:
            raise ValueError("NCCL's tuner does not know the textbook's algorithms; write --library nccl")
        with console.simulating("simulating"):
            picks = pick(ideal_times(_cluster(request), kind, request.dtype), counts, sizes)
    else:
        raise ValueError(f"nothing to pick in {library!r}; write nccl or ideal")
    if plot:
        from ringside.plots import draw_picks

        draw_picks(picks, f"{kind} on {request.cluster}, {library}", plot)
    _print(request, library, picks, as_json=as_json)


def _pick_nccl(
    request: Request, comms: dict[int, Communicator], kind: str, counts: list[int], sizes: list[int]
) -> list[Pick]:
    """By the tuner's times, where NCCL's default wins; or by the pipelines', where it may not."""
    models = {"tuner": tuner_times, "pipeline": pipeline_times}
    if request.times not in (None, *models):
        raise ValueError(f"{request.times!r} are no known times; write {' or '.join(models)}")
    times = models[request.times or TIMES](comms, kind, request.dtype, request.redop)
    return pick(times, counts, sizes, default=nccl_default(comms, kind, request.dtype, request.redop))


def _communicators(request: Request, counts: list[int]) -> dict[int, Communicator]:
    settings = settings_of(request.algorithm, request.protocol, request.nccl_version)
    values = parse_settings(list(request.settings))
    found = communicators(request.cluster, values, counts, None, settings, request.nccl_graph)
    alone = [nodes for nodes, comm in found.items() if comm is None]
    if alone:
        raise ValueError(
            f"{request.cluster} on {alone[0]} node is one rank with nothing to choose; write more nodes"
        )
    return {nodes: comm for nodes, comm in found.items() if comm is not None}


def _cluster(request: Request) -> Callable[[int], Topology]:
    if ":" in request.cluster or request.algorithm != "auto":
        raise ValueError(
            f"write the cluster without a count and no --algorithm: --nodes {request.nodes} counts"
        )
    values = parse_settings(list(request.settings))
    return lambda count: load(f"{request.cluster}:{count}", values)


def _counts(text: str) -> list[int]:
    counts = text.split(",")
    if not all(count.isdecimal() and int(count) > 0 for count in counts):
        raise ValueError(f"{text!r} are no node counts; write for example 1,2,4,8")
    return [int(count) for count in counts]


def _print(request: Request, library: str, picks: list[Pick], *, as_json: bool) -> None:
    inputs = asdict(request) | {"library": library, "nccl_graph": str(request.nccl_graph or "")}
    if library == "nccl":
        inputs |= {"times": request.times or TIMES, "nccl_version": request.nccl_version or DEFAULT_VERSION}
    del inputs["sweep"]
    if as_json:
        found = {"inputs": inputs, "error": ERROR, "rows": [_row(one) for one in picks]}
        console.print_json("pick", found)
        return
    cells = [
        (
            *(r.nodes, format_size(r.min_bytes), format_size(r.max_bytes), r.algorithm, r.protocol),
            f"{r.margin:.1%}" if math.isfinite(r.margin) else "alone",
            "too close to call in places" if r.too_close else "clear",
        )
        for r in ranges(picks)
    ]
    comments = [
        console.spelled(inputs),
        f"margin: by how much the next takes longer; under {ERROR:.0%} is too close to call; not calibrated",
    ]
    console.print_table(comments, HEADS, cells)
    for one in picks:
        if one.loss:
            default, best = "/".join(one.default or ()), "/".join(one.pair)
            where = f"{one.nodes} nodes, {format_size(one.nbytes)}"
            print(f"# {where}: NCCL's default {default} takes {one.loss:.1%} longer than {best}")


def _row(one: Pick) -> dict[str, Any]:
    return {
        "num_nodes": one.nodes,
        "size_bytes": one.nbytes,
        "algorithm": one.algorithm,
        "protocol": one.protocol,
        "time_s": one.time_s,
        "next_best": "/".join(one.next_best) if one.next_best else None,
        "margin": one.margin if math.isfinite(one.margin) else None,
        "too_close_to_call": one.too_close,
        "default": "/".join(one.default) if one.default else None,
        "default_loss": one.loss,
    }
