"""``ringside measure``: run a collective for real and keep every record measured."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options
from ringside.commands.measure import options as words
from ringside.commands.measure import train_options as layout
from ringside.real.backends import BACKENDS, ON_GPU, ON_SOCKETS, UNDER_TORCHRUN
from ringside.real.collective.emulated import measure_emulated
from ringside.real.collective.measure import DTYPES, Measurement, check_room, measure, warnings
from ringside.real.ddp import job as ddp_job
from ringside.real.launch.torchrun import WorldSpec
from ringside.real.training.job import MODELS
from ringside.sim.collective import KINDS, kind_of
from ringside.sim.questions.buckets import caps_of, hook_of
from ringside.sim.record import Record, RecordError, add, read_lines, to_fields, write
from ringside.sim.training.ddp.buckets import Bucketing
from ringside.topologies import Topology, load, parse_settings, ranks
from ringside.topologies.disk import check_outputs, is_stream
from ringside.topologies.names import one_of
from ringside.topologies.units import format_size

Backend = Annotated[
    str,
    typer.Option(metavar=options.choices(BACKENDS), help="Gloo on CPUs, NCCL on GPUs, MPI under mpirun."),
]

DdpBackend = Annotated[
    str, typer.Option(metavar=options.choices(UNDER_TORCHRUN), help="Gloo on CPUs, NCCL on GPUs.")
]
DdpHook = Annotated[
    str | None,
    typer.Option(
        metavar="HOOK",
        show_default=ddp_job.HOOKS[0],
        help=f"One of {', '.join(ddp_job.HOOKS)}; powersgd:rank=4,start=10.",
    ),
]

OTHERS = ("ddp", "train", "elastic")
"""Other measurements, each a command of its own."""


def command(
    context: typer.Context,
    collective: Annotated[
        str,
        typer.Argument(
            autocompletion=lambda: [*KINDS, *OTHERS],
            help=f"One of {', '.join(KINDS)}. Commands with options of their own: "
            f"{', '.join(f'measure {name}' for name in OTHERS)}.",
        ),
    ],
    output: Annotated[Path, typer.Option("-o", metavar="FILE.jsonl", help="Append records to this file.")],
    ranks: words.Ranks = None,
    backend: Backend = "gloo",
    algorithm: Annotated[
        str, typer.Option(metavar="NAME", help="library (the backend's own), ring, tree, ..., or ping_pong.")
    ] = "library",
    begin: options.Begin = "64K",
    end: options.End = "16M",
    factor: options.Factor = 2,
    size: options.Size = None,
    iterations: Annotated[int, typer.Option("-n", "--iterations", help="Timed iterations per size.")] = 20,
    warmup: Annotated[int, typer.Option("-w", "--warmup", help="Untimed iterations per size.")] = 2,
    dtype: Annotated[
        str, typer.Option(metavar="TYPE", help=f"Element type: {', '.join(DTYPES)}.")
    ] = "float32",
    nnodes: Annotated[int, typer.Option(help="Nodes; run the same command on each.")] = 1,
    rdzv_endpoint: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Rendezvous.")] = None,
    emulate: options.Emulate = None,
    torchrun: Annotated[
        bool, typer.Option("--torchrun", help="Emulated: start a torchrun agent on every host.")
    ] = False,
    settings: options.Settings = None,
    timeout: words.Timeout = 60.0,
    force: words.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Measure a collective for real."""
    if collective in OTHERS:
        raise ValueError(
            f"{collective} is a command with its own options; write ringside measure {collective}"
        )
    console.check_sizes(context)
    run(
        _kind(collective), output, (begin, end, factor, size), per_node=ranks, nodes=nnodes,
        endpoint=rdzv_endpoint, backend=backend, algorithm=algorithm, iterations=iterations, warmup=warmup,
        dtype=dtype, timeout_s=timeout, emulate=emulate, settings=settings or [], torchrun=torchrun,
        force=force, as_json=json,
    )  # fmt: skip


