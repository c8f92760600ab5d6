"""``ringside train``: a data-parallel training step, what it hides and what stays exposed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import lcm
from pathlib import Path
from typing import Any

import typer

from ringside import console, options
from ringside.anchor import calibration_of
from ringside.commands import train_options as words
from ringside.commands import train_parallel, train_search
from ringside.commands.train_answer import Answer, Outcome, unfit
from ringside.commands.train_disturbed import disturbed_step
from ringside.commands.train_parallel import ParallelAnswer
from ringside.commands.train_search import STOPPED, SearchAnswer, said_words
from ringside.commands.train_words import measured_rate, sweep_of, whole_nodes, with_tokens
from ringside.disturbed import DisturbanceWords, slow_ranks
from ringside.hooks import caps_of, hook_of
from ringside.pictures.style import check_format
from ringside.report.page import check_page, write_page
from ringside.searched import TOP
from sim.engine.effort import forced
from sim.libraries.find import Options, default_library, find_library
from sim.libraries.library import Library
from sim.libraries.nccl.library import Nccl
from sim.program.libraries import Libraries
from sim.training.ddp.buckets import Bucketing
from sim.training.ddp.job import DataParallel
from sim.training.ddp.simulate import simulate_step
from sim.training.groups import process_group
from sim.training.layout import COPIES
from sim.training.memory import find_optimizer, memory
from sim.training.pace import ALONE
from sim.training.room import room_of
from sim.training.scaling import recommended_cap, share_of
from sim.workload.devices import Device, device, device_of
from topologies import parse_settings
from topologies.catalogue import split
from topologies.disk import check_outputs, write_file
from topologies.placement import EVEN, PACKED
from topologies.units import parse_size
from validation.questions.laid_out import LayoutWords, laid_out
from validation.questions.trained import Trained, trained
from validation.questions.training import Training, batch_of

DDP_STEP = {"sweep", "global_batch"}
"""Options that only a step of DistributedDataParallel alone has."""

ONE_LAYOUT = {"sweep", "accumulation", "straggler", "slow_link", "jitter", "os_noise", "late", "draws",
              "seed"}  # fmt: skip
"""Options that a search leaves no room for."""

BUCKETS = {"bucket_cap_mb", "bucket_cap_mb_list", "find_unused_parameters",
           "static_graph", "gradient_as_bucket_view",
           "no_broadcast_buffers", "comm_hook"}  # fmt: skip
"""Options of DistributedDataParallel, under any layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Where a training runs, and what is asked about it: the other words of the command line."""

    cluster: str
    settings: tuple[str, ...]
    strategy: str
    ranks: int | None
    placement: str
    library: str
    network: str
    calibration: str
    anchor: Path | None
    sweep: str | None
    global_batch: int | None
    reserve: int | None
    disturbances: DisturbanceWords = field(default_factory=DisturbanceWords)


def command(
    context: typer.Context,
    model: words.Model,
    cluster: options.Cluster,
    settings: options.Settings = None,
    strategy: words.Strategy = "ddp",
    tp: words.Tensor = 1,
    cp: words.Context = 1,
    cp_method: words.ContextMethod = None,
    async_tp: words.AsyncTensor = False,
    pp: words.Pipeline = 1,
    shard: words.Shard = None,
    schedule: words.Schedule = None,
    virtual: words.Virtual = None,
    micro_batch: words.MicroBatch = None,
    checkpointing: words.Checkpointing = "none",
    sequence_parallel: words.SequenceParallel = False,
    clip: words.Clip = None,
    overlap_grad_reduce: words.OverlapGradReduce = False,
    overlap_param_gather: words.OverlapParamGather = False,
    no_sync: words.NoSync = False,
    ep: words.Experts = 1,
    ep_imbalance: words.Imbalance = 1.0,
    capacity_factor: words.Capacity = None,
    seq: words.Sequence = None,
    ranks: options.Ranks = None,
    placement: options.Placement = EVEN,
    library: words.AnyLibrary = "auto",
    batch: words.Batch = None,
    global_batch: words.GlobalBatch = None,
    device: words.Gpu = None,
    precision: words.Precision = None,
    dtype: words.Dtype = None,
    compute_efficiency: words.Efficiency = None,
    measured: words.Measured = None,
    optimizer: words.OptimizerName = "adam",
    bucket_cap_mb: options.BucketCap = None,
    bucket_cap_mb_list: options.BucketCaps = None,
    find_unused_parameters: options.UnusedParameters = False,
    static_graph: options.StaticGraph = False,
    gradient_as_bucket_view: options.BucketView = False,
    no_broadcast_buffers: words.NoBuffers = False,
    comm_hook: options.CommHook = None,
    accumulation: words.Accumulation = 1,
    straggler: options.Straggler = None,
    slow_link: options.SlowLink = None,
    jitter: options.Jitter = None,
    os_noise: options.OsNoise = None,
    late: options.Late = None,
    draws: options.Draws = None,
    seed: options.Seed = None,
    spread: words.Spread = None,
    contention: words.Contention = None,
    network: options.Network = "fifo",
    calibration: options.CalibrationFile = "auto",
    anchor: options.Anchor = None,
    sweep: words.Sweep = None,
    must_fit: words.MustFit = False,
    search: words.Search = False,
    top: words.Top = TOP,
    reserve: words.Reserve = None,
    plot: options.Plot = None,
    html: options.Html = None,
    trace: options.Trace = None,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict a training step: what communication it hides and what stays exposed."""
    layout = LayoutWords(
        strategy=strategy, tp=tp, cp=cp, cp_method=cp_method, async_tp=async_tp, pp=pp, shard=shard,
        schedule=schedule, virtual=virtual,
        micro_batch=micro_batch, checkpointing=checkpointing, sequence_parallel=sequence_parallel, clip=clip,
        overlap_grad_reduce=overlap_grad_reduce, overlap_param_gather=overlap_param_gather, no_sync=no_sync,
        ep=ep, ep_imbalance=ep_imbalance, capacity_factor=capacity_factor,
    )  # fmt: skip
    hook, powersgd = hook_of(comm_hook)
    caps = caps_of(bucket_cap_mb_list)
    ddp = DataParallel(
        bucketing=Bucketing(bucket_cap_mb, find_unused_parameters, static_graph, bucket_cap_mb_list=caps),
        comm_hook=hook, powersgd=powersgd, gradient_as_bucket_view=gradient_as_bucket_view,
        broadcast_buffers=not no_broadcast_buffers, accumulation=accumulation,
        no_sync=no_sync,
    )  # fmt: skip
    sized = with_tokens(model, seq)
    training = Training(
        model=sized, batch=batch, device=device, precision=precision, dtype=dtype,
        optimizer=optimizer,
        compute_efficiency=compute_efficiency, measured=measured_rate(measured, sized), ddp=ddp,
        spread=spread, contention=contention,
    )  # fmt: skip
    figures = parse_settings(settings or [])
    layout = layout.resolved(lambda: batch_of(training, _gpu(cluster, training, figures)))
    # a straggler of plain data parallelism is in the answer itself, and so in every draw
    training = training if layout.is_parallel else replace(training, slowdown=slow_ranks(straggler or ()))
    disturbances = DisturbanceWords(
        straggler=straggler if layout.is_parallel else None, slow_link=slow_link, jitter=jitter,
        os_noise=os_noise, late=late, draws=draws, seed=seed,
    )  # fmt: skip
    question = Question(
        cluster=cluster, settings=tuple(settings or ()), strategy=strategy, ranks=ranks,
        placement=placement, library=library,
        network=network, calibration=calibration, anchor=anchor, sweep=sweep, global_batch=global_batch,
        reserve=None if reserve is None else parse_size(reserve), disturbances=disturbances,
    )  # fmt: skip
    answer: Answer | ParallelAnswer | SearchAnswer
    _check_search(console.given(context), search=search)
    read = [model, split(cluster)[0]]
    check_page(html, [plot, trace], read)
    with forced(force):
        if search:
            _check_has_effect(console.given(context) - {"global_batch"}, strategy)
            said = said_words(layout, console.given(context))
            answer = run_search(question, training, said, top, plot=plot, trace=trace)
        elif layout.is_parallel:
            _check_has_effect(console.given(context), strategy)
            answer = run_parallel(question, training, layout, plot=plot, trace=trace)
        else:
            answer = run(question, training, plot=plot, trace=trace)
    if html:
        write_page(answer.page(), html, [*read, plot, trace])
    answer.print_json() if json else answer.print()
    if search and isinstance(answer, SearchAnswer) and answer.found.searched.left:
        raise typer.Exit(STOPPED)
    if must_fit and not answer.fits:
        smaller = "--global-batch" if search else "--batch"
        raise RuntimeError(f"{unfit(model, answer.verdict)}; a smaller {smaller} or another --device may fit")


