"""``ringside trace``: communication in PyTorch's profiles, replayed on other clusters."""

from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options
from ringside.commands.trace import content as trace_content
from ringside.commands.trace import tables as trace_tables
from ringside.pictures.style import check_format
from ringside.sim.calibration import find_calibration
from ringside.sim.effort import forced
from ringside.topologies import parse_settings
from ringside.topologies.disk import check_outputs, write_file
from ringside.topologies.placement import EVEN
from ringside.validation.readers.kineto import read_traces
from ringside.validation.traces.analysis import analyse
from ringside.validation.traces.replay import what_if

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...", help="Traces of PyTorch's profiler: .json, .json.gz, .tar.gz, folders."
    ),
]
Each = Annotated[bool, typer.Option("--each", help="List every collective of every rank.")]
Cluster = Annotated[
    str | None, typer.Option(metavar="NAME[:COUNT]|FILE", help="Replay it here. See ringside topo.")
]


def command(
    context: typer.Context,
    files: Files,
    each: Each = False,
    cluster: Cluster = None,
    settings: options.Settings = None,
    library: options.Library = None,
    placement: options.Placement = EVEN,
    network: options.Network = "fifo",
    calibration: options.CalibrationFile = "auto",
    plot: options.Plot = None,
    trace: options.Trace = None,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Show collectives, skew and transfer of a profiled job; replay it on another cluster."""
    lost = console.given(context) & {"settings", "library", "placement", "network", "calibration"}
    if lost and cluster is None:
        words = ", ".join("--set" if name == "settings" else f"--{name}" for name in sorted(lost))
        raise ValueError(f"{words}: nothing is simulated; add --cluster NAME, or remove it")
    with forced(force):
        run(
            files, cluster, library, settings or [], placement=placement, network=network,
            calibration=calibration, each=each, plot=plot, trace=trace, as_json=json,
        )  # fmt: skip


def run(
    files: list[Path],
    cluster: str | None,
    library: str | None,
    settings: list[str],
    *,
    placement: str,
    network: str,
    calibration: str,
    each: bool,
    plot: Path | None,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Read, analyse, replay, draw and print."""
    check_format(plot)
    check_outputs((plot, trace), [*map(str, files), cluster or ""])
    values = parse_settings(settings)
    known = find_calibration(calibration, cluster) if cluster else None
    analysis = analyse(read_traces(files))
    timed = any(one.end_s is not None for profile in analysis.traces for one in profile.collectives)
    replays = None
    if timed or cluster or plot or trace:
        with console.simulating("replaying"):
            replays = what_if(analysis, cluster, library, values, network, known, placement)
    if replays and plot:
        from ringside.pictures.jobs.trace import draw_trace

        draw_trace(replays, plot)
    if replays and trace:
        write_file(trace, (replays.other.timeline if replays.other else replays.recorded).dumps())
    if as_json:
        inputs = {
            "files": list(map(str, files)), "cluster": cluster, "settings": settings, "library": library,
            "placement": placement, "network": network, "calibration": calibration,
        }  # fmt: skip
        console.print_json("trace", {"inputs": inputs, **trace_content.content(analysis, replays)})
    else:
        trace_tables.show(analysis, replays, each=each)
