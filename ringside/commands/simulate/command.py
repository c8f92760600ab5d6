"""``ringside simulate``: a table of predictions, one row a size; of NCCL also what else it weighed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.anchor import calibration_of
from ringside.commands.simulate.file import file_of, given
from ringside.commands.simulate.links import Links, content_of, links_of, named, show
from ringside.commands.simulate.links import draw as draw_links
from ringside.commands.simulate.nodes import clusters_of
from ringside.commands.simulate.nodes import draw as draw_curves
from ringside.commands.simulate.request import SimulateRequest, check_outputs
from ringside.commands.simulate.timeline import draw as draw_timeline
from ringside.disturbed import DisturbanceWords, Disturbed, drawn
from ringside.sim.calibration import Calibration
from ringside.sim.collective import Collective, kind_of
from ringside.sim.disturbance import Disturbance
from ringside.sim.engine.effort import forced
from ringside.sim.formats.schedule_files import write
from ringside.sim.libraries.find import Options, find_library
from ringside.sim.libraries.library import Library, Prediction, answer, check_growth
from ringside.splits import read_splits
from ringside.topologies import parse_settings
from ringside.topologies.disk import write_file
from ringside.topologies.placement import EVEN, in_words, placement_told

SIZE = (("size", "(B)"), ("time", "(us)"), ("algbw", "(GB/s)"), ("busbw", "(GB/s)"))
BAND = (("lo", "(us)"), ("hi", "(us)"))
FACTOR = ("band", "(x)")
WAY = (("algorithm", ""), ("protocol", ""), ("engine", ""))
NCCL_WAY = (("algorithm", ""), ("proto", ""), ("ch", ""))
WEIGHED = (("runner-up", ""), ("by", "(%)"), ("engine", ""))
WORDS = (
    "ch: channels; runner-up: next by the tuner's times, by how much longer",
    "behind tuner: the tuner's time of every pair that it weighs",
)
FACTOR_WORDS = "band: four of five times lie from time / band to time * band"


@dataclass(frozen=True, slots=True)
class Answered:
    """The sizes predicted on one cluster, settings without effect, and how its library is found anew."""

    library: Library
    predictions: list[Prediction]
    idle: list[str]
    find: Callable[[], Library]


def command(
    context: typer.Context,
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, ..., or MSCCL's XML (.xml).")],
    cluster: options.Cluster,
    nodes: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Counts of machines, or of ranks: a row for each.")
    ] = None,
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
    placement: options.Placement = EVEN,
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
    straggler: options.Straggler = None,
    slow_link: options.SlowLink = None,
    jitter: options.Jitter = None,
    os_noise: options.OsNoise = None,
    late: options.Late = None,
    draws: options.Draws = None,
    seed: options.Seed = None,
    trace: options.Trace = None,
    timeline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw ranks and links over time: .svg, .png or .pdf.")
    ] = None,
    links: Annotated[bool, typer.Option("--links", help="Print the busiest links and who waits.")] = False,
    top: Annotated[int, typer.Option(min=1, help="How many links --links prints.")] = 10,
    plot: options.Plot = None,
    export: options.Export = None,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict how long a collective takes."""
    console.check_sizes(context)
    if splits is not None and (sized := console.given(context) & {"size", "begin", "end", "factor"}):
        raise ValueError(f"--splits says how much goes where; leave --{min(sized)} out")
    if "top" in console.given(context) and not links:
        raise ValueError(f"--top {top} says how many links --links prints; add --links, or leave it out")
    request = SimulateRequest(
        collective, cluster, nodes, tuple(settings or ()), (begin, end, factor, size), ranks, library,
        algorithm, protocol, engine, network, nccl_version, nccl_graph, dtype, redop, calibration, anchor,
        times, trace, timeline, links, top, plot, export, splits, placement,
        DisturbanceWords(
            straggler=straggler, slow_link=slow_link, jitter=jitter, os_noise=os_noise, late=late,
            draws=draws, seed=seed,
        ),
    )  # fmt: skip
    with forced(force):
        run(request, as_json=json)


