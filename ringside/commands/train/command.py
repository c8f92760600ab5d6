"""``ringside train``: a data-parallel training step, what it hides and what stays exposed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from math import lcm
from pathlib import Path
from typing import Any

import typer

from ringside import console, options
from ringside.anchor import calibration_of
from ringside.commands.train import options as words
from ringside.commands.train import parallel as train_parallel
from ringside.commands.train import search as train_search
from ringside.commands.train.answer import Answer, Outcome, unfit
from ringside.commands.train.disturbed import disturbed_step
from ringside.commands.train.parallel import ParallelAnswer
from ringside.commands.train.search import STOPPED, SearchAnswer, said_words
from ringside.commands.train.words import measured_rate, sweep_of, whole_nodes, with_tokens
from ringside.hooks import caps_of, hook_of
from ringside.pictures.style import check_format
from ringside.report.page import check_page, write_page
from ringside.searched import TOP
from ringside.sim.engine.effort import forced
from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.libraries.library import Library
from ringside.sim.questions.disturbances import Disturbances, parse_stragglers
from ringside.sim.training.ddp.buckets import Bucketing
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.training.groups import process_group
from ringside.sim.training.layout import COPIES
from ringside.sim.training.memory import find_optimizer, memory
from ringside.sim.training.pace import ALONE
from ringside.sim.training.room import room_of
from ringside.sim.training.scaling import recommended_cap, share_of
from ringside.topologies import parse_settings
from ringside.topologies.catalogue import split
from ringside.topologies.disk import check_outputs, write_file
from ringside.topologies.placement import EVEN
from ringside.topologies.units import parse_size
from ringside.validation.questions.question import Question, question
from ringside.validation.questions.trained import Trained
from ringside.validation.questions.training import Training

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
class Asked:
    """A question, and what else is asked about it: the other words of the command line."""

    question: Question
    settings: tuple[str, ...]
    calibration: str
    anchor: Path | None
    sweep: str | None
    global_batch: int | None
    reserve: int | None
    disturbances: Disturbances = field(default_factory=Disturbances)

    @property
    def read(self) -> list[str]:
        """Files that may be read."""
        return [self.question.training.model, split(self.question.cluster)[0]]

    def inputs(self, library: str, **more: str | None) -> dict[str, Any]:
        """The words as they were understood; what disturbs a step stands beside its answer."""
        asked = self.question
        found = {
            "cluster": asked.cluster, "settings": self.settings, "strategy": asked.layout.strategy,
            "ranks": asked.ranks, "placement": asked.placement, "library": library,
            "network": asked.network, "calibration": self.calibration, "anchor": self.anchor,
            "sweep": self.sweep, "global_batch": self.global_batch, "reserve": self.reserve,
            **asdict(asked.training), "device": asked.gpu.name, **more,
        }  # fmt: skip
        if LIBRARIES[library].by_machines:
            del found["network"]  # it has times of its own
        return found


def command(
    context: typer.Context,
    model: words.Model,
    cluster: options.Cluster,
    settings: options.Settings = None,
    strategy: words.Strategy = "ddp",
    tp: words.Tensor = 1,
    tp_style: words.TensorStyle = None,
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
    param_dtype: words.ParamDtype = None,
    reduce_dtype: words.ReduceDtype = None,
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
    attention: words.Attention = "fused",
    attention_efficiency: words.AttentionEfficiency = None,
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
    hook, powersgd = hook_of(comm_hook)
    caps = caps_of(bucket_cap_mb_list)
    ddp = DataParallel(
        bucketing=Bucketing(bucket_cap_mb, find_unused_parameters, static_graph, bucket_cap_mb_list=caps),
        comm_hook=hook, powersgd=powersgd, gradient_as_bucket_view=gradient_as_bucket_view,
        broadcast_buffers=not no_broadcast_buffers, accumulation=accumulation,
    )  # fmt: skip
    sized, figures = with_tokens(model, seq), parse_settings(settings or [])
    what = question(
        sized, cluster, settings=figures, library=library, ranks=ranks, network=network, placement=placement,
        calibration=calibration_of(calibration, anchor, cluster, figures),
        batch=batch, device=device, precision=precision, dtype=dtype, compute_efficiency=compute_efficiency,
        attention=attention, attention_efficiency=attention_efficiency,
        measured=measured_rate(measured, sized), optimizer=optimizer, ddp=ddp,
        spread=spread, contention=contention,
        strategy=strategy, tp=tp, tp_style=tp_style, cp=cp, cp_method=cp_method, async_tp=async_tp, pp=pp,
        shard=shard, schedule=schedule, virtual=virtual, micro_batch=micro_batch,
        checkpointing=checkpointing, sequence_parallel=sequence_parallel, clip=clip,
        overlap_grad_reduce=overlap_grad_reduce, overlap_param_gather=overlap_param_gather, no_sync=no_sync,
        param_dtype=param_dtype, reduce_dtype=reduce_dtype,
        ep=ep, ep_imbalance=ep_imbalance, capacity_factor=capacity_factor,
    )  # fmt: skip
    layout = what.words
    if not layout.is_parallel:
        # a straggler of plain data parallelism is in the answer itself, and so in every draw
        what = replace(what, training=replace(what.training, slowdown=parse_stragglers(straggler or ())))
    disturbances = Disturbances(
        straggler=(straggler or ()) if layout.is_parallel else (), slow_link=slow_link or (), jitter=jitter,
        os_noise=os_noise, late=late or (), draws=draws, seed=seed,
    )  # fmt: skip
    asked = Asked(
        question=what, settings=tuple(settings or ()), calibration=calibration, anchor=anchor, sweep=sweep,
        global_batch=global_batch, reserve=None if reserve is None else parse_size(reserve),
        disturbances=disturbances,
    )  # fmt: skip
    answer: Answer | ParallelAnswer | SearchAnswer
    _check_search(console.given(context), search=search)
    read = [model, split(cluster)[0]]
    check_page(html, [plot, trace], read)
    with forced(force):
        if search:
            _check_has_effect(console.given(context) - {"global_batch"}, strategy)
            said = said_words(layout, console.given(context))
            answer = run_search(asked, said, top, plot=plot, trace=trace)
        elif layout.is_parallel:
            _check_has_effect(console.given(context), strategy)
            answer = run_parallel(asked, plot=plot, trace=trace)
        else:
            answer = run(asked, plot=plot, trace=trace)
    if html:
        write_page(answer.page(), html, [*read, plot, trace])
    answer.print_json() if json else answer.print()
    if search and isinstance(answer, SearchAnswer) and answer.found.searched.left:
        raise typer.Exit(STOPPED)
    if must_fit and not answer.fits:
        smaller = "--global-batch" if search else "--batch"
        raise RuntimeError(f"{unfit(model, answer.verdict)}; a smaller {smaller} or another --device may fit")


def run_search(
    asked: Asked, said: Mapping[str, Any], top: int, *, plot: Path | None, trace: Path | None
) -> SearchAnswer:
    """Rank the layouts that have the words that were said."""
    _check_outputs(plot, trace, None, asked.read)
    return train_search.run(
        asked.question, said, asked.inputs(asked.question.libraries.name), global_batch=asked.global_batch,
        top=top, reserve=asked.reserve, plot=plot, trace=trace,
    )  # fmt: skip


def run_parallel(asked: Asked, *, plot: Path | None, trace: Path | None) -> ParallelAnswer:
    """Simulate one step under a layout."""
    _check_outputs(plot, trace, None, asked.read)
    what = asked.question.laid_out
    inputs = asked.inputs(what.libraries.name, precision=what.precision)
    return train_parallel.run(
        asked.question, inputs, asked.disturbances, reserve=asked.reserve, plot=plot, trace=trace
    )


def run(asked: Asked, *, plot: Path | None, trace: Path | None) -> Answer:
    """Simulate one step, or one for each value of a sweep."""
    question = asked.question
    training, cluster, ddp = question.training, question.cluster, question.training.ddp
    parameter, values = _checked(asked, ddp)
    disturbance = asked.disturbances.disturbance
    _check_outputs(plot, trace, asked.sweep, asked.read)
    counted = [f"{cluster}:{whole_nodes(value)}" for value in values] if parameter == "nodes" else [cluster]
    libraries = [question.bound(one) for one in counted]
    caps = values if parameter == "bucket-cap-mb" else [ddp.bucketing.bucket_cap_mb]
    gpu, what = question.gpu, question.trained(libraries[0])
    rows = _rows(training, what, libraries, caps, asked.global_batch)
    best = None
    if parameter == "bucket-cap-mb":
        best = recommended_cap({cap: row.step for cap, row in zip(values, rows, strict=True)})
    disturbed = None
    if disturbance:
        step = rows[0].step
        disturbed = disturbed_step(asked.disturbances, disturbance, what, libraries[0], ddp, step.step_s)
        disturbed.write(f"{step.workload} on {step.ranks} ranks, disturbed", plot, trace)
    elif plot:
        _draw(parameter, values, rows, best, plot)
    if trace and not disturbed:
        write_file(trace, rows[0].step.dumps())
    inputs = asked.inputs(libraries[0].name, precision=what.precision)
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
        room=room_of(gpu, asked.reserve),
        best_mb=best,
        disturbed=disturbed,
        uncompressed_s=before,
        swept=(parameter, values) if parameter else None,
    )


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


def _checked(asked: Asked, ddp: DataParallel) -> tuple[str | None, list[float]]:
    """The sweep in parts; raise ValueError where words contradict each other."""
    parameter, values = sweep_of(asked.sweep)
    if parameter == "nodes" and (
        asked.question.ranks is not None or split(asked.question.cluster)[1] is not None
    ):
        raise ValueError("a sweep of nodes counts for itself; leave -g and the cluster's own count out")
    if parameter and (said := asked.disturbances.disturbed_by):
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
    from ringside.pictures.jobs.training import draw_sweep, draw_timelines

    steps = [row.step for row in rows]
    if parameter:
        draw_sweep(parameter, values, steps, best, plot)
    else:
        draw_timelines({f"{steps[0].workload} on {steps[0].ranks} ranks": steps[0]}, plot)
