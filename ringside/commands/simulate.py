"""``ringside simulate``: a table of predictions, one row a size; of NCCL also what else it weighed."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringside import console, options
from ringside.commands.simulate_file import file_of, given
from ringside.commands.simulate_links import Links, content_of, draw, links_of, show
from ringside.pictures.style import check_format
from ringside.splits import read_splits, splits_file
from sim.calibration import Calibration, find_calibration
from sim.collective import Collective, kind_of
from sim.engine.effort import forced
from sim.formats.schedule_files import check_format as check_format_of
from sim.formats.schedule_files import write
from sim.libraries.find import Options, as_mpi, as_nccl, find_library
from sim.libraries.library import Library, Prediction, answer, check_growth
from topologies import parse_settings
from topologies.catalogue import split
from topologies.disk import check_outputs, write_file

if TYPE_CHECKING:
    from sim.libraries.nccl.library import Nccl

SIZE = (("size", "(B)"), ("time", "(us)"), ("algbw", "(GB/s)"), ("busbw", "(GB/s)"))
BAND = (("lo", "(us)"), ("hi", "(us)"))
WAY = (("algorithm", ""), ("protocol", ""))


@dataclass(frozen=True, slots=True)
class SimulateRequest:
    """What was asked for, in the words of the command line."""

    collective: str
    cluster: str
    settings: tuple[str, ...]
    sweep: tuple[str, str, int, str | None]
    ranks: int | None
    library: str | None
    algorithm: str
    protocol: str
    engine: str
    network: str
    nccl_version: str | None
    nccl_graph: Path | None
    dtype: str
    redop: str
    calibration: str
    anchor: Path | None
    times: str | None
    trace: Path | None
    links: bool
    top: int
    plot: Path | None
    export: Path | None
    splits: str | None = None


def command(
    context: typer.Context,
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, ..., or MSCCL's XML (.xml).")],
    cluster: options.Cluster,
    settings: options.Settings = None,
    begin: options.Begin = "8",
    end: options.End = "128M",
    factor: options.Factor = 2,
    size: options.Size = None,
    splits: Annotated[
        str | None,
        typer.Option(metavar="LIST|FILE", help="Uneven all_to_all: elements from each rank to each, 4,1;1,4"),
    ] = None,
    ranks: options.Ranks = None,
    library: options.Library = None,
    algorithm: options.Algorithm = "auto",
    protocol: options.Protocol = "auto",
    engine: options.Engine = "auto",
    network: options.Network = "fifo",
    nccl_version: options.NcclVersion = None,
    nccl_graph: options.NcclGraph = None,
    dtype: options.Dtype = "float32",
    redop: options.Redop = "sum",
    calibration: options.CalibrationFile = "auto",
    anchor: options.Anchor = None,
    times: options.Times = None,
    trace: options.Trace = None,
    links: Annotated[bool, typer.Option("--links", help="Print the busiest links and who waits.")] = False,
    top: Annotated[int, typer.Option(min=1, help="How many links --links prints.")] = 10,
    plot: options.Plot = None,
    export: options.Export = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Predict how long a collective takes."""
    console.check_sizes(context)
    if splits is not None and (sized := console.given(context) & {"size", "begin", "end", "factor"}):
        raise ValueError(f"--splits says how much goes where; leave --{min(sized)} out")
    if "top" in console.given(context) and not links:
        raise ValueError(f"--top {top} says how many links --links prints; add --links, or leave it out")
    request = SimulateRequest(
        collective, cluster, tuple(settings or ()), (begin, end, factor, size), ranks, library,
        algorithm, protocol, engine, network, nccl_version, nccl_graph, dtype, redop, calibration, anchor,
        times, trace, links, top, plot, export, splits,
    )  # fmt: skip
    with forced(force):
        run(request, as_json=json)