def run(request: SimulateRequest, *, as_json: bool) -> None:
    """Predict each size, on each count of nodes, and print the rows."""
    sizes = console.sizes(*request.sweep) if request.splits is None else [0]
    clusters = clusters_of(request.cluster, request.nodes, request.ranks)
    check_outputs(request, sizes, clusters)
    disturbance = request.disturbances.meant()
    values = parse_settings(list(request.settings))
    found = calibration_of(request.calibration, request.anchor, request.cluster, values)
    options = Options(
        request.algorithm, request.protocol, request.nccl_version, request.nccl_graph, request.times,
        request.network, request.placement,
    )  # fmt: skip
    file = file_of(request.collective, request.library) if "." in request.collective else None
    if file and request.nodes:
        raise ValueError(f"--nodes {request.nodes}: the file has {file.ranks} ranks; leave --nodes out")
    finder = partial(find_library, request.library) if file is None else partial(given, file)
    kind = file.kind if file else kind_of(request.collective)
    answers = {}
    for count, cluster in clusters.items():
        find = partial(finder, cluster, ranks=request.ranks, options=options)
        answers[count] = _answered(request, find, values, found, kind, sizes)
    answered = next(iter(answers.values()))
    library, predictions = answered.library, answered.predictions
    idle = [said for said in answered.idle if all(said in one.idle for one in answers.values())]
    lost = _write(request, library, predictions[0])
    links = links_of(library, answered.find, predictions[0], request.engine) if request.links else None
    disturbed = _disturbed(request, disturbance, library, predictions[0]) if disturbance else None
    if request.plot and links:
        draw_links(links, library, request.plot)
    elif request.plot and not disturbed:
        draw_curves(
            {count: one.predictions for count, one in answers.items()}, library, request.cluster, request.plot
        )
    _show(request, answers, [*idle, *lost], links, disturbed, as_json=as_json)


def _answered(
    request: SimulateRequest,
    finder: Callable[..., Library],
    values: dict[str, str],
    found: Calibration | str | None,
    kind: str,
    sizes: list[int],
) -> Answered:
    """The sizes predicted on one cluster, and which settings leave them as they were."""
    find = partial(finder, values, calibration=found)
    begun = perf_counter()
    library = find()
    predictions = _predictions(request, library, _collectives(request, library, kind, sizes))
    if not library.has_tuner and not isinstance(found, Calibration):
        check_growth([one for one in predictions if one.engine != "measured"])
    idle = []
    if values:
        from ringside.commands.simulate.settings import idle_rates

        asked = [one.collective for one in predictions]
        idle = idle_rates(
            library, lambda changed: finder(changed, calibration=None), values, asked, request.engine,
            perf_counter() - begun,
        )  # fmt: skip
    return Answered(library, predictions, idle, find)


def _write(request: SimulateRequest, library: Library, prediction: Prediction) -> list[str]:
    """Write what was asked for of one prediction, and say what the export could not hold."""
    lost = []
    if request.timeline:
        draw_timeline(library, request.cluster, prediction, request.timeline)
    if request.export:
        candidate = library.choose(prediction.collective)
        plan = library.schedule(prediction.collective, candidate)
        lost = write(plan, request.export, candidate.protocol)
    if request.trace and prediction.timeline:
        write_file(request.trace, prediction.timeline.dumps())
    return lost


def _disturbed(
    request: SimulateRequest, disturbance: Disturbance, library: Library, prediction: Prediction
) -> Disturbed:
    """Draws of the way that was taken, whatever disturbs it."""
    from ringside.sim.disturbance.networks import collective_once

    collective = prediction.collective
    candidate = library.choose(collective)
    found = drawn(
        request.disturbances, disturbance,
        lambda draw: collective_once(library, collective, candidate, request.engine, draw), prediction.time_s,
    )  # fmt: skip
    found.write(f"{named(prediction)}, disturbed", request.plot)
    return found


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
    predictions, traced = [], bool(request.trace or request.timeline)
    with console.simulating("simulating", len(collectives)) as bar:
        for collective in collectives:
            predictions.append(answer(library, collective, request.engine, traced=traced))
            bar.done(f"simulated {collective.nbytes} B")
    return predictions


