"""``ringside train``: a data-parallel training step, what it hides and what stays exposed."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from math import lcm
from pathlib import Path
from typing import Annotated, Any

import typer

from real.model.find import Training, is_timed, sized_workload
from ringside import console, options
from ringside.pictures.style import check_format
from sim.calibration import find_calibration
from sim.engine.effort import forced
from sim.libraries.find import Options, find_library
from sim.libraries.library import Library
from sim.libraries.nccl.library import Nccl
from sim.training.ddp.buckets import Bucketing
from sim.training.ddp.job import Costs, DataParallel
from sim.training.ddp.simulate import simulate_step
from sim.training.groups import TimedGroup, process_group
from sim.training.memory import Memory, find_optimizer, memory
from sim.training.scaling import recommended_cap
from sim.training.step import TrainingStep
from sim.workload.architecture import MEMORY_EFFICIENCY
from sim.workload.devices import Device, device, device_of
from topologies import parse_settings
from topologies.catalogue import MAX_LINKS, split
from topologies.disk import check_outputs, write_file
from topologies.units import format_duration

STRATEGIES = ("ddp",)
SWEEPS = ("bucket-cap-mb", "nodes")
HEADS = (
    *(("nodes", ""), ("ranks", ""), ("cap", "(MiB)"), ("lower", "(ms)"), ("upper", "(ms)"), ("step", "(ms)")),
    *(("throughput", "(sample/s)"), ("weak", "(%)"), ("strong", "(%)"), ("compute", "(ms)")),
    *(("comm", "(ms)"), ("exposed", "(ms)"), ("overlap", "(%)")),
)


ALONE = TimedGroup(1, lambda _: 0.0)
"""One rank that shares its gradients with nobody."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One step; efficiencies are throughput a rank over that of one rank alone.

    Weak: with the same batch a rank. Strong: with the same samples in all, so many that they divide
    among every rank count of the sweep.
    """

    library: Library
    cap_mb: float | None
    step: TrainingStep
    weak: float
    strong: float


def command(
    model: Annotated[
        str, typer.Option(metavar="NAME[:SIZE]|FILE", help="resnet50, gpt2-xl:512, ... or a workload's YAML.")
    ],
    cluster: options.Cluster,
    settings: options.Settings = None,
    strategy: Annotated[str, typer.Option(help="How the model is spread: ddp.")] = "ddp",
    ranks: options.Ranks = None,
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
    bucket_cap_mb: options.BucketCap = None,
    find_unused_parameters: options.UnusedParameters = False,
    static_graph: options.StaticGraph = False,
    gradient_as_bucket_view: options.BucketView = False,
    comm_hook: Annotated[str | None, typer.Option(help="fp16_compress or bf16_compress.")] = None,
    accumulation: Annotated[int, typer.Option(help="Passes a step, all but the last under no_sync.")] = 1,
    straggler: Annotated[
        list[str] | None, typer.Option(metavar="RANK=FACTOR", help="A rank that computes slower.")
    ] = None,
    contention: Annotated[
        float, typer.Option(help="Share of compute that a running collective takes: channels / SMs.")
    ] = 0.0,
    network: options.Network = "fifo",
    calibration: options.CalibrationFile = "auto",
    anchor: options.Anchor = None,
    sweep: Annotated[
        str | None, typer.Option(metavar="PARAMETER=A,B,C", help="bucket-cap-mb=1,5,25 or nodes=1,2,4")
    ] = None,
    plot: options.Plot = None,
    trace: options.Trace = None,
    force: options.Force = False,
    json: options.Json = False,
) -> None:
    """Predict a training step: what communication it hides and what stays exposed."""
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
            cluster, settings or [], training, strategy=strategy, ranks=ranks, library=library,
            network=network, sweep=sweep, calibration=calibration, anchor=anchor, plot=plot, trace=trace,
            as_json=json,
        )  # fmt: skip


def run(
    cluster: str,
    settings: list[str],
    training: Training,
    *,
    strategy: str,
    ranks: int | None,
    library: str,
    network: str,
    sweep: str | None,
    calibration: str,
    anchor: Path | None,
    plot: Path | None,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Simulate one step, or one for each value of a sweep, and print the rows."""
    if strategy not in STRATEGIES:
        raise ValueError(f"{strategy!r} is no known strategy; write {', '.join(STRATEGIES)}")
    parameter, values = _sweep(sweep)
    if parameter == "nodes" and (ranks is not None or split(cluster)[1] is not None):
        raise ValueError("a sweep of nodes counts for itself; leave -g and the cluster's own count out")
    if parameter == "bucket-cap-mb" and training.ddp.bucketing.bucket_cap_mb is not None:
        raise ValueError("--bucket-cap-mb and a sweep of it; leave one of them out")
    _check_outputs(plot, trace, sweep, [training.model, split(cluster)[0]])
    name, figures = None if library == "auto" else library, parse_settings(settings)
    counted = [f"{cluster}:{_whole(value)}" for value in values] if parameter == "nodes" else [cluster]
    found = find_calibration(calibration, cluster)
    if anchor:
        from ringside.anchor import scaled

        found = scaled(found, anchor, cluster, figures)
    libraries = [
        find_library(name, one, figures, ranks=ranks, options=Options(network=network), calibration=found)
        for one in counted
    ]
    caps = values if parameter == "bucket-cap-mb" else [training.ddp.bucketing.bucket_cap_mb]
    gpu = device(training.device or device_of(cluster, figures))
    rows = _rows(training, gpu, libraries, caps)
    best = None
    if parameter == "bucket-cap-mb":
        best = recommended_cap({cap: row.step for cap, row in zip(values, rows, strict=True)})
    if plot:
        _draw(parameter, values, rows, best, plot)
    if trace:
        write_file(trace, rows[0].step.dumps())
    notes = list(dict.fromkeys(note for one in libraries if isinstance(one, Nccl) for note in one.notes))
    inputs = {"cluster": cluster, "settings": settings, "strategy": strategy, "library": libraries[0].name,
              "calibration": calibration, "sweep": sweep, **asdict(training), "device": gpu.name}  # fmt: skip
    if not isinstance(libraries[0], Nccl):
        inputs["network"] = network
    held = memory(
        sized_workload(training, gpu)(training.batch), training.ddp, find_optimizer(training.optimizer)
    )
    if as_json:
        _print_json(inputs, rows, held, best, [*_measured(libraries), *notes])
    else:
        _print(inputs, rows, held, gpu, best, notes)


