"""``ringside train``: a data-parallel training step, what it hides and what stays exposed."""

import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from math import lcm
from pathlib import Path
from typing import Annotated, Any

import typer

from real.model.find import Training
from ringside import console, options
from ringside.commands.train_answer import Answer, Outcome
from ringside.pictures.style import check_format
from ringside.trained import Trained, trained
from sim.calibration import find_calibration
from sim.engine.effort import forced
from sim.libraries.find import Options, find_library
from sim.libraries.library import Library
from sim.libraries.nccl.library import Nccl
from sim.training.ddp.buckets import Bucketing
from sim.training.ddp.job import DataParallel
from sim.training.ddp.simulate import simulate_step
from sim.training.groups import process_group
from sim.training.memory import find_optimizer, memory
from sim.training.pace import ALONE
from sim.training.scaling import recommended_cap, share_of
from sim.workload.devices import device, device_of
from topologies import parse_settings
from topologies.catalogue import MAX_LINKS, split
from topologies.disk import check_outputs, write_file

STRATEGIES = ("ddp",)
SWEEPS = ("bucket-cap-mb", "nodes")

Model = Annotated[
    str, typer.Option(metavar="NAME[:SIZE]|FILE", help="resnet50, gpt2-xl:512, ... or a workload's YAML.")
]
Strategy = Annotated[str, typer.Option(help="How the model is spread: ddp.")]
AnyLibrary = Annotated[str, typer.Option(help="ideal, gloo or nccl; auto is nccl where it is known.")]
Batch = Annotated[int | None, typer.Option(help="Samples of a rank and pass [default: 32 or the file's]")]
GlobalBatch = Annotated[
    int | None,
    typer.Option(help="Samples of a step, for strong scaling [default: the least for all counts]"),
]
Gpu = Annotated[str | None, typer.Option(help="v100, a100, h100, ... [default: the cluster's]")]
Precision = Annotated[
    str | None,
    typer.Option(help="What products are computed in: bf16, ... [default: as the model usually is]"),
]
Dtype = Annotated[
    str | None, typer.Option(help="Type of parameters and gradients [default: the model's own]")
]
Efficiency = Annotated[
    float | None, typer.Option(help="Share of its peak that the GPU reaches [default: its usual one]")
]
Measured = Annotated[
    str | None, typer.Option(metavar="RATE@RANKS", help="Compute at a measured pace: 2616img/s@1")
]
OptimizerName = Annotated[str, typer.Option(help="sgd, momentum or adam.")]
CommHook = Annotated[str | None, typer.Option(help="allreduce, fp16_compress or bf16_compress.")]
Accumulation = Annotated[int, typer.Option(help="Passes a step, all but the last under no_sync.")]
NoBuffers = Annotated[bool, typer.Option("--no-broadcast-buffers", help="As DistributedDataParallel's.")]
Straggler = Annotated[
    list[str] | None, typer.Option(metavar="RANK=FACTOR", help="A rank that computes slower.")
]
Spread = Annotated[
    float | None, typer.Option(help="How much ranks differ; all wait for the slowest [default: 0.02 on GPUs]")
]
Contention = Annotated[
    float | None,
    typer.Option(help="Share of compute that a running collective takes [default: channels / SMs]"),
]
Sweep = Annotated[
    str | None, typer.Option(metavar="PARAMETER=A,B,C", help="bucket-cap-mb=1,5,25 or nodes=1,2,4")
]
MustFit = Annotated[bool, typer.Option("--must-fit", help="Exit with 1 where a GPU cannot hold it.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Where a training runs, and what is asked about it: the other words of the command line."""

    cluster: str
    settings: tuple[str, ...]
    strategy: str
    ranks: int | None
    library: str
    network: str
    calibration: str
    anchor: Path | None
    sweep: str | None
    global_batch: int | None


def command(
    model: Model,
    cluster: options.Cluster,
    settings: options.Settings = None,
    strategy: Strategy = "ddp",
    ranks: options.Ranks = None,
    library: AnyLibrary = "auto",
    batch: Batch = None,
    global_batch: GlobalBatch = None,
    device: Gpu = None,
    precision: Precision = None,
    dtype: Dtype = None,
    compute_efficiency: Efficiency = None,
    measured: Measured = None,
    optimizer: OptimizerName = "adam",
    bucket_cap_mb: options.BucketCap = None,
    find_unused_parameters: options.UnusedParameters = False,
    static_graph: options.StaticGraph = False,
    gradient_as_bucket_view: options.BucketView = False,
    no_broadcast_buffers: NoBuffers = False,
    comm_hook: CommHook = None,
    accumulation: Accumulation = 1,
    straggler: Straggler = None,
    spread: Spread = None,
    contention: Contention = None,
    network: options.Network = "fifo",
    calibration: options.CalibrationFile = "auto",
    anchor: options.Anchor = None,
    sweep: Sweep = None,
    must_fit: MustFit = False,
    plot: options.Plot = None,
    trace: options.Trace = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Predict a training step: what communication it hides and what stays exposed."""
    ddp = DataParallel(
        bucketing=Bucketing(bucket_cap_mb, find_unused_parameters, static_graph), comm_hook=comm_hook,
        gradient_as_bucket_view=gradient_as_bucket_view, broadcast_buffers=not no_broadcast_buffers,
        accumulation=accumulation,
    )  # fmt: skip
    training = Training(
        model=model, batch=batch, device=device, precision=precision, dtype=dtype, optimizer=optimizer,
        compute_efficiency=compute_efficiency, measured=_measured(measured), ddp=ddp,
        slowdown=_slowdown(straggler or []), spread=spread, contention=contention,
    )  # fmt: skip
    question = Question(
        cluster=cluster, settings=tuple(settings or ()), strategy=strategy, ranks=ranks, library=library,
        network=network, calibration=calibration, anchor=anchor, sweep=sweep, global_batch=global_batch,
    )  # fmt: skip
    with forced(force):
        answer = run(question, training, plot=plot, trace=trace)
    answer.print_json() if json else answer.print()
    if must_fit and not answer.fits:
        raise RuntimeError(f"{model} does not fit into a GPU; a smaller --batch or another --device may")


def run(question: Question, training: Training, *, plot: Path | None, trace: Path | None) -> Answer:
    """Simulate one step, or one for each value of a sweep."""
    cluster, ddp = question.cluster, training.ddp
    parameter, values = _checked(question, ddp)
    _check_outputs(plot, trace, question.sweep, [training.model, split(cluster)[0]])
    figures = parse_settings(list(question.settings))
    found = find_calibration(question.calibration, cluster)
    if question.anchor:
        from ringside.anchor import scaled

        found = scaled(found, question.anchor, cluster, figures)
    name = None if question.library == "auto" else question.library

    def bound(where: str, count: int | None) -> Library:
        network = Options(network=question.network)
        return find_library(name, where, figures, ranks=count, options=network, calibration=found)

    counted = [f"{cluster}:{_whole(value)}" for value in values] if parameter == "nodes" else [cluster]
    libraries = [bound(one, question.ranks) for one in counted]
    caps = values if parameter == "bucket-cap-mb" else [ddp.bucketing.bucket_cap_mb]
    gpu = device(training.device or device_of(cluster, figures))
    what = trained(training, gpu, lambda count: bound(cluster, count))
    rows = _rows(training, what, libraries, caps, question.global_batch)
    best = None
    if parameter == "bucket-cap-mb":
        best = recommended_cap({cap: row.step for cap, row in zip(values, rows, strict=True)})
    if plot:
        _draw(parameter, values, rows, best, plot)
    if trace:
        write_file(trace, rows[0].step.dumps())
    inputs = {**asdict(question), **asdict(training), "library": libraries[0].name, "device": gpu.name,
              "precision": what.precision}  # fmt: skip
    if isinstance(libraries[0], Nccl):
        del inputs["network"]
    held = memory(what.sized(None), ddp, find_optimizer(training.optimizer))
    return Answer(
        training=training,
        inputs=inputs,
        precision=what.precision,
        gpu=gpu,
        rows=rows,
        held=held,
        best_mb=best,
    )


def _checked(question: Question, ddp: DataParallel) -> tuple[str | None, list[float]]:
    """The sweep in parts; raise ValueError where words contradict each other."""
    if question.strategy not in STRATEGIES:
        raise ValueError(f"{question.strategy!r} is no known strategy; write {', '.join(STRATEGIES)}")
    parameter, values = _sweep(question.sweep)
    if parameter == "nodes" and (question.ranks is not None or split(question.cluster)[1] is not None):
        raise ValueError("a sweep of nodes counts for itself; leave -g and the cluster's own count out")
    if parameter == "bucket-cap-mb" and ddp.bucketing.bucket_cap_mb is not None:
        raise ValueError("--bucket-cap-mb and a sweep of it; leave one of them out")
    return parameter, values


def _check_outputs(plot: Path | None, trace: Path | None, sweep: str | None, inputs: list[str]) -> None:
    """Refuse files that could not be written, before any work is done for them."""
    if trace and sweep:
        raise ValueError("a trace shows one step, not a sweep; leave --trace or --sweep out")
    check_format(plot)
    check_outputs((plot, trace), inputs)


def _rows(
    training: Training, what: Trained, libraries: list[Library], caps: list[Any], global_batch: int | None
) -> list[Outcome]:
    """A step for each library and each bucket cap; all ranks share ``global_batch`` samples, or the least."""
    work, passes = what.sized(None), training.ddp.accumulation
    together = global_batch or work.batch * passes * lcm(*(found.ranks for found in libraries))
    shares = [share_of(together, found.ranks, passes) for found in libraries]
    alone = replace(what.costs_on(libraries[0]), slowdown={})
    base = simulate_step(work, ALONE, training.ddp, alone).throughput
    large = simulate_step(what.sized(share_of(together, 1, passes)), ALONE, training.ddp, alone).throughput
    rows = []
    with console.simulating("simulating", len(libraries) * len(caps)) as bar:
        for library, share in zip(libraries, shares, strict=True):
            many, costs = process_group(library), what.costs_on(library)
            for cap in caps:
                job = replace(training.ddp, bucketing=replace(training.ddp.bucketing, bucket_cap_mb=cap))
                step = simulate_step(work, many, job, costs)
                alike = share == work.batch
                strong = step if alike else simulate_step(what.sized(share), many, job, costs)
                efficiencies = (step.throughput / base, strong.throughput / large)
                rows.append(Outcome(library, cap, step, *(value / many.ranks for value in efficiencies)))
                bar.done(f"simulated {many.ranks} ranks")
    return rows


def _measured(text: str | None) -> tuple[float, int] | None:
    """Samples/s and ranks of ``2616img/s@1``."""
    if text is None:
        return None
    found = re.fullmatch(r"([0-9.]+(?:e[0-9]+)?)\s*(?:[a-z]*/s)?@([0-9]+)", text, re.IGNORECASE)
    try:
        rate, ranks = float(found.group(1)) if found else 0.0, int(found.group(2)) if found else 0
    except ValueError:
        rate, ranks = 0.0, 0
    if not (0 < rate < float("inf") and ranks):
        raise ValueError(f"{text!r} is no throughput; write RATE@RANKS, for example 2616img/s@1")
    return rate, ranks


def _sweep(text: str | None) -> tuple[str | None, list[float]]:
    """A ``parameter=value,value`` text in parts."""
    if text is None:
        return None, []
    parameter, _, values = text.partition("=")
    try:
        found = [float(value) for value in values.split(",")]
    except ValueError:
        found = []
    if parameter not in SWEEPS or not found or any(not 0 <= value < float("inf") for value in found):
        raise ValueError(
            f"{text!r} is no sweep of {' or '.join(SWEEPS)}; write for example bucket-cap-mb=1,5,25"
        )
    if len(set(found)) < len(found):
        raise ValueError(f"{text!r} names a value twice; write each once")
    return parameter, found


def _whole(nodes: float) -> int:
    if nodes != int(nodes) or not 1 <= nodes <= MAX_LINKS:
        raise ValueError(f"{nodes:g} is no number of nodes; write 1 to {MAX_LINKS}, for example nodes=1,2,4")
    return int(nodes)


def _slowdown(texts: Iterable[str]) -> dict[int, float]:
    found: dict[int, float] = {}
    for text in texts:
        rank, _, factor = text.partition("=")
        try:
            number, slower = int(rank), float(factor)
        except ValueError:
            raise ValueError(f"{text!r} is no straggler; write RANK=FACTOR, for example 3=1.5") from None
        if number in found:
            raise ValueError(f"rank {number} is a straggler twice; write --straggler {text} alone")
        found[number] = slower
    return found


def _draw(
    parameter: str | None, values: list[float], rows: list[Outcome], best: float | None, plot: Path
) -> None:
    from ringside.pictures.training import draw_sweep, draw_timelines

    steps = [row.step for row in rows]
    if parameter:
        draw_sweep(parameter, values, steps, best, plot)
    else:
        draw_timelines({f"{steps[0].workload} on {steps[0].ranks} ranks": steps[0]}, plot)
