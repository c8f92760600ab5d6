"""Measure real DistributedDataParallel steps, under torchrun or on an emulated network."""

import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median, median_low
from typing import Any

from ringside.real.ddp.job import DdpJob
from ringside.real.emulate import EmulatedNetwork
from ringside.real.launch.follow import START_S, MeasureError, Row, last_lines
from ringside.real.launch.torchrun import RANK, Agent, local_agent, started, watched
from ringside.sim.training.ddp.buckets import Bucket
from ringside.sim.training.ddp.step import Activity, Pace, Reduction, TrainingStep, busy, exposed
from ringside.sim.workload.file import dumps
from ringside.sim.workload.workload import Layer, Workload

_PORT = 29600

_ALL_REDUCES = tuple(2**power for power in range(14, 27, 2))


@dataclass(frozen=True, slots=True)
class MeasuredSteps:
    """The measurement of one job: its steps, the buckets in launch order, and the environment.

    ``workload`` is the given one or, for a model that computed, the times of its passes in the same run
    without communication. ``memory_bandwidth`` in bytes/s is that of `ringside.real.clock`; ``all_reduces``
    are bytes and seconds of the backend's own, measured alone. ``contention`` is the share of its pace that
    compute loses beside them, ``crowding`` the share that they lose beside compute. ``hook_s`` are the
    seconds of PowerSGD's own work alone, per bucket.
    """

    workload: Workload
    steps: tuple[TrainingStep, ...]
    buckets: tuple[Bucket, ...]
    memory_bandwidth: float
    all_reduces: tuple[tuple[int, float], ...]
    fingerprint: dict[str, str]
    contention: float = 0.0
    crowding: float = 0.0
    hook_s: tuple[tuple[float, ...], ...] = ()

    @property
    def median(self) -> TrainingStep:
        """The step of median length, whole, as it happened."""
        middle = median_low(step.step_s for step in self.steps)
        return next(step for step in self.steps if step.step_s == middle)


def measure_ddp(
    model: Workload | str,
    job: DdpJob,
    ranks: int,
    on_step: Callable[[MeasuredSteps], None] = lambda _: None,
    *,
    network: EmulatedNetwork | None = None,
) -> MeasuredSteps:
    """Train on ``ranks`` ranks: under torchrun, or one per host of the network.

    ``model`` is a workload, for which sleeping layers run, or `ringside.real.model.user_model`'s text; it
    replaces the job's own. ``on_step`` is called after each step with all results until then. Raise
    `ringside.real.launch.follow.MeasureError` where a rank dies or hangs.
    """
    if ranks < 2:
        raise ValueError(f"{ranks} ranks share no gradients; write 2 or more")
    if network and ranks > len(network.hosts):
        raise ValueError(f"{ranks} ranks, but the network has {len(network.hosts)} hosts; write fewer")
    if isinstance(model, Workload):
        # computing ranks leave the rest of their cores to the network, in fair shares
        job = replace(job, workload=dumps(model), model="", realtime=network is not None)
        pass_s = model.totals.forward_s + model.totals.backward_s
    else:
        job, pass_s = replace(job, model=str(Path(model).absolute())), job.timeout_s
    if not network:
        job = replace(job, all_reduces=_ALL_REDUCES)
    bare = model if isinstance(model, Workload) else _parameters_of(model)
    rows: list[Row] = []

    def keep(row: Row) -> None:
        rows.append(row)
        on_step(_measured(bare, rows, job.workers))

    with tempfile.TemporaryDirectory(prefix="ringside-") as name:
        folder = Path(name)
        file = folder / "rows.jsonl"
        file.touch()
        job.write(folder / "job.json")
        worker = ["-m", RANK, job.worker, str(folder / "job.json"), str(file)]
        outputs = ["--log-dir", str(folder / "ranks"), "--redirects", "3"]
        agents = _hosts(worker, ranks, network) if network else [local_agent(ranks, *outputs, *worker)]
        _run(agents, file, START_S + job.timeout_s + pass_s, keep)
    return _measured(bare, rows, job.workers)


def _measured(model: Workload, rows: Sequence[Row], workers: int) -> MeasuredSteps:
    first = rows[0]
    workload = profile(model, [row["ranks"] for row in rows]) if "alone" in first["ranks"][0] else model
    steps = tuple(step_of(workload, row["ranks"], workers) for row in rows)
    buckets = tuple(
        Bucket(
            members,
            sum(workload.parameters[i].nbytes for i in members),
            workload.parameters[members[0]].dtype,
        )
        for members in dict.fromkeys(tuple(b["parameters"]) for b in first["ranks"][0]["buckets"])
    )
    all_reduces = tuple((nbytes, seconds) for nbytes, seconds in first["all_reduce"])
    return MeasuredSteps(
        workload, steps, buckets, first["memory_bandwidth"], all_reduces, first["fingerprint"],
        *_losses([row["ranks"] for row in rows], dict(all_reduces)), tuple(map(tuple, first["hook"])),
    )  # fmt: skip


def _parameters_of(model: str) -> Workload:
    from ringside.real.model.architecture import parameters_of  # loads torch, for which help must not wait

    return parameters_of(model)


