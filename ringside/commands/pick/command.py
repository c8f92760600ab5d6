"""``ringside pick``: the winner at every size and node count, by how much, and rules for NCCL."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.anchor import calibration_of
from ringside.pictures.style import check_format
from ringside.sim.collective import kind_of
from ringside.sim.engine.effort import forced
from ringside.sim.libraries.find import Options, as_mpi, check_pickable, default_library, find_library
from ringside.sim.libraries.library import Library
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.files.plugin_csv import tuner_csv
from ringside.sim.libraries.nccl.files.plugin_json import tuner_json
from ringside.sim.libraries.nccl.files.rules import own_stretches, picked_stretches
from ringside.sim.libraries.nccl.library import CLOCKS, Nccl
from ringside.sim.libraries.nccl.releases import DEFAULT_VERSION
from ringside.sim.libraries.nccl.tuning.tuner import check_function
from ringside.sim.pick import BY, ERROR, Pair, Pick, default_of, doubt_of, pick, ranges, times_of
from ringside.topologies import parse_settings
from ringside.topologies.catalogue import split
from ringside.topologies.disk import check_outputs, write_file
from ringside.topologies.placement import EVEN, placement_told
from ringside.topologies.units import format_size

STRETCH = (("nodes", ""), ("from", ""), ("to", ""), ("algorithm", ""))
PROTOCOL = (("protocol", ""),)
VERDICT = (("margin", "(least)"), ("runner-up", ""), ("verdict", ""))


@dataclass(frozen=True, slots=True)
class PickRequest:
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
    network: str
    nccl_version: str | None
    nccl_graph: Path | None
    dtype: str
    redop: str
    calibration: str
    anchor: Path | None
    by: str
    ranks: int | None = None
    placement: str = EVEN


def command(
    context: typer.Context,
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, reduce_scatter, broadcast, ...")],
    cluster: options.Cluster,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="N,N,...", show_default="as --cluster NAME:COUNT", help="Counts of machines, or of ranks."
        ),
    ] = None,
    settings: options.Settings = None,
    begin: options.Begin = "1K",
    end: options.End = "1G",
    factor: options.Factor = 2,
    size: options.Size = None,
    ranks: options.Ranks = None,
    placement: options.Placement = EVEN,
    library: options.Library = None,
    algorithm: options.Algorithm = "auto",
    protocol: options.Protocol = "auto",
    times: options.Times = None,
    network: options.Network = "fifo",
    nccl_version: options.NcclVersion = None,
    nccl_graph: options.NcclGraph = None,
    dtype: options.Dtype = "float32",
    redop: options.Redop = "sum",
    calibration: options.CalibrationFile = "auto",
    anchor: options.Anchor = None,
    by: Annotated[
        str,
        typer.Option(
            metavar=options.choices(BY), help="What competes; algorithm: by the best protocol of each."
        ),
    ] = "pair",
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
    console.check_sizes(context)
    cluster, nodes = counted(cluster, nodes)
    request = PickRequest(
        collective, cluster, nodes, tuple(settings or ()), (begin, end, factor, size), library, algorithm,
        protocol, times, network, nccl_version, nccl_graph, dtype, redop, calibration, anchor, by, ranks,
        placement,
    )  # fmt: skip
    with forced(force):
        run(request, plot, tuner_csv, as_json=json)


def counted(cluster: str, nodes: str | None) -> tuple[str, str]:
    """The cluster without its count, and the counts that either of both says."""
    name, count = console.check_count(cluster, nodes), split(cluster)[1]
    if count is None and nodes is None:
        raise ValueError(f"how many machines? write --cluster {cluster}:16, or --nodes 1,2,4,8")
    return name, nodes or str(count)


def run(request: PickRequest, plot: Path | None, csv: Path | None, *, as_json: bool) -> None:
    """Pick, print, draw and write the tuner's rules where asked to."""
    check_format(plot)
    read = [request.cluster, request.calibration, request.nccl_graph or "", request.anchor or ""]
    check_outputs((plot, csv), inputs=read)
    options = Options(
        request.algorithm, request.protocol, request.nccl_version, request.nccl_graph, request.times,
        request.network, request.placement,
    )  # fmt: skip
    name = request.library or default_library(request.cluster, options)
    kind, counts = kind_of(request.collective), console.counts(request.nodes)
    sizes = console.sizes(*request.sweep)
    libraries = _libraries(request, name, counts, options)
    if csv and name != "nccl":
        whose = "MPI's" if name == "mpi" else "the textbook's"
        raise ValueError(f"NCCL's tuner does not know {whose} algorithms; write --library nccl")
    words = kind, request.dtype, request.redop
    comms, default = {}, None
    if name == "nccl":
        check_function(kind)
        comms = _communicators(request, libraries)
    if name != "ideal":
        default = default_of(libraries.__getitem__, *words)
    times, doubt = times_of(libraries.__getitem__, *words), doubt_of(libraries.__getitem__, *words)

    def picked(nodes: list[int], asked: list[int]) -> list[Pick]:
        return pick(times, nodes, asked, error=doubt, default=default, by=request.by)

    with console.simulating("simulating"):
        picks = picked(counts, sizes)
    by_own = True
    if csv:
        by_own = all(not one.calibrated for one in libraries.values() if isinstance(one, Nccl))
        write_file(csv, _rules(request, comms, sizes, picked, by_own=by_own, json=csv.suffix == ".json"))
    placed = (placement_told(request.ranks, request.placement, one.placed) for one in libraries.values())
    notes = dict.fromkeys([*chain.from_iterable(placed), *_notes(libraries)])
    version = next((comm.settings.version for comm in comms.values()), DEFAULT_VERSION)
    if plot:
        from ringside.pictures.collectives.picks import draw_picks

        draw_picks(picks, _title(kind, request, libraries, name, version), plot)
    _print(request, name, version, picks, list(notes), as_json=as_json)
    if csv and not by_own and not as_json:
        console.print_comments(_followed(csv, picks))