def run_search(
    question: Question, training: Training, said: Mapping[str, Any], top: int,
    *, plot: Path | None, trace: Path | None,
) -> SearchAnswer:  # fmt: skip
    """Rank the layouts that have the words that were said."""
    _check_outputs(plot, trace, None, [training.model, split(question.cluster)[0]])
    gpu, libraries = _placed(question, training)
    inputs = _inputs(question, training, libraries.name, gpu)
    return train_search.run(
        training, gpu, libraries, said, inputs, global_batch=question.global_batch, top=top,
        reserve=question.reserve, plot=plot, trace=trace,
    )  # fmt: skip


def _placed(question: Question, training: Training) -> tuple[Device, Libraries]:
    """The GPU, and the libraries on all ranks that are asked for."""
    cluster = question.cluster
    figures = parse_settings(list(question.settings))
    found = calibration_of(question.calibration, question.anchor, cluster, figures)
    name = default_library(cluster) if question.library == "auto" else question.library
    ranks = question.ranks
    if ranks is None:
        ranks = find_library(name, cluster, figures, calibration=found).ranks
    gpu = _gpu(cluster, training, figures)
    return gpu, Libraries(name, cluster, figures, ranks, question.network, found, question.placement)


def run_parallel(
    question: Question, training: Training, layout: LayoutWords, *, plot: Path | None, trace: Path | None
) -> ParallelAnswer:
    """Simulate one step under a layout."""
    _check_outputs(plot, trace, None, [training.model, split(question.cluster)[0]])
    meant = layout.layout()
    gpu, libraries = _placed(question, training)
    what = laid_out(training, gpu, libraries, meant)
    inputs = _inputs(question, training, libraries.name, gpu, precision=what.precision)
    return train_parallel.run(
        what, layout, inputs, question.disturbances, reserve=question.reserve, plot=plot, trace=trace
    )


