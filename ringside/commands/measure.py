"""``ringside measure``: run a collective for real and keep what was measured, whatever happens."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from real.collective.emulated import measure_emulated
from real.collective.measure import Measurement, check_room, measure, warnings
from real.launch.torchrun import WorldSpec
from ringside import console, options
from sim.collective import kind_of
from sim.record import Record, RecordError, read_lines, write
from topologies import Topology, load, parse_settings, ranks
from topologies.disk import check_outputs, is_stream
from topologies.units import format_size

_OF_DDP = {"model", "bucket_cap_mb", "gradient_as_bucket_view", "find_unused_parameters", "static_graph",
           "workers", "plot", "trace"}  # fmt: skip
_OF_COLLECTIVES = {"algorithm", "begin", "end", "factor", "size", "warmup", "dtype", "nnodes",
                   "rdzv_endpoint", "torchrun"}  # fmt: skip

Algorithm = Annotated[str, typer.Option(help="library (the backend's own), ring, tree, ..., or ping_pong.")]
Model = Annotated[
    str,
    typer.Option(metavar="sleeping|FILE", help="ddp: FILE.py:NAME, or a workload, whose layers sleep."),
]


def command(
    context: typer.Context,
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, ..., or ddp.")],
    output: Annotated[Path, typer.Option("-o", metavar="FILE.jsonl", help="Records are added to this file.")],
    ranks: Annotated[
        int | None, typer.Option("-g", "--ranks", help="Ranks on this node [default: 2]; emulated: in all.")
    ] = None,
    backend: Annotated[str, typer.Option(help="gloo on CPUs, nccl on GPUs, mpi under mpirun.")] = "gloo",
    algorithm: Algorithm = "library",
    begin: options.Begin = "64K",
    end: options.End = "16M",
    factor: options.Factor = 2,
    size: options.Size = None,
    iterations: Annotated[int, typer.Option("-n", "--iterations", help="Timed iterations a size.")] = 20,
    warmup: Annotated[int, typer.Option("-w", "--warmup", help="Untimed iterations a size.")] = 2,
    dtype: options.Dtype = "float32",
    nnodes: Annotated[int, typer.Option(help="Nodes; run the same command on each.")] = 1,
    rdzv_endpoint: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where nodes meet.")] = None,
    emulate: options.Emulate = None,
    torchrun: Annotated[
        bool, typer.Option("--torchrun", help="Emulated: an agent on every host, as on a cluster's nodes.")
    ] = False,
    settings: options.Settings = None,
    timeout: Annotated[float, typer.Option(help="Seconds a rank may wait for another.")] = 60.0,
    model: Model = "sleeping",
    bucket_cap_mb: options.BucketCap = None,
    gradient_as_bucket_view: options.BucketView = False,
    find_unused_parameters: options.UnusedParameters = False,
    static_graph: options.StaticGraph = False,
    workers: Annotated[int, typer.Option(help="ddp: collectives that Gloo runs at once.")] = 2,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="ddp: draw the median step.")] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="ddp: write its Perfetto trace.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Start whatever was asked for [most: 16 ranks a core, all memory]")
    ] = False,
) -> None:
    """Measure a collective, or steps of DistributedDataParallel (ddp), for real."""
    _refuse_misplaced(console.given(context), collective)
    console.check_sizes(context)
    if collective == "ddp":
        from real.ddp.job import DdpJob
        from ringside.commands import measure_ddp
        from sim.training.ddp.buckets import Bucketing

        job = DdpJob(
            bucketing=Bucketing(bucket_cap_mb, find_unused_parameters, static_graph), backend=backend,
            gradient_as_bucket_view=gradient_as_bucket_view, workers=1 if backend == "nccl" else workers,
            iterations=iterations, timeout_s=timeout,
        )  # fmt: skip
        measure_ddp.run(
            model, output, job, ranks=ranks, emulate=emulate, settings=settings,
            plot=plot, trace=trace, force=force,
        )  # fmt: skip
        return
    run(
        collective, output, (begin, end, factor, size), per_node=ranks, nodes=nnodes, endpoint=rdzv_endpoint,
        backend=backend, algorithm=algorithm, iterations=iterations, warmup=warmup, dtype=dtype,
        timeout_s=timeout, emulate=emulate, settings=settings or [], torchrun=torchrun, force=force,
    )  # fmt: skip


def _refuse_misplaced(given: set[str], collective: str) -> None:
    """Refuse options of the other kind of measurement."""
    misplaced = sorted(given & (_OF_COLLECTIVES if collective == "ddp" else _OF_DDP))
    if misplaced:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in misplaced)
        raise ValueError(f"{words} say nothing of {collective}; leave them out")


def run(
    collective: str,
    output: Path,
    sweep: tuple[str, str, int, str | None],
    *,
    per_node: int | None,
    nodes: int,
    endpoint: str | None,
    backend: str,
    algorithm: str,
    iterations: int,
    warmup: int,
    dtype: str,
    timeout_s: float,
    emulate: str | None,
    settings: list[str],
    torchrun: bool,
    force: bool,
) -> None:
    """Measure each size, add each record to the output as it comes, print the table."""
    check_outputs([output], inputs=[emulate] if emulate else [])
    if settings and not emulate:
        raise ValueError("--set changes the figures of an emulated network; add --emulate star:4")
    if torchrun and not emulate:
        raise ValueError("without --emulate torchrun is what starts ranks; leave --torchrun out")
    graph = load(emulate, parse_settings(settings), ranks=per_node) if emulate else None
    if graph and (nodes > 1 or endpoint or backend != "gloo"):
        raise ValueError("an emulated network is this machine's, over Gloo; leave --nnodes and --backend out")
    alone = 2 if graph is None else len(ranks(graph))
    what = Measurement(
        collective=kind_of(collective),
        world=WorldSpec(alone if per_node is None else per_node, nodes, endpoint),
        sizes=console.sizes(*sweep),
        backend=backend,
        algorithm=algorithm,
        dtype=dtype,
        iterations=iterations,
        warmup=warmup,
        timeout_s=timeout_s,
    )
    if not force:
        check_room(what.world.per_node, max(what.sizes))
    if any(setting.startswith("latency=") for setting in settings):
        print("ringside: latency= is left out: an emulated network has this machine's", file=sys.stderr)
    for warning in () if graph else warnings(what):
        print(f"ringside: {warning}", file=sys.stderr)
    carry_out(what, graph, output, torchrun=torchrun)


def carry_out(what: Measurement, graph: "Topology | None", output: Path, *, torchrun: bool) -> None:
    """Measure under torchrun, or on ``graph`` emulated; add the records to the file as they come.

    A device or a pipe gets them all at the end.
    """
    grows = not is_stream(output)
    kept = _records_of(output) if grows and output.exists() else []
    fresh: list[Record] = []
    with console.progress("starting", len(what.sizes)) as bar:

        def keep(record: Record) -> None:
            fresh.append(record)
            if grows:
                write([*kept, *fresh], output)
            bar.done(f"measured {format_size(record.nbytes)}")

        try:
            if graph:
                measure_emulated(graph, what, keep, torchrun=torchrun)
            else:
                measure(what, keep)
        finally:
            if fresh:
                _print(fresh, output)
            if fresh and not grows:
                write(fresh, output)
    if not fresh:
        print(f"# rank 0 runs on another node, which writes the records; {output} was left alone")


def _records_of(path: Path) -> list[Record]:
    """The records that the file holds already."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise RecordError(f"{path} is binary and holds no records; write another name after -o") from None
    return read_lines(text, str(path))


def _print(records: list[Record], output: Path) -> None:
    first = records[0]
    comments = [
        f"{first.collective} by {first.library}/{first.algorithm} over {first.backend}, {first.ranks} ranks, "
        f"nodes: {first.num_nodes}, {first.dtype}; {first.statistic} of {first.iterations} iterations",
        f"every rank's result was checked against the exact answer; records in {output}",
    ]
    heads = (
        *(("size", "(B)"), ("time", "(us)"), ("min", "(us)"), ("p95", "(us)"), ("max", "(us)")),
        *(("algbw", "(GB/s)"), ("busbw", "(GB/s)"), ("spread", "(%)")),
    )
    rows = [
        (
            *(r.nbytes, r.time_s * 1e6, r.min_s * 1e6, r.p95_s * 1e6, r.max_s * 1e6),
            *(r.algbw / 1e9, r.busbw / 1e9, r.spread * 100),
        )
        for r in records
    ]
    console.print_table(comments, heads, rows)
