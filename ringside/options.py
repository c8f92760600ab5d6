"""The options that several commands share, each described once."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from ringside import console
from ringside.sim.effort import MAX_MEMORY, MAX_TRANSFERS, forced
from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.network.message import NETWORKS
from ringside.topologies.placement import SPREADS
from ringside.topologies.units import format_size


def choices(names: Iterable[str]) -> str:
    """Return a metavar that lists the choices."""
    return "|".join(names)


def _lift_limits(context: typer.Context, is_given: bool) -> bool:
    """Apply ``--force``: simulations of any size while the command runs."""
    if is_given:
        context.with_resource(forced())
    return is_given


Cluster = Annotated[
    str, typer.Option(metavar="NAME[:COUNT]|FILE", help="A named cluster, or a YAML file. See ringside topo.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a figure or fabric: nic=25GB/s, latency=5us, fabric=torus; repeat for more.",
    ),
]
Emulate = Annotated[
    str | None,
    typer.Option(metavar="NAME[:COUNT]|FILE", help="Run on a real network emulated in this machine."),
]
Begin = Annotated[str, typer.Option("-b", "--begin", metavar="SIZE", help="Smallest size.")]
End = Annotated[str, typer.Option("-e", "--end", metavar="SIZE", help="Largest size.")]
Factor = Annotated[
    int, typer.Option("-f", "--factor", min=2, metavar="FACTOR", help="Factor between sizes, 2 or more.")
]
Size = Annotated[str | None, typer.Option(metavar="SIZE", help="One size instead of -b, -e and -f.")]
Ranks = Annotated[int | None, typer.Option("-g", "--ranks", show_default="all", help="Number of ranks.")]
Placement = Annotated[
    str,
    typer.Option(
        metavar=choices(SPREADS),
        help="Place -g ranks: equally many on every machine, or one machine full after another.",
    ),
]
Library = Annotated[
    str | None,
    typer.Option(
        show_default="nccl for machines with GPUs, else ideal",
        metavar=choices(LIBRARIES),
        help="Library whose choices and times to predict.",
    ),
]
Algorithm = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="ring,tree, ^ring, ... (ringside collectives lists all) or auto; for nccl as in NCCL_ALGO.",
    ),
]
Protocol = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="For nccl as in NCCL_PROTO: ll, ll128, simple, ^ll; for mpi eager or rendezvous.",
    ),
]
Network = Annotated[
    str, typer.Option(metavar=choices(NETWORKS), help="How links serve messages: in turn, or shared.")
]
CalibrationFile = Annotated[
    str,
    typer.Option(
        metavar="auto|none|family:NAME|FILE",
        help="Measurements to use: the shipped ones of the machine, none, another's, or your own.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
All = Annotated[
    bool,
    typer.Option("--all", callback=console.widen, help="Print every column, even wider than 80 characters."),
]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw to an .svg, .png or .pdf file.")]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write an interactive page to one self-contained .html file."
    ),
]
Trace = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a Perfetto trace.")]
Export = Annotated[
    Path | None,
    typer.Option(metavar="FILE|DIR", help="Export to another tool's format, by the file's extension."),
]
BucketCap = Annotated[
    float | None,
    typer.Option(
        show_default="25 after a first one of 1",
        metavar="MIB",
        help="Bucket size of DistributedDataParallel.",
    ),
]
BucketCaps = Annotated[
    str | None,
    typer.Option("--bucket-cap-mb-list", metavar="MIB,MIB,...", help="Size of each bucket in turn."),
]
UnusedParameters = Annotated[
    bool, typer.Option("--find-unused-parameters", help="As DistributedDataParallel's.")
]
StaticGraph = Annotated[bool, typer.Option("--static-graph", help="As DistributedDataParallel's.")]
BucketView = Annotated[bool, typer.Option("--gradient-as-bucket-view", help="As DistributedDataParallel's.")]
Straggler = Annotated[
    list[str] | None, typer.Option(metavar="RANK=FACTOR", help="A slower rank; repeat for more.")
]
SlowLink = Annotated[
    list[str] | None,
    typer.Option(metavar="A-B=FACTOR", help="A link with FACTOR times less bandwidth: gpu0-switch=4."),
]
Jitter = Annotated[
    str | None,
    typer.Option(
        metavar="lognormal:SIGMA|FILE", help="Random variation of work, or measured steps that have it."
    ),
]
OsNoise = Annotated[str | None, typer.Option(metavar="PERIOD=DURATION", help="OS noise per core: 1ms=25us.")]
Late = Annotated[
    list[str] | None, typer.Option(metavar="RANK=DURATION", help="A rank that starts later than the others.")
]
Draws = Annotated[int | None, typer.Option(show_default="100", help="Monte Carlo draws.")]
Seed = Annotated[int | None, typer.Option(show_default="0", help="Random seed.")]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        callback=_lift_limits,
        help=f"Simulate without limits (usually {MAX_TRANSFERS:,} transfers, {format_size(MAX_MEMORY)}).",
    ),
]
ForceStart = Annotated[
    bool, typer.Option("--force", help="Start without limits (usually 16 ranks per core, all memory).")
]
Steps = Annotated[Path, typer.Option("-o", metavar="FILE.json", help="Write the steps to this file.")]
Short = Annotated[
    bool, typer.Option("--short", help="A few cells in some three minutes, instead of all in some twenty.")
]
Cases = Annotated[
    list[str] | None, typer.Option("--family", metavar="NAME", help="Only this case; repeat for more.")
]