def _check_outputs(plot: Path | None, trace: Path | None, sweep: str | None, inputs: list[str]) -> None:
    """Refuse files that could not be written, before any work is done for them."""
    if trace and sweep:
        raise ValueError("a trace shows one step, not a sweep; leave --trace or --sweep out")
    check_format(plot)
    check_outputs((plot, trace), inputs)


def _rows(training: Training, gpu: Device, libraries: list[Library], caps: list[Any]) -> list[Outcome]:
    """A step for each library and each bucket cap."""
    sized, optimizer = sized_workload(training, gpu), find_optimizer(training.optimizer)
    work = sized(training.batch)
    slowdown = _slowdown(training.slowdown)
    bandwidth = gpu.memory_bandwidth * MEMORY_EFFICIENCY
    costs = Costs(memory_bandwidth=bandwidth, contention=training.contention, slowdown=slowdown,
                  optimizer_s=optimizer.time_s(work, bandwidth))  # fmt: skip
    alone = replace(costs, slowdown={})
    everybody = lcm(*(found.ranks for found in libraries))
    base = simulate_step(work, ALONE, training.ddp, alone).throughput
    large = simulate_step(sized(work.batch * everybody), ALONE, training.ddp, alone).throughput
    rows = []
    with console.simulating("simulating", len(libraries) * len(caps)) as bar:
        for library in libraries:
            many = process_group(library)
            for cap in caps:
                job = replace(training.ddp, bucketing=replace(training.ddp.bucketing, bucket_cap_mb=cap))
                step = simulate_step(work, many, job, costs)
                share = everybody // many.ranks
                strong = simulate_step(sized(work.batch * share), many, job, costs) if share > 1 else step
                efficiencies = (step.throughput / base, strong.throughput / large)
                rows.append(Outcome(library, cap, step, *(value / many.ranks for value in efficiencies)))
                bar.done(f"simulated {many.ranks} ranks")
    return rows


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


