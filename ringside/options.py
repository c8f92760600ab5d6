"""The options that several commands share, each described once."""

from pathlib import Path
from typing import Annotated

import typer

Cluster = Annotated[
    str, typer.Option(metavar="NAME[:COUNT]|FILE", help="A named cluster, or a YAML file. See ringside topo.")
]
AnyCluster = Annotated[
    str | None,
    typer.Option("--cluster", metavar="NAME[:COUNT]|FILE", help="As elsewhere; steps hold their own."),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change a figure or fabric: nic=25GB/s, fabric=torus"),
]
Emulate = Annotated[
    str | None, typer.Option(metavar="NAME[:COUNT]|FILE", help="On a real network made in this machine.")
]
Begin = Annotated[str, typer.Option("-b", "--begin", metavar="SIZE", help="Smallest size.")]
End = Annotated[str, typer.Option("-e", "--end", metavar="SIZE", help="Largest size.")]
Factor = Annotated[int, typer.Option("-f", "--factor", min=2, help="From one size to the next.")]
Size = Annotated[str | None, typer.Option(metavar="SIZE", help="One size in place of -b, -e and -f.")]
Ranks = Annotated[int | None, typer.Option("-g", "--ranks", help="Ranks in all [default: all]")]
Library = Annotated[
    str | None, typer.Option(help="ideal, gloo or nccl [default: nccl for machines with GPUs, else ideal]")
]
Algorithm = Annotated[
    str,
    typer.Option(
        help="ring, tree, ... (ringside collectives lists all) or auto; for nccl what NCCL_ALGO takes."
    ),
]
Protocol = Annotated[str, typer.Option(help="For nccl what NCCL_PROTO takes: ll, ll128, simple, ^ll.")]
Engine = Annotated[str, typer.Option(help="simpy, fast, model, or auto, which says what it took.")]
Network = Annotated[str, typer.Option(help="How links serve messages: fifo, in turn; or fair, shared.")]
NcclVersion = Annotated[
    str | None, typer.Option(help="Any release from 2.8 on; the answer says which one stands for another.")
]
NcclGraph = Annotated[
    Path | None, typer.Option(metavar="FILE", help="NCCL_GRAPH_DUMP_FILE, or an NCCL_DEBUG log with TUNING.")
]
Redop = Annotated[str, typer.Option(help="Reduction: sum, prod, min, max, avg or mulsum.")]
Dtype = Annotated[str, typer.Option(help="Type of one element.")]
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
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw to an .svg, .png or .pdf file.")]
PoolSites = Annotated[bool, typer.Option(help="Take records of several sites of one machine together.")]
Times = Annotated[
    str | None,
    typer.Option(help="For nccl: tuner, or pipeline, a model of its rings and trees [default: tuner]"),
]
Trace = Annotated[Path | None, typer.Option(metavar="FILE", help="Write a Perfetto trace.")]
Export = Annotated[
    Path | None,
    typer.Option(metavar="FILE|DIR", help="Write it in another tool's format, by what the name ends in."),
]
BucketCap = Annotated[
    float | None, typer.Option(help="ddp: MiB a bucket [default: 25 after a first one of 1]")
]
UnusedParameters = Annotated[
    bool, typer.Option("--find-unused-parameters", help="ddp: as DistributedDataParallel's.")
]
StaticGraph = Annotated[bool, typer.Option("--static-graph", help="ddp: likewise.")]
BucketView = Annotated[bool, typer.Option("--gradient-as-bucket-view", help="ddp: likewise.")]
Force = Annotated[
    bool, typer.Option("--force", help="Simulate whatever it takes [most: 20,000,000 transfers, 8 GiB]")
]
Files = Annotated[
    list[Path], typer.Argument(help="Records, nccl-tests text or JSON, or published measurements.")
]
