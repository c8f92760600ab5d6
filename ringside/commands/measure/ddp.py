"""``ringside measure ddp``: real DistributedDataParallel steps, with a model or with sleeping layers."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ringside import console
from ringside.pictures.style import check_format
from ringside.real.backends import ON_GPU, ON_SOCKETS
from ringside.real.collective.emulated import cluster
from ringside.real.collective.measure import check_room
from ringside.real.ddp.job import DdpJob, is_model
from ringside.real.model.user_model import build
from ringside.sim.record import DDP_SCHEMA, schema_of
from ringside.sim.training.ddp.buckets import check_used
from ringside.sim.training.ddp.record import DdpRecord, workload_of
from ringside.sim.workload.workload import Workload
from ringside.topologies import Topology, load, parse_settings
from ringside.topologies import ranks as ranks_of
from ringside.topologies.disk import check_outputs, held, is_stream, write_file
from ringside.validation.ddp_run import emulated_wires, record
from ringside.validation.emulated.training import sleeping_layers

SLEEPING = "sleeping"
"""The built-in model: 16 equal layers."""

HEADS = (
    ("bucket", ""),
    ("size", "(B)"),
    ("ready", "(ms)"),
    ("launch", "(ms)"),
    ("start", "(ms)"),
    ("finish", "(ms)"),
)


def run(
    model: str,
    output: Path,
    job: DdpJob,
    *,
    ranks: int | None,
    emulate: str | None = None,
    settings: list[str] | None = None,
    plot: Path | None = None,
    trace: Path | None = None,
    force: bool = False,
    as_json: bool = False,
) -> None:
    """Train ``model``: `SLEEPING`, a workload's file or FILE.py:NAME; write and print the measured steps.

    The file always contains the steps so far, and no other process may write it; a device or a pipe gets
    all of them at the end. ``emulate`` names the topology to emulate, by default with all of its ranks;
    without it two ranks, by default, run under torchrun on this machine.
    """
    check_format(plot)
    check_outputs((output, trace, plot), inputs=[file for file in (model, emulate) if file])
    graph = _emulated(job, emulate, settings or [], ranks)
    if ranks is None:
        ranks = 2 if graph is None else len(ranks_of(graph))
    if not force:
        check_room(ranks, 0)
    grows = not is_stream(output)
    if grows and output.exists() and schema_of(output) != DDP_SCHEMA:
        raise ValueError(f"{output} contains no steps; write another name after -o")
    with held(output), console.progress("starting", job.iterations) as bar:

        def keep(record: DdpRecord) -> None:
            if grows:
                write_file(output, record.dumps())
            bar.done("steps")

        measured = _measured(_model(model, job), job, ranks, graph, keep)
    step = measured.median
    if not grows:
        write_file(output, measured.dumps())
    if trace:
        write_file(trace, step.dumps())
    if plot:
        from ringside.pictures.jobs.training import draw_timelines

        draw_timelines({f"{step.workload} on {ranks} ranks, measured": step}, plot)
    if as_json:
        console.print_json("measure_ddp", _content(measured, output))
    else:
        _print(measured, output)


def _model(text: str, job: DdpJob) -> Workload | str:
    if is_model(text):
        build(text)
        return text
    if text != SLEEPING and not Path(text).exists():
        raise ValueError(f"{text}: no such file; write {SLEEPING}, FILE.py:NAME or a workload's YAML file")
    if job.backend in ON_GPU:
        raise ValueError("sleeping layers leave a GPU idle; write --model FILE.py:NAME with nccl")
    workload = sleeping_layers() if text == SLEEPING else workload_of(Path(text))
    if not workload.parameters:
        raise ValueError(f"{text} has no parameters, so there is nothing to reduce; write some")
    used = set(workload.arrival)
    check_used(
        [one.name for place, one in enumerate(workload.parameters) if place not in used], job.bucketing
    )
    if any(tensor.sparse for tensor in workload.parameters):
        raise ValueError(f"{text}: sleeping layers have dense gradients only; remove 'sparse'")
    return workload


def _measured(
    model: Workload | str,
    job: DdpJob,
    ranks: int,
    graph: "Topology | None",
    keep: Callable[[DdpRecord], None],
) -> DdpRecord:
    if graph is None:
        return record(model, job, ranks, on_record=keep)
    with cluster(graph) as built:
        return record(model, job, ranks, built, emulated_wires(built, ranks), keep)


def _emulated(job: DdpJob, emulate: str | None, settings: list[str], ranks: int | None) -> "Topology | None":
    """Return the topology to emulate, if any."""
    if emulate is None:
        if settings:
            raise ValueError(
                f"--set {settings[0]} changes an emulated cluster; add --emulate, for example star"
            )
        return None
    if job.backend not in ON_SOCKETS:
        raise ValueError(f"--backend {job.backend} cannot run on an emulated network; write gloo")
    return load(emulate, parse_settings(settings), ranks=ranks)


def _content(measured: DdpRecord, output: Path) -> dict[str, Any]:
    """Return the median step for JSON, a row per bucket, and the time of each step."""
    step = measured.median
    return {
        "output": str(output), "workload": step.workload, "ranks": step.ranks, "step_s": step.step_s,
        "compute_s": step.compute_s, "communication_s": step.communication_s, "exposed_s": step.exposed_s,
        "overlap_efficiency": step.overlap_efficiency, "steps_s": [one.step_s for one in measured.steps],
        "rows": [asdict(bucket) for bucket in step.buckets],
    }  # fmt: skip


def _print(measured: DdpRecord, output: Path) -> None:
    step = measured.median
    times = sorted(step.step_s * 1e3 for step in measured.steps)
    comments = [
        f"{step.workload} on {step.ranks} ranks: step {step.step_s * 1e3:.1f} ms, median of {len(times)} "
        f"from {times[0]:.1f} to {times[-1]:.1f} ms",
        f"compute {step.compute_s * 1e3:.1f} ms, communication {step.communication_s * 1e3:.1f} ms, "
        f"exposed {step.exposed_s * 1e3:.1f} ms, overlap {step.overlap_efficiency:.0%}",
        f"every gradient was checked against the exact average; all steps in {output}",
    ]
    rows: list[tuple[console.Cell, ...]] = [
        (
            *(run.name.removeprefix("bucket ").replace(" ", "_"), run.nbytes),
            *(time * 1e3 for time in (run.ready_s, run.launch_s, run.start_s, run.finish_s)),
        )
        for run in step.buckets
    ]
    console.print_table(comments, HEADS, rows)