def _rules(
    request: PickRequest,
    comms: dict[int, Communicator],
    sizes: list[int],
    picked: Callable[[list[int], list[int]], list[Pick]],
    *,
    by_own: bool,
    json: bool,
) -> str:
    """The rules of NCCLX's tuner or of NCCL's example plugin; those of NCCL's own times are exact.

    By measured times NCCL's own choice stands where it is not certain to lose.
    """
    kind, types = kind_of(request.collective), (request.dtype, request.redop)
    found = {}
    for nodes, comm in comms.items():

        def taken(asked: list[int], nodes: int = nodes) -> list[Pair]:
            return [one.pair if request.times else one.advised for one in picked([nodes], asked)]

        if by_own and request.times in (None, "tuner"):
            found[nodes] = own_stretches(comm, kind, *types)
        else:
            found[nodes] = picked_stretches(comm, kind, sizes, taken, *types)
    return tuner_json(comms, kind, found) if json else tuner_csv(comms, kind, found, *types)


def _followed(csv: Path, picks: list[Pick]) -> list[str]:
    """Where the rules depart from NCCL's own choice."""
    found = []
    for nodes in dict.fromkeys(one.nodes for one in picks):
        moved = [one for one in picks if one.nodes == nodes and one.advised != one.default]
        where = ", ".join(f"{format_size(one.nbytes)} {'/'.join(one.advised)}" for one in moved) or "nowhere"
        found.append(f"{csv}: measured times followed on {nodes} nodes: {where}; elsewhere NCCL's own choice")
    return found


def _title(kind: str, request: PickRequest, libraries: Mapping[int, Library], name: str, version: str) -> str:
    """What the map shows: whose choice, of which release, by which times."""
    whose, times = name, "simulated"
    if name == "nccl":
        whose = f"NCCL {version}"
        measured = any(isinstance(one, Nccl) and one.calibrated for one in libraries.values())
        times = f"{request.times or ('measured' if measured else 'tuner')} times"
    elif name == "mpi":
        whose = "MPI"
        times = "measured times" if any("as measured" in one for one in _notes(libraries)) else times
    return f"{kind} on {request.cluster}: {whose}, {times}"