def ddp(
    output: words.Output,
    model: Annotated[
        str,
        typer.Option(
            metavar="sleeping|FILE.py:NAME|FILE",
            help="Your module, or a workload's YAML, whose layers sleep for their compute time.",
        ),
    ] = "sleeping",
    ranks: words.Ranks = None,
    backend: DdpBackend = "gloo",
    iterations: words.Steps = 20,
    bucket_cap_mb: options.BucketCap = None,
    bucket_cap_mb_list: options.BucketCaps = None,
    comm_hook: DdpHook = None,
    gradient_as_bucket_view: options.BucketView = False,
    find_unused_parameters: options.UnusedParameters = False,
    static_graph: options.StaticGraph = False,
    workers: Annotated[int, typer.Option(help="Collectives that Gloo runs concurrently.")] = 2,
    emulate: options.Emulate = None,
    settings: options.Settings = None,
    timeout: words.Timeout = 60.0,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the median step.")] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Write its Perfetto trace.")] = None,
    force: words.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Measure steps of DistributedDataParallel, with a model or with sleeping layers."""
    from ringside.commands.measure import ddp as measure_ddp

    hook, powersgd = hook_of(comm_hook)
    caps = caps_of(bucket_cap_mb_list)
    job = ddp_job.DdpJob(
        bucketing=Bucketing(bucket_cap_mb, find_unused_parameters, static_graph, bucket_cap_mb_list=caps),
        comm_hook=hook or "allreduce", powersgd=powersgd, backend=backend,
        gradient_as_bucket_view=gradient_as_bucket_view, workers=1 if backend in ON_GPU else workers,
        iterations=iterations, timeout_s=timeout,
    )  # fmt: skip
    measure_ddp.run(
        model, output, job, ranks=ranks, emulate=emulate, settings=settings, plot=plot, trace=trace,
        force=force, as_json=json,
    )  # fmt: skip


def train(
    output: words.Output,
    model: Annotated[
        str, typer.Option(metavar=f"{'|'.join(MODELS)}[:KEY=VALUE,...]", help="For example decoder:layers=4.")
    ] = "sleeping",
    ranks: words.Ranks = None,
    iterations: words.Steps = 20,
    strategy: layout.Strategy = None,
    ep: layout.Experts = None,
    shard: layout.Shard = None,
    tp: layout.Tensor = 1,
    cp: layout.Context = 1,
    cp_method: layout.ContextMethod = None,
    pp: layout.Pipeline = 1,
    schedule: layout.Schedule = None,
    virtual: layout.Virtual = None,
    micro_batches: layout.MicroBatches = None,
    keep_gathered: layout.KeepGathered = False,
    no_sync: layout.NoSync = False,
    sequence_parallel: layout.SequenceParallel = False,
    param_dtype: layout.ParamDtype = "float32",
    reduce_dtype: layout.ReduceDtype = "float32",
    emulate: options.Emulate = None,
    settings: options.Settings = None,
    timeout: words.Timeout = 60.0,
    force: words.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Measure steps of FSDP2, pipelines, tensor, context and expert parallelism."""
    from ringside.commands.measure import train as measure_train

    layout_options = {
        "model": model, "strategy": strategy, "shard": shard, "tp": tp, "pp": pp, "ep": ep,
        "cp": cp, "cp_method": cp_method,
        "schedule": schedule, "virtual": virtual, "micro_batches": micro_batches,
        "reshard": not keep_gathered, "no_sync": no_sync, "sequence_parallel": sequence_parallel,
        "param_dtype": param_dtype, "reduce_dtype": reduce_dtype,
        "iterations": iterations, "timeout_s": timeout,
    }  # fmt: skip
    measure_train.run(
        output, layout_options, ranks=ranks, emulate=emulate, settings=settings, force=force, as_json=json
    )


