"""``ringside measure train``: real steps of FSDP2, pipelines and tensor parallelism."""

from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ringside import console
from ringside.commands.compare import training as compare_training
from ringside.real.collective.emulated import cluster
from ringside.real.collective.measure import check_room
from ringside.real.training.job import MODELS, Experts, Model, TrainingJob
from ringside.real.training.measure import measure_training
from ringside.real.training.record import TrainingRecord
from ringside.sim.record import TRAINING_SCHEMA, schema_of
from ringside.sim.training.pipeline.schedules import find_schedule
from ringside.topologies import Topology, load, parse_settings
from ringside.topologies import ranks as ranks_of
from ringside.topologies.disk import check_outputs, held, is_stream, write_file
from ringside.topologies.units import parse_duration, shown
from ringside.validation.ddp_run import emulated_wires
from ringside.validation.training.compare import compare_training as compared


def job_of(
    ranks: int,
    model: str,
    *,
    strategy: str | None,
    shard: int | None,
    tp: int,
    cp: int,
    cp_method: str | None,
    pp: int,
    ep: int | None,
    schedule: str | None,
    virtual: int | None,
    micro_batches: int | None,
    **others: Any,
) -> TrainingJob:
    """Return the job of the options on ``ranks`` ranks; ``others`` are fields of `TrainingJob`."""
    what = model_of(model)
    _check_counts(tp=tp, cp=cp, pp=pp, shard=shard, virtual=virtual, ep=ep)
    if pp == 1 and schedule is not None:
        raise ValueError("--schedule needs a pipeline; add --pp 2, or remove it")
    if cp == 1 and cp_method is not None:
        raise ValueError("--cp-method needs context-parallel ranks; add --cp 2")
    schedule = schedule or "1f1b"
    if isinstance(what, Experts):
        if strategy not in (None, "ddp"):
            raise ValueError(f"experts train with --strategy ddp here, not {strategy}; remove it")
        return TrainingJob(
            model=what, replicate=ranks, expert=ranks if ep is None else ep, shard=shard or 1, tensor=tp,
            context=cp, pipeline=pp, schedule=schedule, virtual=virtual or 1,
            micro_batches=1 if micro_batches is None else micro_batches, **others,
        )  # fmt: skip
    if ep not in (None, 1):
        raise ValueError(f"{model} has no experts; write --model experts, or remove --ep")
    strategy = strategy or "fsdp"
    if strategy not in ("fsdp", "hsdp", "zero_redundancy"):
        raise ValueError(f"{strategy!r} is not measured here; write fsdp, hsdp or zero_redundancy")
    data, rest = divmod(ranks, tp * cp * pp)
    if rest or not data:
        context = f" times --cp {cp}" if cp > 1 else ""
        raise ValueError(
            f"{ranks} ranks do not divide by --tp {tp}{context} times --pp {pp}; write degrees that do"
        )
    own = _group(strategy, data, shard)
    usual = find_schedule(schedule).stages_a_rank or 2 if pp > 1 else 1
    return TrainingJob(
        model=what, strategy="fsdp" if strategy == "hsdp" else strategy, shard=own, replicate=data // own,
        tensor=tp, context=cp, context_method=cp_method or "zigzag", pipeline=pp, schedule=schedule,
        virtual=virtual or usual,
        micro_batches=(2 * pp if pp > 1 else 1) if micro_batches is None else micro_batches, **others,
    )  # fmt: skip


def _check_counts(**counts: int | None) -> None:
    for option, count in counts.items():
        if count is not None and count < 1:
            raise ValueError(f"--{option} {count}; write 1 or more")


