"""``ringside program``: whether a job of collectives and messages ends, and how long it takes."""

from pathlib import Path
from typing import Annotated

import typer

from ringside import options
from ringside.commands import program_check
from sim.engine.effort import forced

Script = Annotated[
    Path | None,
    typer.Argument(metavar="FILE.py", help="A script with def main(dist), as for torch.distributed."),
]


def command(
    file: Script = None,
    ranks: Annotated[
        int | None, typer.Option("-g", "--ranks", min=1, help="How many ranks run it, or each job.")
    ] = None,
    library: Annotated[
        str, typer.Option(help="Whose rules: gloo or nccl; with --cluster whose times, ideal too.")
    ] = "gloo",
    eager: Annotated[
        bool, typer.Option("--eager", help="NCCL, with init_process_group(device_id=...): one communicator.")
    ] = False,
    cluster: Annotated[
        str | None,
        typer.Option(metavar="NAME[:COUNT]|FILE", help="Simulate it there. See ringside topo."),
    ] = None,
    settings: options.Settings = None,
    only_check: Annotated[bool, typer.Option("--check", help="Only prove that it ends.")] = False,
    jobs: Annotated[
        list[str] | None,
        typer.Option("--job", metavar="FILE.py[:RANKS]", help="In place of FILE.py: several at once."),
    ] = None,
    placement: Annotated[
        list[str] | None,
        typer.Option(help="packed, interleaved, or the cluster's ranks of each job: 0-3,8 [default: packed]"),
    ] = None,
    network: options.Network = "fifo",
    calibration: options.CalibrationFile = "auto",
    trace: options.Trace = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Prove that a job of collectives and messages ends, or say who waits for whom."""
    if cluster is None or only_check:
        if file is None or ranks is None or jobs:
            raise ValueError("write FILE.py and -g N, its ranks; --job goes with --cluster")
        program_check.run(file, ranks, library, eager=eager, as_json=json)
        return
    from ringside.commands import program_on_cluster

    with forced(force):
        program_on_cluster.run(
            program_on_cluster.asked(file, ranks, jobs or []), library, cluster, settings or [],
            eager=eager, placement=placement or ["packed"], network=network, calibration=calibration,
            trace=trace, as_json=json,
        )  # fmt: skip
