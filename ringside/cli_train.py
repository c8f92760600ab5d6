"""The words of ``ringside train``."""

from pathlib import Path
from typing import Annotated

import typer

from ringside import options


def train(
    model: Annotated[
        str, typer.Option(metavar="NAME[:SIZE]|FILE", help="resnet50, gpt2-xl:512, ... or a workload's YAML.")
    ],
    cluster: options.Cluster,
    settings: options.Settings = None,
    strategy: Annotated[str, typer.Option(help="How the model is spread: ddp.")] = "ddp",
    ranks: Annotated[int | None, typer.Option("-g", "--ranks", help="Ranks in all [default: all]")] = None,
    library: Annotated[
        str, typer.Option(help="ideal, gloo or nccl; auto is nccl where it is known.")
    ] = "auto",
    batch: Annotated[
        int | None, typer.Option(help="Samples of a rank and pass [default: 32 or the file's]")
    ] = None,
    device: Annotated[str | None, typer.Option(help="v100, a100, h100, ... [default: the cluster's]")] = None,
    precision: Annotated[
        str | None, typer.Option(help="What products are computed in [default: float32]")
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Type of parameters and gradients [default: the model's own]")
    ] = None,
    optimizer: Annotated[str, typer.Option(help="sgd, momentum or adam.")] = "adam",
    bucket_cap_mb: Annotated[
        float | None, typer.Option(help="MiB a bucket [default: 25 after a first one of 1]")
    ] = None,
    find_unused_parameters: Annotated[
        bool, typer.Option("--find-unused-parameters", help="As DistributedDataParallel's.")
    ] = False,
    static_graph: Annotated[bool, typer.Option("--static-graph", help="Likewise.")] = False,
    gradient_as_bucket_view: Annotated[
        bool, typer.Option("--gradient-as-bucket-view", help="Likewise.")
    ] = False,
    comm_hook: Annotated[str | None, typer.Option(help="fp16_compress or bf16_compress.")] = None,
    accumulation: Annotated[int, typer.Option(help="Passes a step, all but the last under no_sync.")] = 1,
    straggler: Annotated[
        list[str] | None, typer.Option(metavar="RANK=FACTOR", help="A rank that computes slower.")
    ] = None,
    contention: Annotated[
        float, typer.Option(help="Share of compute that a running collective takes: channels / SMs.")
    ] = 0.0,
    calibration: options.CalibrationFile = "auto",
    anchor: options.Anchor = None,
    sweep: Annotated[
        str | None, typer.Option(metavar="PARAMETER=A,B,C", help="bucket-cap-mb=1,5,25 or nodes=1,2,4")
    ] = None,
    plot: options.Plot = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a Perfetto trace.")] = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Predict a training step: what communication it hides and what stays exposed."""
    from real.model.find import Training
    from ringside.commands.train import run
    from sim.engine.effort import forced
    from sim.training.ddp.buckets import Bucketing
    from sim.training.ddp.job import DataParallel

    bucketing = Bucketing(bucket_cap_mb, find_unused_parameters, static_graph)
    ddp = DataParallel(
        bucketing=bucketing, gradient_as_bucket_view=gradient_as_bucket_view, comm_hook=comm_hook,
        accumulation=accumulation,
    )  # fmt: skip
    training = Training(
        model=model, batch=batch, device=device, precision=precision, dtype=dtype, optimizer=optimizer,
        ddp=ddp, slowdown=tuple(straggler or ()), contention=contention,
    )  # fmt: skip
    with forced(force):
        run(
            cluster, settings or [], training, strategy=strategy, ranks=ranks, library=library, sweep=sweep,
            calibration=calibration, anchor=anchor, plot=plot, trace=trace, as_json=json,
        )  # fmt: skip
