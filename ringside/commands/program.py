"""``ringside program``: whether a job of collectives and messages ends, and how long it takes."""

from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options
from ringside.commands import program_check
from sim.engine.effort import forced

Script = Annotated[
    Path | None,
    typer.Argument(metavar="FILE.py", help="A script with def main(dist), as for torch.distributed."),
]

_OF_REAL_RUNS = {"emulate", "compute", "iterations", "warmup", "timeout", "output"}
_OF_SIMULATIONS = {"cluster", "jobs", "placement", "network", "calibration"}


def command(
    context: typer.Context,
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
    real: Annotated[bool, typer.Option("--real", help="Really run it, over torch.distributed.")] = False,
    emulate: options.Emulate = None,
    compute: Annotated[str, typer.Option(help="Real: compute by sleep or matmul.")] = "sleep",
    iterations: Annotated[int, typer.Option("-n", "--iterations", help="Real: timed runs.")] = 5,
    warmup: Annotated[int, typer.Option("-w", "--warmup", help="Real: untimed runs before them.")] = 1,
    timeout: Annotated[
        float | None,
        typer.Option(help="Real: seconds a rank may wait for another; runs what is not proved, too."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", metavar="FILE.jsonl", help="Real: a line for each run.")
    ] = None,
    trace: options.Trace = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Prove that a job of collectives and messages ends, or say who waits; simulate or run it."""
    _refuse_misplaced(console.given(context), real=real, only_check=only_check)
    if real:
        if file is None or ranks is None:
            raise ValueError("write FILE.py and -g N, its ranks")
        from ringside.commands.program_real import RealRun

        RealRun(
            file=file, ranks=ranks, library=library, eager=eager, emulate=emulate,
            settings=tuple(settings or ()), compute=compute, iterations=iterations, warmup=warmup,
            timeout_s=timeout, output=output, trace=trace, force=force,
        ).carry_out(as_json=json)  # fmt: skip
        return
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


def _refuse_misplaced(given: set[str], *, real: bool, only_check: bool) -> None:
    """Refuse options of what is not asked for."""
    if only_check and real:
        raise ValueError("--check proves and no more, --real runs; leave one of them out")
    misplaced = sorted(given & (_OF_SIMULATIONS if real else _OF_REAL_RUNS))
    if misplaced:
        words = ", ".join({"jobs": "--job", "output": "-o"}.get(name, f"--{name}") for name in misplaced)
        other = "--real runs the job and simulates nothing" if real else "only --real runs the job"
        raise ValueError(f"{words}: {other}; leave one or the other out")