def _print(
    inputs: dict[str, Any],
    rows: list[Outcome],
    held: Memory,
    gpu: Device,
    best: float | None,
    notes: list[str],
) -> None:
    first, library = rows[0].step, rows[0].library
    if len(rows) == 1:
        lower, upper = format_duration(first.lower_s, 4), format_duration(first.upper_s, 4)
        bounds = f"the step takes {lower} if everything overlaps, {upper} if nothing does"
    else:
        bounds = "the step takes 'lower' if everything overlaps, 'upper' if nothing does"
    parts = ", ".join(f"{name} {_gib(size)}" for name, size in asdict(held).items() if size)
    fits = "" if held.total <= gpu.memory else ": more than it has"
    ddp = inputs["ddp"]
    precision, dtype = inputs["precision"] or "float32", inputs["dtype"] or "of the model's own types"
    compute = f"{precision} on {gpu.name} at assumed efficiencies, gradients {dtype}"
    if is_timed(inputs["model"]):
        compute = f"layers as timed in {inputs['model']}, optimizer and copies on {gpu.name}"
    comments = [
        bounds,
        f"{inputs['strategy']} of {first.workload} on {' '.join([inputs['cluster'], *inputs['settings']])}; "
        f"collectives of {inputs['library']}{_caveat(library)}{_on(library)}",
        f"{first.samples // first.ranks} samples a rank and step, {compute}, {inputs['optimizer']}"
        f"{', ' + ddp['comm_hook'] if ddp['comm_hook'] else ''}",
        f"memory of a GPU {_gib(held.total)} of {_gib(gpu.memory)}{fits} ({parts})",
        "weak and strong scaling efficiency are against one rank alone",
        *notes,
    ]
    console.print_table(comments, HEADS, map(_cells, rows))
    if best is not None:
        print(f"# recommended: --bucket-cap-mb {best:g}")


def _gib(nbytes: int) -> str:
    return f"{nbytes / 2**30:.2f} GiB"


def _measured(libraries: list[Library]) -> list[str]:
    """By which measurements the times are."""
    found = (one.calibrated for one in libraries if isinstance(one, Nccl))
    return list(dict.fromkeys(f"times as measured ({one.name})" for one in found if one))


def _caveat(library: Library) -> str:
    """On what NCCL's times rest."""
    if not isinstance(library, Nccl):
        return ""
    if library.calibrated:
        return f", as measured ({library.calibrated.name})"
    return ", as its tuner believes, which no measurement has calibrated"


def _on(library: Library) -> str:
    """Which network, where the answer is not the usual one's."""
    return f", on the {library.network} network" if library.network != "fifo" else ""


def _cells(row: Outcome) -> tuple[console.Cell, ...]:
    step = row.step
    return (
        *(row.library.nodes, step.ranks, "default" if row.cap_mb is None else f"{row.cap_mb:g}"),
        *(step.lower_s * 1e3, step.upper_s * 1e3, step.step_s * 1e3, step.throughput),
        *(row.weak * 100, row.strong * 100, step.compute_s * 1e3, step.communication_s * 1e3),
        *(step.exposed_s * 1e3, step.overlap_efficiency * 100),
    )


def _print_json(
    inputs: dict[str, Any], rows: list[Outcome], held: Memory, best: float | None, notes: list[str]
) -> None:
    content: dict[str, Any] = {
        "inputs": inputs,
        "notes": notes,
        "memory_bytes": {**asdict(held), "total": held.total},
        "rows": [_row(row) for row in rows],
    }
    if best is not None:
        content["recommended_bucket_cap_mb"] = best
    console.print_json("train", content)


def _row(row: Outcome) -> dict[str, Any]:
    step = row.step
    return {
        "lower_s": step.lower_s,
        "upper_s": step.upper_s,
        "step_s": step.step_s,
        "num_nodes": row.library.nodes,
        "ranks": step.ranks,
        "bucket_cap_mb": row.cap_mb,
        "samples": step.samples,
        "throughput": step.throughput,
        "weak_efficiency": row.weak,
        "strong_efficiency": row.strong,
        "compute_s": step.compute_s,
        "contention_s": step.contention_s,
        "copy_s": step.copy_s,
        "communication_s": step.communication_s,
        "exposed_s": step.exposed_s,
        "overlap_efficiency": step.overlap_efficiency,
        "buckets": [asdict(bucket) for bucket in step.buckets],
    }
