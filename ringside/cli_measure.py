"""The words of ``ringside measure``."""

from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options

_OF_DDP = {"model", "bucket_cap_mb", "gradient_as_bucket_view", "find_unused_parameters", "static_graph",
           "workers", "plot", "trace"}  # fmt: skip
_OF_COLLECTIVES = {"algorithm", "begin", "end", "factor", "size", "warmup", "dtype", "nnodes",
                   "rdzv_endpoint", "torchrun"}  # fmt: skip


def measure(
    context: typer.Context,
    collective: Annotated[str, typer.Argument(help="all_reduce, all_gather, ..., or ddp.")],
    output: Annotated[Path, typer.Option("-o", metavar="FILE.jsonl", help="Records are added to this file.")],
    ranks: Annotated[
        int | None, typer.Option("-g", "--ranks", help="Ranks on this node [default: 2]; emulated: in all.")
    ] = None,
    backend: Annotated[str, typer.Option(help="gloo on CPUs, nccl on GPUs.")] = "gloo",
    algorithm: Annotated[
        str, typer.Option(help="library (the backend's own), ring, tree, ..., or ping_pong.")
    ] = "library",
    begin: options.Begin = "64K",
    end: options.End = "16M",
    factor: options.Factor = 2,
    size: options.Size = None,
    iterations: Annotated[int, typer.Option("-n", "--iterations", help="Timed iterations a size.")] = 20,
    warmup: Annotated[int, typer.Option("-w", "--warmup", help="Untimed iterations a size.")] = 2,
    dtype: options.Dtype = "float32",
    nnodes: Annotated[int, typer.Option(help="Nodes; run the same command on each.")] = 1,
    rdzv_endpoint: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where nodes meet.")] = None,
    emulate: Annotated[
        str | None, typer.Option(metavar="NAME[:COUNT]|FILE", help="On a real network made in this machine.")
    ] = None,
    torchrun: Annotated[
        bool, typer.Option("--torchrun", help="Emulated: an agent on every host, as on a cluster's nodes.")
    ] = False,
    settings: options.Settings = None,
    timeout: Annotated[float, typer.Option(help="Seconds a rank may wait for another.")] = 60.0,
    model: Annotated[
        str,
        typer.Option(metavar="sleeping|FILE", help="ddp: FILE.py:NAME, or a workload, whose layers sleep."),
    ] = "sleeping",
    bucket_cap_mb: Annotated[
        float | None, typer.Option(help="ddp: MiB a bucket [default: 25 after a first one of 1]")
    ] = None,
    gradient_as_bucket_view: Annotated[
        bool, typer.Option("--gradient-as-bucket-view", help="ddp: as DistributedDataParallel's.")
    ] = False,
    find_unused_parameters: Annotated[
        bool, typer.Option("--find-unused-parameters", help="ddp: likewise.")
    ] = False,
    static_graph: Annotated[bool, typer.Option("--static-graph", help="ddp: likewise.")] = False,
    workers: Annotated[int, typer.Option(help="ddp: collectives that Gloo runs at once.")] = 2,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="ddp: draw the median step.")] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="ddp: write its Perfetto trace.")] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Start whatever was asked for [most: 16 ranks a core, all memory]")
    ] = False,
) -> None:
    """Measure a collective, or steps of DistributedDataParallel (ddp), for real."""
    alien = sorted(console.given(context) & (_OF_COLLECTIVES if collective == "ddp" else _OF_DDP))
    if alien:
        options_ = ", ".join(f"--{name.replace('_', '-')}" for name in alien)
        raise ValueError(f"{options_} say nothing of {collective}; leave them out")
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
            model, output, job, ranks=2 if ranks is None else ranks, emulate=emulate, settings=settings,
            plot=plot, trace=trace, force=force,
        )  # fmt: skip
        return
    from ringside.commands import measure as command

    command.run(
        collective, output, (begin, end, factor, size), per_node=ranks, nodes=nnodes, endpoint=rdzv_endpoint,
        backend=backend, algorithm=algorithm, iterations=iterations, warmup=warmup, dtype=dtype,
        timeout_s=timeout, emulate=emulate, settings=settings or [], torchrun=torchrun, force=force,
    )  # fmt: skip