def run(request: SimulateRequest, *, as_json: bool) -> None:
    """Predict each size and print the rows."""
    sizes = console.sizes(*request.sweep) if request.splits is None else [0]
    _check_outputs(request, sizes)
    values = parse_settings(list(request.settings))
    found = find_calibration(request.calibration, request.cluster)
    if request.anchor:
        from ringside.anchor import scaled

        found = scaled(found, request.anchor, request.cluster, values)
    options = Options(
        request.algorithm, request.protocol, request.nccl_version, request.nccl_graph, request.times,
        request.network,
    )  # fmt: skip
    file = file_of(request.collective, request.library) if "." in request.collective else None
    finder = partial(find_library, request.library) if file is None else partial(given, file)
    find = partial(finder, request.cluster, values, ranks=request.ranks, options=options, calibration=found)
    begun = perf_counter()
    library = find()
    kind = file.kind if file else kind_of(request.collective)
    predictions = _predictions(request, library, _collectives(request, library, kind, sizes))
    if library.name != "nccl" and not isinstance(found, Calibration):
        check_growth([one for one in predictions if one.engine != "measured"])
    lost = []
    if request.export:
        candidate = library.choose(predictions[0].collective)
        plan = library.schedule(predictions[0].collective, candidate)
        lost = write(plan, request.export, candidate.protocol)
    if request.trace and predictions[0].timeline:
        write_file(request.trace, predictions[0].timeline.dumps())
    idle = []
    if values:
        from ringside.commands.simulate_settings import idle_rates

        others = partial(finder, request.cluster, ranks=request.ranks, options=options)
        asked = [one.collective for one in predictions]
        idle = idle_rates(
            library, lambda changed: others(changed, calibration=None), values, asked, request.engine,
            perf_counter() - begun,
        )  # fmt: skip
    links = links_of(library, find, predictions[0], request.engine) if request.links else None
    if request.plot and links:
        draw(links, library, request.plot)
    _show(request, library, predictions, [*idle, *lost], links, as_json=as_json)


def _check_outputs(request: SimulateRequest, sizes: list[int]) -> None:
    """Refuse, before any work, what could not be shown or written."""
    if request.trace or request.plot or request.export:
        splits = splits_file(request.splits) if request.splits else None
        inputs = [
            request.collective,
            split(request.cluster)[0],
            request.calibration,
            request.nccl_graph or "",
            request.anchor or "",
            splits or "",
        ]
        check_format_of(request.export)
        check_outputs([request.trace, request.plot, request.export], inputs=inputs)
        check_format(request.plot)
    if request.plot and not request.links:
        raise ValueError(f"--plot {request.plot} draws how busy links are; add --links")
    for option, is_given in (
        ("a trace", request.trace),
        ("--links", request.links),
        ("--export", request.export),
    ):
        if is_given and len(sizes) > 1:
            raise ValueError(f"{option} shows one size, not {len(sizes)}; add --size")


def _collectives(request: SimulateRequest, library: Library, kind: str, sizes: list[int]) -> list[Collective]:
    """One of each size, or the one that the splits are of."""
    ranks = library.ranks
    if request.splits is None:
        return [Collective(kind, ranks, size, dtype=request.dtype, redop=request.redop) for size in sizes]
    if kind != "all_to_all":
        raise ValueError(f"--splits of {kind}; only all_to_all has them, leave them out")
    return [Collective.uneven(read_splits(request.splits, ranks), request.dtype)]


def _predictions(
    request: SimulateRequest, library: Library, collectives: list[Collective]
) -> list[Prediction]:
    predictions = []
    with console.simulating("simulating", len(collectives)) as bar:
        for collective in collectives:
            predictions.append(answer(library, collective, request.engine, traced=request.trace is not None))
            bar.done(f"simulated {collective.nbytes} B")
    return predictions