def _group(strategy: str, data: int, shard: int | None) -> int:
    """Return the number of data-parallel ranks that shard the parameters together."""
    own = {"fsdp": data, "zero_redundancy": 1}.get(strategy, shard or data // 2)
    if strategy != "hsdp" and shard is not None:
        raise ValueError(f"--shard needs --strategy hsdp, not {strategy}; remove it")
    if strategy == "hsdp" and (own < 2 or data % own or own == data):
        fitting = ", ".join(str(count) for count in range(2, data) if data % count == 0)
        raise ValueError(
            f"hsdp cannot form groups of {own} of {data} data-parallel ranks; write "
            + (f"--shard {fitting}" if fitting else "--strategy fsdp, or more ranks: -g 4")
        )
    return own


def model_of(text: str) -> Model:
    """Parse a model such as ``sleeping`` or ``decoder:layers=4,hidden=128``."""
    name, _, changes = text.partition(":")
    if name not in MODELS:
        raise ValueError(f"unknown model {text!r}; write {' or '.join(MODELS)}, or decoder:layers=4")
    made = MODELS[name]()
    known = {field.name: getattr(made, field.name) for field in fields(made) if field.name != "kind"}
    given: dict[str, Any] = {}
    for change in filter(None, changes.split(",")):
        key, _, value = change.partition("=")
        if key not in known:
            raise ValueError(
                f"unknown figure {shown(change)} of {name}; write one of {', '.join(known)}, as layers=4"
            )
        if key.endswith("_s"):
            given[key] = parse_duration(value)
        elif isinstance(known[key], float):
            given[key] = _share(change, value)
        elif value.isdecimal() and 0 < int(value) <= 1 << 20:
            given[key] = int(value)
        else:
            raise ValueError(f"{shown(change)}: write a whole number from 1 to 1048576, such as {key}=4")
    return replace(made, **given)


def _share(change: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError(f"{shown(change)}: write a share from 0 to 1, such as 0.25") from None


def run(
    output: Path,
    options: dict[str, Any],
    *,
    ranks: int | None,
    emulate: str | None = None,
    settings: list[str] | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Train with the ``options`` of `job_of`; write and print the steps, compared with their program.

    The file always contains the steps so far, and no other process may write it; a device or a pipe gets
    all of them at the end.
    """
    check_outputs((output,), inputs=[emulate] if emulate else [])
    if settings and emulate is None:
        raise ValueError(f"--set {settings[0]} changes an emulated cluster; add --emulate, for example star")
    graph = load(emulate, parse_settings(settings or []), ranks=ranks) if emulate else None
    if ranks is None:
        ranks = 2 if graph is None else len(ranks_of(graph))
    job = job_of(ranks, **options)
    if not force:
        check_room(ranks, job.model.nbytes)
    grows = not is_stream(output)
    if grows and output.exists() and schema_of(output) != TRAINING_SCHEMA:
        raise ValueError(f"{output} contains no such steps; write another name after -o")
    with held(output), console.progress("starting", job.iterations) as bar:

        def keep(record: TrainingRecord) -> None:
            if grows:
                write_file(output, record.dumps())
            bar.done("steps")

        measured = _measured(job, graph, keep)
    if not grows:
        write_file(output, measured.dumps())
    _print(measured, output, as_json=as_json)


def _measured(job: TrainingJob, graph: "Topology | None", keep: Any) -> TrainingRecord:
    if graph is None:
        return measure_training(job, keep)
    with cluster(graph) as built:
        wires = emulated_wires(built, job.mesh.ranks)
        return measure_training(job, keep, cluster=built, wires=wires)


def _print(measured: TrainingRecord, output: Path, *, as_json: bool) -> None:
    count = Counter((one.kind, one.nbytes, len(one.ranks)) for rank in measured.median for one in rank.said)
    if as_json:
        counted = [
            {"kind": kind, "size_bytes": nbytes, "ranks": ranks, "times_a_step": times}
            for (kind, nbytes, ranks), times in sorted(count.items())
        ]
        inputs = {"model": measured.job.model.kind, "ranks": measured.job.mesh.ranks}
        steps = {"step_s": measured.step_s, "steps": len(measured.steps), "rows": counted}
        console.print_json("measure_train", {"inputs": inputs, "output": str(output), **steps})
        return
    comments = [
        f"{measured.job.model.kind} layers on {measured.job.mesh.ranks} ranks: "
        f"step {measured.step_s * 1e3:.1f} ms, median of {len(measured.steps)}; all steps in {output}",
        *compare_training.sentences(compared(measured)),
    ]
    heads = (("kind", ""), ("size", "(B)"), ("ranks", ""), ("count", "per step"))
    rows = [(kind, nbytes, ranks, times) for (kind, nbytes, ranks), times in sorted(count.items())]
    console.print_table(comments, heads, rows)
