"""``ringside measure ddp``: real DistributedDataParallel steps of a model whose layers sleep."""

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path

from real.ddp import Measured, measure_ddp
from real.ddp_job import DdpJob
from real.emulate import Network, emulate
from ringside import console
from sim.record import check_writable, replace
from sim.training.buckets import Bucketing
from sim.training.step import Step
from sim.workload_file import read
from topologies import load, parse_settings
from validation.ddp_steps import sleeping_layers

SLEEPING = "sleeping"
"""The model that is there without a file: 16 equal layers."""

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
    *,
    ranks: int,
    bucketing: Bucketing,
    gradient_as_bucket_view: bool = False,
    workers: int = 2,
    iterations: int = 5,
    timeout_s: float = 60.0,
    cluster: str | None = None,
    settings: list[str] | None = None,
    plot: Path | None = None,
    trace: Path | None = None,
) -> None:
    """Train ``model``, `SLEEPING` or a workload's YAML file, with Gloo; write and print what was seen.

    ``cluster`` names the topology to emulate; without one ranks run under torchrun on this machine.
    """
    for file in filter(None, (output, trace)):
        check_writable(file)
    if plot:
        from ringside.pictures import check_picture

        check_picture(plot)
    workload = sleeping_layers() if model == SLEEPING else read(Path(model))
    job = DdpJob(
        bucketing=bucketing, gradient_as_bucket_view=gradient_as_bucket_view, workers=workers,
        iterations=iterations, timeout_s=timeout_s,
    )  # fmt: skip
    place: AbstractContextManager[Network | None] = nullcontext()
    if cluster:
        place = emulate(load(cluster, parse_settings(settings or []), ranks=ranks))
    elif settings:
        raise ValueError(f"--set {settings[0]} changes an emulated cluster; add --emulate, for example star")
    with place as network:
        measured = measure_ddp(workload, job, ranks, network=network)
    step = measured.median
    replace(output, _dumps(measured, job, cluster, settings))
    if trace:
        replace(trace, step.dumps())
    if plot:
        from ringside.plots_training import draw_timelines

        draw_timelines({f"{step.workload} on {ranks} ranks, measured": step}, plot)
    _print(measured, step, output)


def _dumps(measured: Measured, job: DdpJob, cluster: str | None, settings: list[str] | None) -> str:
    content = {
        "schema": "ringside.ddp/1",
        "inputs": {**asdict(job), "cluster": cluster, "settings": settings},
        "fingerprint": measured.fingerprint,
        "buckets": [asdict(bucket) for bucket in measured.buckets],
        "steps": [asdict(step) for step in measured.steps],
    }
    return json.dumps(content) + "\n"


def _print(measured: Measured, step: Step, output: Path) -> None:
    times = sorted(step.step_s * 1e3 for step in measured.steps)
    comments = [
        f"{step.workload} on {step.ranks} ranks: step {step.step_s * 1e3:.1f} ms, median of {len(times)} "
        f"from {times[0]:.1f} to {times[-1]:.1f} ms",
        f"compute {step.compute_s * 1e3:.1f} ms, communication {step.communication_s * 1e3:.1f} ms, "
        f"exposed {step.exposed_s * 1e3:.1f} ms, overlap {step.overlap_efficiency:.0%}",
        f"every gradient was checked against the exact average; all steps in {output}",
    ]
    rows = [
        (number, run.nbytes, *(time * 1e3 for time in (run.ready_s, run.launch_s, run.start_s, run.finish_s)))
        for number, run in enumerate(step.buckets)
    ]
    console.print_table(comments, HEADS, rows)