def run(question: Question, training: Training, *, plot: Path | None, trace: Path | None) -> Answer:
    """Simulate one step, or one for each value of a sweep."""
    cluster, ddp = question.cluster, training.ddp
    parameter, values = _checked(question, ddp)
    disturbance = question.disturbances.meant()
    _check_outputs(plot, trace, question.sweep, [training.model, split(cluster)[0]])
    figures = parse_settings(list(question.settings))
    found = calibration_of(question.calibration, question.anchor, cluster, figures)
    name = None if question.library == "auto" else question.library

    def bound(where: str, count: int | None, placement: str = PACKED) -> Library:
        options = Options(network=question.network, placement=placement)
        return find_library(name, where, figures, ranks=count, options=options, calibration=found)

    counted = [f"{cluster}:{whole_nodes(value)}" for value in values] if parameter == "nodes" else [cluster]
    libraries = [bound(one, question.ranks, question.placement) for one in counted]
    caps = values if parameter == "bucket-cap-mb" else [ddp.bucketing.bucket_cap_mb]
    gpu = _gpu(cluster, training, figures)
    machine = split(cluster)[0] if isinstance(libraries[0], Nccl) else cluster
    what = trained(training, gpu, lambda count: bound(machine, count))
    rows = _rows(training, what, libraries, caps, question.global_batch)
    best = None
    if parameter == "bucket-cap-mb":
        best = recommended_cap({cap: row.step for cap, row in zip(values, rows, strict=True)})
    disturbed = None
    if disturbance:
        step = rows[0].step
        disturbed = disturbed_step(question.disturbances, disturbance, what, libraries[0], ddp, step.step_s)
        disturbed.write(f"{step.workload} on {step.ranks} ranks, disturbed", plot, trace)
    elif plot:
        _draw(parameter, values, rows, best, plot)
    if trace and not disturbed:
        write_file(trace, rows[0].step.dumps())
    inputs = _inputs(question, training, libraries[0].name, gpu, precision=what.precision)
    held = memory(what.sized(None), ddp, find_optimizer(training.optimizer))
    before = None
    if ddp.compresses:
        plain = replace(ddp, comm_hook="allreduce")
        group, costs = process_group(libraries[0]), what.costs_on(libraries[0])
        before = simulate_step(what.sized(None), group, plain, costs).step_s
    return Answer(
        training=training,
        inputs=inputs,
        precision=what.precision,
        gpu=gpu,
        rows=rows,
        held=held,
        room=room_of(gpu, question.reserve),
        best_mb=best,
        disturbed=disturbed,
        uncompressed_s=before,
        swept=(parameter, values) if parameter else None,
    )