def _notes(libraries: Mapping[int, Library]) -> list[str]:
    """On what the times rest."""
    found = []
    for library in libraries.values():
        if isinstance(library, Nccl) and library.calibrated:
            found.append(f"times as measured ({library.calibrated.name})")
        if isinstance(library, Nccl):
            found += library.notes
        elif (mpi := as_mpi(library)) and mpi.measured:
            found.append(f"times as measured ({mpi.measured[1]})")
    return found


def _libraries(request: PickRequest, name: str, counts: list[int], options: Options) -> dict[int, Library]:
    """The library on each count of machines, or of ranks."""
    check_pickable(name)
    is_one = request.algorithm != "auto" and not {",", "^"} & set(request.algorithm)
    if name in ("ideal", "mpi") and is_one:
        raise ValueError(
            f"--algorithm {request.algorithm} leaves {name} nothing to pick; write several (ring,tree), or "
            "leave it out"
        )
    values = parse_settings(list(request.settings))
    found = calibration_of(request.calibration, request.anchor, request.cluster, values)
    return {
        count: find_library(
            name,
            f"{request.cluster}:{count}",
            values,
            ranks=request.ranks,
            options=options,
            calibration=found,
        )
        for count in counts
    }


def _communicators(request: PickRequest, libraries: Mapping[int, Library]) -> dict[int, Communicator]:
    """NCCL's communicators; one rank alone is refused."""
    found = {nodes: library.comm for nodes, library in libraries.items() if isinstance(library, Nccl)}
    for nodes, comm in found.items():
        if comm is None:
            raise ValueError(
                f"{request.cluster} on {nodes} node is one rank with nothing to choose; write more nodes"
            )
    return {nodes: comm for nodes, comm in found.items() if comm is not None}


def _print(
    request: PickRequest, library: str, version: str, picks: list[Pick], notes: list[str], *, as_json: bool
) -> None:
    inputs = asdict(request) | {"library": library, "nccl_graph": str(request.nccl_graph or "")}
    inputs["anchor"] = str(request.anchor or "")
    is_measured = any(note.startswith("times as measured") for note in notes)
    if library == "nccl":
        inputs |= {
            "times": request.times or ("measured" if is_measured else CLOCKS[0]),
            "nccl_version": version,
        }
        del inputs["network"]
    del inputs["sweep"]
    placement = inputs.pop("placement")
    if as_json:
        inputs["placement"] = placement
        content = {"inputs": inputs, "error": ERROR, "notes": notes, "rows": [_row(one) for one in picks]}
        console.print_json("pick", content)
        return
    found = ranges(picks, request.by)
    several = any(one.protocol != "auto" for one in found)
    cells = [
        (
            *(r.nodes, format_size(r.min_bytes), format_size(r.max_bytes), r.algorithm),
            *([r.protocol] if several else ()),
            f"{r.margin:.1%}" if math.isfinite(r.margin) else "alone",
            _named(r.next_best) if r.next_best else "-",
            "close" if r.too_close else "clear",
        )
        for r in found
    ]
    within = "within what the measurements leave open" if is_measured else f"under {ERROR:.0%}"
    comments = [
        console.spelled(inputs),
        f"margin: by how much the runner-up takes longer; {within} is too close to call",
        *notes,
    ]
    console.print_table(comments, (*STRETCH, *(PROTOCOL if several else ()), *VERDICT), cells)
    losses = []
    for one in picks:
        if one.loss:
            default, best = _named(one.default or ("-", "auto")), _named(one.pair)
            where = f"{one.nodes} nodes, {format_size(one.nbytes)}"
            sure = "" if one.loss >= one.loss_error else f", which may be off by {one.loss_error:.0%}"
            whose = "NCCL" if library == "nccl" else "Open MPI"
            losses.append(
                f"{where}: {whose}'s default {default} takes {one.loss:.1%} longer than {best}{sure}"
            )
    console.print_comments(losses)


def _named(pair: Pair) -> str:
    """An algorithm, and its protocol where the library has several."""
    algorithm, protocol = pair
    return algorithm if protocol == "auto" else f"{algorithm}/{protocol}"


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
        "margin_error": one.error,
        "default_loss_error": one.loss_error,
    }