def _show(
    request: SimulateRequest,
    answers: Mapping[int | None, Answered],
    idle: list[str],
    links: Links | None,
    disturbed: Disturbed | None,
    *,
    as_json: bool,
) -> None:
    library = next(iter(answers.values())).library
    predictions = [p for one in answers.values() for p in one.predictions]
    inputs = _inputs(request, library, predictions[0].collective.kind)
    rows = [
        ({} if count is None else {"num_nodes": count}) | _row(one.library, p)
        for count, one in answers.items()
        for p in one.predictions
    ]
    content: dict[str, Any] = {"inputs": inputs, "rows": rows}
    if idle:
        content["no_effect"] = idle
    placed = placement_told(request.ranks, request.placement, library.placed)
    caveats = dict.fromkeys(p.caveat for p in predictions if p.caveat)
    comments = [console.spelled(inputs), *placed, *caveats, *idle]
    inputs |= {"placement": request.placement, "placed": in_words(library.placed)}
    is_measured = any(p.engine == "measured" for p in predictions)
    band = BAND if is_measured else ()
    heads = [*SIZE, *WAY, *band]
    cells = [(*_cells(row), row["engine"], *_band(row)[: len(band)]) for row in rows]
    if note := library.note(request.engine, is_measured=is_measured):
        comments.append(note)
        content = {"inputs": inputs, "note": note, **content}
    if library.has_tuner:
        comments += [*([FACTOR_WORDS] if is_measured else ()), *WORDS]
        pairs = list(dict.fromkeys(pair for row in rows for pair in row["choices_us"]))
        heads = [*SIZE, *NCCL_WAY, *([FACTOR] if is_measured else ()), *WEIGHED, *band]
        heads += [(pair, "(us)") for pair in ("tuner", *pairs)]
        cells = [_weighed(row, pairs, is_measured=is_measured) for row in rows]
    if disturbed:  # of one size alone
        late = disturbed.columns()
        heads = [*heads[:2], *((name, "(us)") for name in late), *heads[2:]]
        cells = [(*some[:2], *(late_s * 1e6 for late_s in late.values()), *some[2:]) for some in cells]
    if request.nodes:
        heads = [("nodes", ""), *heads]
        cells = [(row["num_nodes"], *some) for row, some in zip(rows, cells, strict=True)]
    if as_json:
        content |= {"links": content_of(links, request.top)} if links else {}
        content |= {"disturbed": disturbed.content()} if disturbed else {}
        console.print_json("simulate", content)
    else:
        console.print_table([*comments, *(disturbed.lines() if disturbed else ())], heads, cells)
        if links:
            show(links, request.top)


def _inputs(request: SimulateRequest, library: Library, kind: str) -> dict[str, Any]:
    """What was asked for, as understood."""
    file = {"file": request.collective} if library.name == "file" else {}
    ours = {"collective": kind, **file, "library": library.name, "ranks": library.ranks}
    if library.version:
        ours["nccl_version"] = library.version
    rest = {key: str(value) if isinstance(value, Path) else value for key, value in asdict(request).items()}
    left = ("disturbances", "placement", "sweep", "trace", "timeline", "links", "top", "plot", "export")
    for key in (*left, *(name for name in ("splits", "nodes") if rest[name] is None)):
        del rest[key]
    if request.nodes:
        del ours["ranks"]  # of each count others
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
    if library.has_tuner:
        weighed = [one for one in library.candidates(p.collective) if one.algorithm not in ("p2p", "none")]
        row |= {
            "channels": p.channels,
            "tuner_us": p.belief_us,
            "choices_us": {f"{one.algorithm}/{one.protocol}": one.belief_us for one in weighed},
        }
    return row


def _cells(row: dict[str, Any]) -> tuple[console.Cell, ...]:
    way = row["algorithm"], row["protocol"]
    return (row["size_bytes"], row["time_s"] * 1e6, row["algbw_GBps"], row["busbw_GBps"], *way)


def _band(row: dict[str, Any]) -> tuple[console.Cell, ...]:
    return row["time_lo_s"] * 1e6, row["time_hi_s"] * 1e6


def _weighed(row: dict[str, Any], pairs: Sequence[str], *, is_measured: bool) -> tuple[console.Cell, ...]:
    """A row of NCCL's: what was taken, what the tuner likes next, and its time of every pair."""
    taken, times = f"{row['algorithm']}/{row['protocol']}", row["choices_us"]
    others = [pair for pair in times if pair != taken]
    runner_up = min(others, key=times.__getitem__, default="-")
    by = round(100 * (times[runner_up] / row["tuner_us"] - 1)) if others else "-"
    factor = max(row["time_hi_s"] / row["time_s"], row["time_s"] / row["time_lo_s"])
    return (
        *(*_cells(row), row["channels"], *([factor] if is_measured else ())),
        *(runner_up, by, row["engine"], *(_band(row) if is_measured else ())),
        *(row["tuner_us"], *(times.get(pair, "-") for pair in pairs)),
    )