def _gpu(cluster: str, training: Training, figures: Mapping[str, str]) -> Device:
    """The GPU that is asked for, or else the cluster's."""
    name = device_of(cluster, figures) if training.device is None else training.device
    return device(name)


def _inputs(
    question: Question, training: Training, library: str, gpu: Device, **more: str | None
) -> dict[str, Any]:
    """The words of a question as they were understood; what disturbs it stands beside its answer."""
    found = {**asdict(question), **asdict(training), "library": library, "device": gpu.name, **more}
    del found["disturbances"]
    if library == "nccl":
        del found["network"]  # it has times of its own
    return found


def _check_has_effect(given: set[str], strategy: str) -> None:
    """Refuse options of the command line that mean nothing under a layout."""
    for name in sorted(
        given & (DDP_STEP if strategy in COPIES and strategy != "data_parallel" else DDP_STEP | BUCKETS)
    ):
        option = f"--{name.replace('_', '-')}"
        raise ValueError(
            f"{option} is of a step of DistributedDataParallel"
            + (" alone" if name in DDP_STEP else f", and --strategy is {strategy}")
            + "; leave it out"
        )


def _check_search(given: set[str], *, search: bool) -> None:
    """Refuse options that a search leaves no room for, and those of a search without it."""
    for name in sorted(given & (ONE_LAYOUT if search else {"top"})):
        why = "of one layout, and --search has many;" if search else "of --search; add it, or"
        raise ValueError(f"--{name.replace('_', '-')} is {why} leave it out")


def _checked(question: Question, ddp: DataParallel) -> tuple[str | None, list[float]]:
    """The sweep in parts; raise ValueError where words contradict each other."""
    parameter, values = sweep_of(question.sweep)
    if parameter == "nodes" and (question.ranks is not None or split(question.cluster)[1] is not None):
        raise ValueError("a sweep of nodes counts for itself; leave -g and the cluster's own count out")
    if parameter and (said := question.disturbances.said()):
        raise ValueError(f"{said}: what disturbs a step is of one, not of a sweep; leave one of them out")
    bucketing = ddp.bucketing
    if parameter == "bucket-cap-mb" and (bucketing.bucket_cap_mb is not None or bucketing.bucket_cap_mb_list):
        said = "--bucket-cap-mb-list" if bucketing.bucket_cap_mb_list else "--bucket-cap-mb"
        raise ValueError(f"{said} and a sweep of bucket-cap-mb; leave one of them out")
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
    together = work.batch * passes * lcm(*(found.ranks for found in libraries))
    together = together if global_batch is None else global_batch
    shares = [share_of(together, found.ranks, passes) for found in libraries]
    alone = what.costs_on(libraries[0]).alone
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


def _draw(
    parameter: str | None, values: list[float], rows: list[Outcome], best: float | None, plot: Path
) -> None:
    from ringside.pictures.training import draw_sweep, draw_timelines

    steps = [row.step for row in rows]
    if parameter:
        draw_sweep(parameter, values, steps, best, plot)
    else:
        draw_timelines({f"{steps[0].workload} on {steps[0].ranks} ranks": steps[0]}, plot)
