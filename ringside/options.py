"""The options that several commands share, each described once."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from ringside import console
from ringside.sim.collective import ITEMSIZE, REDOPS
from ringside.sim.engine.effort import MAX_MEMORY, MAX_TRANSFERS
from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.libraries.library import ENGINES
from ringside.sim.network.message import NETWORKS
from ringside.sim.training.ddp.job import COMM_HOOKS
from ringside.topologies.placement import SPREADS
from ringside.topologies.units import format_size


def choices(names: Iterable[str]) -> str:
    """A metavar that says what may be written."""
    return "|".join(names)


Cluster = Annotated[
    str, typer.Option(metavar="NAME[:COUNT]|FILE", help="A named cluster, or a YAML file. See ringside topo.")
]
AnyCluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="NAME[:COUNT]|FILE", help="As elsewhere; steps hold their own."),
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
    str | None, typer.Option(metavar="NAME[:COUNT]|FILE", help="On a real network made in this machine.")
]
Begin = Annotated[str, typer.Option("-b", "--begin", metavar="SIZE", help="Smallest size.")]
End = Annotated[str, typer.Option("-e", "--end", metavar="SIZE", help="Largest size.")]
Factor = Annotated[
    int, typer.Option("-f", "--factor", min=2, metavar="FACTOR", help="From one size to the next, 2 or more.")
]
Size = Annotated[str | None, typer.Option(metavar="SIZE", help="One size in place of -b, -e and -f.")]
Ranks = Annotated[int | None, typer.Option("-g", "--ranks", show_default="all", help="Ranks in all.")]
Placement = Annotated[
    str,
    typer.Option(
        metavar=choices(SPREADS),
        help="Where -g ranks stand: as many on every machine, or one machine full after another.",
    ),
]
Library = Annotated[
    str | None,
    typer.Option(
        show_default="nccl for machines with GPUs, else ideal",
        metavar=choices(LIBRARIES),
        help="Whose choices and times.",
    ),
]
Algorithm = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="ring,tree, ^ring, ... (ringside collectives lists all) or auto; for nccl what NCCL_ALGO takes.",
    ),
]
Protocol = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="For nccl what NCCL_PROTO takes: ll, ll128, simple, ^ll; for mpi eager or rendezvous.",
    ),
]
Engine = Annotated[
    str, typer.Option(metavar=choices(ENGINES), help="How it is answered; auto says what it took.")
]
Network = Annotated[
    str, typer.Option(metavar=choices(NETWORKS), help="How links serve messages: in turn, or shared.")
]
NcclVersion = Annotated[
    str | None,
    typer.Option(
        metavar="X.Y",
        show_default="the newest known",
        help="Any release from 2.8 on; the answer says which one stands for another.",
    ),
]
NcclGraph = Annotated[
    Path | None, typer.Option(metavar="FILE", help="NCCL_GRAPH_DUMP_FILE, or an NCCL_DEBUG log with TUNING.")
]
Redop = Annotated[str, typer.Option(metavar="REDUCTION", help=f"One of {', '.join(REDOPS)}.")]
Dtype = Annotated[str, typer.Option(metavar="TYPE", help=f"Of one element: {', '.join(ITEMSIZE)}.")]
CalibrationFile = Annotated[
    str,
    typer.Option(
        metavar="auto|none|family:NAME|FILE",
        help="Measurements to go by: what is shipped of the machine, none, another's, or your own.",
    ),
]
Anchor = Annotated[
    Path | None, typer.Option(metavar="LOG", help="Rows of your own site that scale the calibration.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
All = Annotated[
    bool,
    typer.Option("--all", callback=console.widen, help="Print every column, also beyond 80 signs."),
]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw to an .svg, .png or .pdf file.")]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write an interactive page to an .html file that needs no other."
    ),
]
PoolSites = Annotated[bool, typer.Option(help="Take records of several sites of one machine together.")]
Times = Annotated[
    str | None,
    typer.Option(
        show_default="tuner",
        metavar="tuner|pipeline",
        help="For nccl: its tuner's, or those of a model of its rings and trees.",
    ),
]
Trace = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a Perfetto trace.")]
Export = Annotated[
    Path | None,
    typer.Option(metavar="FILE|DIR", help="Write it in another tool's format, by what the name ends in."),
]
BucketCap = Annotated[
    float | None,
    typer.Option(
        show_default="25 after a first one of 1",
        metavar="MIB",
        help="Of a bucket of DistributedDataParallel.",
    ),
]
BucketCaps = Annotated[
    str | None,
    typer.Option("--bucket-cap-mb-list", metavar="MIB,MIB,...", help="Of each bucket in turn."),
]
CommHook = Annotated[
    str | None,
    typer.Option(
        metavar="HOOK", show_default="none", help=f"{', '.join(COMM_HOOKS)}; powersgd:rank=4,start=10."
    ),
]
UnusedParameters = Annotated[
    bool, typer.Option("--find-unused-parameters", help="As DistributedDataParallel's.")
]
StaticGraph = Annotated[bool, typer.Option("--static-graph", help="As DistributedDataParallel's.")]
BucketView = Annotated[bool, typer.Option("--gradient-as-bucket-view", help="As DistributedDataParallel's.")]
Straggler = Annotated[
    list[str] | None, typer.Option(metavar="RANK=FACTOR", help="A rank that is slower; repeat for more.")
]
SlowLink = Annotated[
    list[str] | None,
    typer.Option(metavar="A-B=FACTOR", help="A link with so much less bandwidth: gpu0-switch=4."),
]
Jitter = Annotated[
    str | None,
    typer.Option(metavar="lognormal:SIGMA|FILE", help="How much work differs each time, or steps that do."),
]
OsNoise = Annotated[
    str | None, typer.Option(metavar="PERIOD=DURATION", help="What the system takes of each core: 1ms=25us.")
]
Late = Annotated[
    list[str] | None, typer.Option(metavar="RANK=DURATION", help="A rank that begins later than the others.")
]
Draws = Annotated[int | None, typer.Option(show_default="100", help="How often chance is asked.")]
Seed = Annotated[int | None, typer.Option(show_default="0", help="Of all that is drawn.")]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help=f"Simulate whatever it takes (most: {MAX_TRANSFERS:,} transfers, {format_size(MAX_MEMORY)}).",
    ),
]
Files = Annotated[
    list[Path], typer.Argument(help="Records, nccl-tests text or JSON, or published measurements.")
]
Short = Annotated[
    bool, typer.Option("--short", help="A few cells in some three minutes, in place of all in some twenty.")
]
Cases = Annotated[
    list[str] | None, typer.Option("--family", metavar="NAME", help="Only this case; repeat for more.")
]