def _show(
    request: SimulateRequest,
    library: Library,
    predictions: list[Prediction],
    idle: list[str],
    links: Links | None,
    *,
    as_json: bool,
) -> None:
    inputs, rows = (
        _inputs(request, library, predictions[0].collective.kind),
        [_row(library, p) for p in predictions],
    )
    content: dict[str, Any] = {"inputs": inputs, "rows": rows}
    if idle:
        content["no_effect"] = idle
    comments = [console.spelled(inputs), *dict.fromkeys(p.caveat for p in predictions if p.caveat), *idle]
    heads, cells = [*SIZE, *WAY, ("engine", "")], [_cells(row) for row in rows]
    if nccl := as_nccl(library):
        is_measured = any(p.engine == "measured" for p in predictions)
        note = _note(nccl, request.engine, is_measured=is_measured)
        comments += [note, "behind tuner: the tuner's time of every pair that it weighs"]
        content = {"inputs": inputs, "note": note, **content}
        pairs = list(dict.fromkeys(pair for row in rows for pair in row["choices_us"]))
        heads = [*SIZE, *WAY, ("channels", ""), ("engine", ""), *(BAND if is_measured else ())]
        heads += [(pair, "(us)") for pair in ("tuner", *pairs)]
        cells = [(*_cells(row), *(_band(row) if is_measured else ()), *_weighed(row, pairs)) for row in rows]
    if mpi := as_mpi(library):
        note = mpi.note(request.engine)
        comments.append(note)
        content = {"inputs": inputs, "note": note, **content}
        if any(p.engine == "measured" for p in predictions):
            heads, cells = [*heads, *BAND], [(*_cells(row), *_band(row)) for row in rows]
    if as_json:
        console.print_json("simulate", content | ({"links": content_of(links, request.top)} if links else {}))
    else:
        console.print_table(comments, heads, cells)
        if links:
            show(links, request.top)


def _note(library: "Nccl", engine: str, *, is_measured: bool) -> str:
    """On what the times rest."""
    from sim.libraries.nccl.library import LAUNCH_S

    if library.calibrated and is_measured:
        note = f"time_s as measured ({library.calibrated.name}); four of five lie from time_lo_s to time_hi_s"
    else:
        clock = "the closed form's" if library.clock == "pipeline" else "the tuner's"
        whose = "the engine's" if engine in ("simpy", "fast") else clock
        note = f"time_s is {whose} time plus {LAUNCH_S * 1e6:g} us for the launch; it is not calibrated"
    return "; ".join((note, *library.notes))


def _inputs(request: SimulateRequest, library: Library, kind: str) -> dict[str, Any]:
    """What was asked for, as understood."""
    file = {"file": request.collective} if library.name == "file" else {}
    ours = {"collective": kind, **file, "library": library.name, "ranks": library.ranks}
    if nccl := as_nccl(library):
        ours["nccl_version"] = nccl.version
    rest = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(request).items()}
    left = ("sweep", "trace", "links", "top", "plot", "export")
    for key in (*left, *(("splits",) if request.splits is None else ())):
        del rest[key]
    return rest | ours


def _row(library: Library, p: Prediction) -> dict[str, Any]:
    row = {
        "size_bytes": p.collective.nbytes,
        "time_s": p.time_s,
        "time_lo_s": p.time_lo_s,
        "time_hi_s": p.time_hi_s,
        "algbw_GBps": p.algbw / 1e9,
        "busbw_GBps": p.busbw / 1e9,
        "algorithm": p.algorithm,
        "protocol": p.protocol,
        "engine": p.engine,
        **({"caveat": p.caveat} if p.caveat else {}),
    }
    if library.name == "nccl":
        weighed = [one for one in library.candidates(p.collective) if one.algorithm not in ("p2p", "none")]
        row |= {
            "channels": p.channels,
            "tuner_us": p.belief_us,
            "choices_us": {f"{one.algorithm}/{one.protocol}": one.belief_us for one in weighed},
        }
    return row


def _cells(row: dict[str, Any]) -> tuple[console.Cell, ...]:
    ways = [row[key] for key in ("algorithm", "protocol", "channels", "engine") if key in row]
    return (row["size_bytes"], row["time_s"] * 1e6, row["algbw_GBps"], row["busbw_GBps"], *ways)


def _band(row: dict[str, Any]) -> tuple[console.Cell, ...]:
    return row["time_lo_s"] * 1e6, row["time_hi_s"] * 1e6


def _weighed(row: dict[str, Any], pairs: Sequence[str]) -> tuple[console.Cell, ...]:
    return (row["tuner_us"], *(row["choices_us"].get(pair, "-") for pair in pairs))