def elastic(
    output: Annotated[Path, typer.Option("-o", metavar="FILE.jsonl", help="Append runs to this file.")],
    ranks: Annotated[int, typer.Option("-g", "--ranks", help="Ranks on this node.")] = 2,
    steps: Annotated[int, typer.Option(help="Steps of a run.")] = 200,
    step: Annotated[str, typer.Option(metavar="DURATION", help="Compute time of a step.")] = "100ms",
    interval: Annotated[
        str, typer.Option(metavar="STEPS,...", help="Steps between checkpoints; one run for each.")
    ] = "2,5,10,20,40",
    checkpoint: Annotated[str, typer.Option(metavar="SIZE", help="Size of a checkpoint.")] = "64MiB",
    kills: Annotated[int, typer.Option(help="Ranks to kill in a run.")] = 2,
    seed: Annotated[int, typer.Option(help="Random seed of the kills.")] = 0,
    timeout: words.Timeout = 60.0,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw goodput over intervals.")] = None,
    force: words.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Kill ranks of a real job; compare its goodput with the prediction."""
    from ringside.commands.measure import elastic as measure_elastic

    measure_elastic.run(
        output, intervals=interval, steps=steps, step=step, checkpoint=checkpoint, kills=kills, seed=seed,
        ranks=ranks, timeout_s=timeout, plot=plot, as_json=json, force=force,
    )  # fmt: skip


def _kind(text: str) -> str:
    try:
        return kind_of(text)
    except ValueError:
        known = (*KINDS, *OTHERS)
        raise ValueError(f"unknown measurement {text!r}; write {one_of(known, text)}") from None


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
    as_json: bool = False,
) -> None:
    """Measure each size, append each record to the output at once, print them all."""
    check_outputs([output], inputs=[emulate] if emulate else [])
    if settings and not emulate:
        raise ValueError("--set changes the figures of an emulated network; add --emulate star:4")
    if torchrun and not emulate:
        raise ValueError("without --emulate torchrun starts the ranks anyway; remove --torchrun")
    graph = load(emulate, parse_settings(settings), ranks=per_node) if emulate else None
    if graph and (nodes > 1 or endpoint or backend not in ON_SOCKETS):
        raise ValueError("an emulated network runs on this machine, over Gloo; remove --nnodes and --backend")
    alone = 2 if graph is None else len(ranks(graph))
    what = Measurement(
        collective=collective,
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
        print("ringside: latency= is ignored: an emulated network has this machine's", file=sys.stderr)
    for warning in () if graph else warnings(what):
        print(f"ringside: {warning}", file=sys.stderr)
    carry_out(what, graph, output, torchrun=torchrun, as_json=as_json)


def carry_out(
    what: Measurement, graph: "Topology | None", output: Path, *, torchrun: bool, as_json: bool = False
) -> None:
    """Measure under torchrun, or on ``graph`` emulated; append each record to the file at once.

    A device or a pipe gets all of them at the end.
    """
    grows = not is_stream(output)
    if grows and output.exists():
        _check_records(output)
    fresh: list[Record] = []
    with console.progress("starting", len(what.sizes)) as bar:

        def keep(record: Record) -> None:
            fresh.append(record)
            if grows:
                add(record, output)
            bar.done(f"measured {format_size(record.nbytes)}")

        try:
            if graph:
                measure_emulated(graph, what, keep, torchrun=torchrun)
            else:
                measure(what, keep)
        finally:
            if fresh:
                _print(fresh, output, as_json=as_json)
            if fresh and not grows:
                write(fresh, output)
    if not fresh and as_json:
        console.print_json("measure", {"output": str(output), "rows": []})
    elif not fresh:
        note = f"rank 0 runs on another node, which writes the records; {output} is unchanged"
        console.print_comments([note])


def _check_records(path: Path) -> None:
    """Raise RecordError for a file without records."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise RecordError(f"{path} is binary and contains no records; write another name after -o") from None
    read_lines(text, str(path))


def _print(records: list[Record], output: Path, *, as_json: bool) -> None:
    if as_json:
        rows = [to_fields(record) for record in records]
        console.print_json("measure", {"output": str(output), "rows": rows})
        return
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
    cells = [
        (
            *(r.nbytes, r.time_s * 1e6, r.min_s * 1e6, r.p95_s * 1e6, r.max_s * 1e6),
            *(r.algbw / 1e9, r.busbw / 1e9, r.spread * 100),
        )
        for r in records
    ]
    console.print_table(comments, heads, cells)