def profile(bare: Workload, passes: Sequence[Sequence[dict[str, Any]]]) -> Workload:
    """Return the workload with the times that every rank measured in several passes.

    A gradient's time is that of its last rank, in the median pass. Each gradient is a layer of its own; the
    whole forward pass belongs to the last one, which has no gradient.
    """
    alone = [[rank["alone"] for rank in ranks] for ranks in passes]
    forwarded, end = (
        median(max(seen[key] for seen in ranks) for ranks in alone) for key in ("forwarded", "end")
    )
    arrived = {
        int(index): median(
            max((seen["arrived"][index] for seen in ranks if index in seen["arrived"]), default=end)
            for ranks in alone
        )
        for index in {index for ranks in alone for seen in ranks for index in seen["arrived"]}
    }
    layers, before = [], forwarded
    for index in sorted(arrived, key=lambda index: arrived[index]):
        name = bare.parameters[index].name
        layers.append(Layer(name, (index,), backward_s=max(arrived[index] - before, 0.0)))
        before = max(arrived[index], before)
    layers.append(Layer("rest", forward_s=forwarded, backward_s=max(end - before, 0.0)))
    return replace(bare, layers=tuple(layers))


def _losses(rows: Sequence[Sequence[dict[str, Any]]], all_reduces: dict[int, float]) -> tuple[float, float]:
    """Return the shares of pace that compute and all-reduces lose to each other; 0 if unmeasured."""
    both = [ranks for ranks in rows if "beside" in ranks[0]]
    if not both:
        return 0.0, 0.0
    alone = median(max(rank["alone"]["end"] for rank in ranks) for ranks in both)
    beside = median(max(rank["beside"]["end"] for rank in ranks) for ranks in both)
    each = [(ranks[0]["beside"]["nbytes"], ranks[0]["beside"]["all_reduce"]) for ranks in both]
    paces = [all_reduces[nbytes] / seconds for nbytes, seconds in each if seconds]
    return max(1 - alone / beside, 0.0), max(1 - median(paces), 0.0) if paces else 0.0


def step_of(workload: Workload, everybody: Sequence[dict[str, Any]], workers: int) -> TrainingStep:
    """Return one step over all ranks: a bucket is ready, launched or finished when it is on the last rank.

    A worker's start on a bucket is not visible; it is assumed to be as soon as a worker is free.
    ``overhead_s`` is the part of the step in which the slowest rank neither computed nor waited for buckets.
    """
    zero = min(own["begin"] for own in everybody)
    paces = tuple(
        Pace(
            (rank,),
            1.0,
            tuple(Activity(begin - zero, end - zero, kind, name) for begin, end, kind, name in own["spans"]),
        )
        for rank, own in enumerate(everybody)
    )
    ends = [own["end"] - zero for own in everybody]
    slowest = paces[ends.index(max(ends))]
    buckets = _reductions(everybody, zero, workers)
    compute_s = slowest.total("forward") + slowest.total("backward")
    exposed_s = exposed(slowest.spans, buckets)
    return TrainingStep(
        workload=workload.name,
        ranks=len(everybody),
        samples=workload.batch * len(everybody),
        step_s=max(ends),
        forward_s=slowest.total("forward"),
        backward_s=slowest.total("backward"),
        optimizer_s=0.0,
        compute_s=compute_s,
        contention_s=0.0,
        copy_s=0.0,
        communication_s=busy(buckets),
        exposed_s=exposed_s,
        overhead_s=max(ends) - compute_s - exposed_s,
        buckets=tuple(buckets),
        others=(),
        paces=paces,
    )


def _reductions(everybody: Sequence[dict[str, Any]], zero: float, workers: int) -> list[Reduction]:
    runs: list[Reduction] = []
    for index, views in enumerate(zip(*(own["buckets"] for own in everybody), strict=True)):
        ready, launch, finish = (
            max(view[key] for view in views) - zero for key in ("ready", "launch", "finish")
        )
        free = sorted(run.end_s for run in runs)[-workers] if index >= workers else 0.0
        start = min(max(launch, free), finish)
        nbytes = views[0]["nbytes"]
        name = views[0].get("name", f"bucket {index}")
        runs.append(Reduction(name, "all_reduce", nbytes, ready, launch, start, finish, finish))
    return runs


def _hosts(worker: list[str], ranks: int, network: EmulatedNetwork) -> list[Agent]:
    """Return a rank in each host, with torchrun's environment: agents would need their own cores."""
    meeting = {"MASTER_ADDR": network.hosts[0].address, "MASTER_PORT": str(_PORT), "WORLD_SIZE": str(ranks)}
    return [
        Agent(
            worker,
            network.inside(rank),
            {**meeting, "RANK": str(rank), "GLOO_SOCKET_IFNAME": host.interface, "OMP_NUM_THREADS": "1"},
        )
        for rank, host in enumerate(network.hosts[:ranks])
    ]


def _run(agents: Sequence[Agent], rows: Path, patience_s: float, on_row: Callable[[Row], None]) -> None:
    """Start all agents and follow their rows; none is left running, however this ends."""
    folder = rows.parent
    logs = [folder / f"{number}.log" for number in range(len(agents))]
    with ExitStack() as stack:
        processes = []
        for agent, log in zip(agents, logs, strict=True):
            with agent.place:
                process = started([sys.executable, *agent.arguments], log, agent.environment)
                processes.append(stack.enter_context(process))
        complaint = watched(processes, rows, patience_s, on_row)
    if complaint:
        outputs = sorted(folder.glob("ranks/*/attempt_0/*/stderr.log")) or logs
        wrote = [line for rank, log in enumerate(outputs) for line in last_lines(log, f"rank {rank}")]
        raise MeasureError("\n".join([complaint, *wrote]))
