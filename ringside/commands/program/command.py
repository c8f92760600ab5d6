"""``ringside program``: whether a job of collectives and messages ends, and how long it takes."""

from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options
from ringside.commands.program import check as program_check
from ringside.commands.program import source as program_source
from ringside.real.program.job import COMPUTE
from ringside.sim.effort import forced
from ringside.sim.questions.disturbances import Disturbances

Script = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        help="A script with def main(dist); GOAL (.goal); Chakra's traces (.0.et, or a folder).",
    ),
]
Ranks = Annotated[int | None, typer.Option("-g", "--ranks", min=1, help="Number of ranks of each job.")]
Library = Annotated[
    str | None,
    typer.Option(
        metavar="gloo|nccl|ideal",
        show_default="gloo; ideal for GOAL, which names no library",
        help="Library whose rules apply; with --cluster also its times, or ideal.",
    ),
]
Eager = Annotated[
    bool, typer.Option("--eager", help="NCCL, with init_process_group(device_id=...): one communicator.")
]
Cluster = Annotated[
    str | None, typer.Option(metavar="NAME[:COUNT]|FILE", help="Simulate it here. See ringside topo.")
]
OnlyCheck = Annotated[bool, typer.Option("--check", help="Only prove that it ends.")]
Jobs = Annotated[
    list[str] | None,
    typer.Option("--job", metavar="FILE.py[:RANKS]", help="Instead of FILE.py: several jobs at once."),
]
Placement = Annotated[
    list[str] | None,
    typer.Option(
        show_default="even; several jobs packed",
        metavar="even|packed|interleaved|RANKS",
        help="Placement, or the cluster's ranks of each job: 0-3,8.",
    ),
]
Fold = Annotated[bool, typer.Option("--fold", help="Simulate one rank per role.")]
Real = Annotated[bool, typer.Option("--real", help="Run it for real, over torch.distributed.")]
Compute = Annotated[
    str, typer.Option(metavar=options.choices(COMPUTE), help="Real: how compute is emulated.")
]
Iterations = Annotated[int, typer.Option("-n", "--iterations", help="Real: timed runs.")]
Warmup = Annotated[int, typer.Option("-w", "--warmup", help="Real: untimed runs before them.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS",
        show_default="60 for a proved job",
        help="Real: longest wait of a rank; also runs an unproved job.",
    ),
]
Output = Annotated[Path | None, typer.Option("-o", metavar="FILE.jsonl", help="Real: one line per run.")]

_OF_REAL_RUNS = {"emulate", "compute", "iterations", "warmup", "timeout", "output"}
_OF_SIMULATIONS = {"cluster", "jobs", "placement", "network", "calibration", "fold", "plot",
                   "straggler", "slow_link", "jitter", "os_noise", "late", "draws", "seed"}  # fmt: skip


def command(
    context: typer.Context,
    file: Script = None,
    ranks: Ranks = None,
    library: Library = None,
    eager: Eager = False,
    cluster: Cluster = None,
    settings: options.Settings = None,
    only_check: OnlyCheck = False,
    jobs: Jobs = None,
    placement: Placement = None,
    network: options.Network = "fifo",
    calibration: options.CalibrationFile = "auto",
    fold: Fold = False,
    straggler: options.Straggler = None,
    slow_link: options.SlowLink = None,
    jitter: options.Jitter = None,
    os_noise: options.OsNoise = None,
    late: options.Late = None,
    draws: options.Draws = None,
    seed: options.Seed = None,
    real: Real = False,
    emulate: options.Emulate = None,
    compute: Compute = "sleep",
    iterations: Iterations = 5,
    warmup: Warmup = 1,
    timeout: Timeout = None,
    output: Output = None,
    plot: options.Plot = None,
    trace: options.Trace = None,
    export: options.Export = None,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Prove that a job of collectives and messages ends, or show who waits; simulate or run it."""
    _refuse_misplaced(console.given(context), real=real, only_check=only_check, placed=cluster is not None)
    if cluster is not None and not only_check:
        from ringside.commands.program import on_cluster as program_on_cluster

        every = program_source.all_asked(file, ranks, jobs or [])
        with forced(force):
            program_on_cluster.run(
                every, library or program_source.library_of(every), cluster, settings or [],
                eager=eager, placement=placement or [], network=network, calibration=calibration,
                fold=fold, plot=plot, trace=trace, export=export, as_json=json,
                disturbances=Disturbances(
                    straggler=straggler or (), slow_link=slow_link or (), jitter=jitter,
                    os_noise=os_noise, late=late or (), draws=draws, seed=seed,
                ),
            )  # fmt: skip
        return
    if file is None or jobs:
        raise ValueError("write FILE.py and -g N, its ranks; --job goes with --cluster")
    job = program_source.asked(file, ranks)
    library = library or "gloo"
    if not real:
        with forced(force):
            program_check.run(job, library, eager=eager, export=export, as_json=json)
        return
    if job.read:
        raise ValueError(f"{file}: --real runs scripts only; remove it, or write FILE.py")
    from ringside.commands.program.real import RealRun

    RealRun(
        file=file, ranks=job.ranks, library=library, eager=eager, emulate=emulate,
        settings=tuple(settings or ()), compute=compute, iterations=iterations, warmup=warmup,
        timeout_s=timeout, output=output, trace=trace, force=force,
    ).carry_out(as_json=json)  # fmt: skip


def _refuse_misplaced(given: set[str], *, real: bool, only_check: bool, placed: bool) -> None:
    """Raise ValueError for options without effect; ``placed`` is a job on a cluster."""
    if only_check and real:
        raise ValueError("--check only proves, --real runs; remove one of them")
    if misplaced := _words(given & (_OF_SIMULATIONS if real else _OF_REAL_RUNS)):
        advice = "--real does not simulate; remove one of them" if real else "add --real, or remove it"
        raise ValueError(f"{misplaced}: {advice}")
    if real and "export" in given:
        raise ValueError("--export: --real runs the job and exports nothing; remove one of them")
    if only_check and (pictures := _words(given & {"plot", "trace", "export"})):
        raise ValueError(f"{pictures}: --check only proves; remove one of them")
    lost = _words(given & {*_OF_SIMULATIONS, "settings", "trace"})
    if lost and not (real or placed):
        raise ValueError(f"{lost}: nothing is simulated or run; add --cluster NAME, or remove it")


def _words(names: set[str]) -> str:
    """Return the options' names on the command line."""
    short = {"jobs": "--job", "output": "-o", "settings": "--set"}
    return ", ".join(short.get(name, f"--{name.replace('_', '-')}") for name in sorted(names))
