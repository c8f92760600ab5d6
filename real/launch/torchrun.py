"""Start torchrun, watch it, and leave no process behind.

As a process: `elastic_launch` would load torch here, and an emulated network has an agent in every host.
"""

import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringside.real.launch.follow import (
    LAST_LINES,
    START_S,
    MeasureError,
    RankJob,
    Row,
    check_torch,
    follow,
    how,
    last_lines,
)
from ringside.real.launch.parent import die_with_parent

_ASK_S = 20.0

LOOPBACK = "127.0.0.1"
"""An address that other machines cannot reach."""

TORCHRUN = ("-m", "torch.distributed.run")

RANK = "ringside.real.launch.rank"
"""The module that torchrun starts."""

__all__ = ["Agent", "MeasureError", "Row", "WorldSpec", "local_agent", "run", "run_agents"]


@dataclass(frozen=True, slots=True)
class WorldSpec:
    """The processes of a run: ``per_node`` on each of ``nodes``, which meet at ``endpoint`` (host:port)."""

    per_node: int
    nodes: int = 1
    endpoint: str | None = None

    @property
    def ranks(self) -> int:
        """The number of processes."""
        return self.per_node * self.nodes


@dataclass(frozen=True, slots=True)
class Agent:
    """One torchrun: Python's arguments, the context in which it starts, additions to its environment."""

    arguments: Sequence[str]
    place: AbstractContextManager[None] = field(default_factory=nullcontext)
    environment: Mapping[str, str] = field(default_factory=dict)


def run(job: RankJob, world: WorldSpec, on_row: Callable[[Row], None]) -> None:
    """Carry out the job under torchrun; call ``on_row`` with each size's row as soon as it is measured.

    Raise `MeasureError` where a rank dies, hangs or gets a wrong sum, after all processes have been killed.
    """
    if world.endpoint is None:
        agent = local_agent(world.per_node)
    else:
        _check_endpoint(world)
        agent = _agent_of_several(world, world.endpoint)
    run_agents(job, [agent], on_row)


def local_agent(ranks: int, *options: str, endpoint: str = f"{LOOPBACK}:0", **more: Any) -> Agent:
    """Return an agent of ranks on this machine that listen where other machines cannot reach them.

    ``options`` are torchrun's, ``more`` is of `Agent`. A variable that sets Gloo's interface is honoured.
    """
    meeting = ["--rdzv-backend", "loopback", "--rdzv-endpoint", endpoint, "--rdzv-id", "ringside"]
    interface = os.environ.get("GLOO_SOCKET_IFNAME") or ("lo" if sys.platform == "linux" else "lo0")
    return Agent(
        [
            *["-m", "ringside.real.launch.loopback", *meeting, "--local-addr", LOOPBACK],
            *["--nproc-per-node", str(ranks), *options],
        ],
        environment={"GLOO_SOCKET_IFNAME": interface, **more.pop("environment", {})},
        **more,
    )


def run_agents(
    job: RankJob,
    agents: Sequence[Agent],
    on_row: Callable[[Row], None],
    on_log: Callable[[str], None] = lambda _: None,
) -> None:
    """Carry out the job under the agents of several nodes at once, as `run` does under one.

    ``on_log`` is called with each agent's log, when all have ended well.
    """
    check_torch()
    with tempfile.TemporaryDirectory(prefix="ringside-") as name:
        folder = Path(name)
        job_file, rows_file = folder / "job.json", folder / "rows.jsonl"
        job.write(job_file)
        rows_file.touch()
        logs = [folder / f"agent{number}" for number in range(len(agents))]
        with ExitStack() as stack:
            processes = []
            for agent, log in zip(agents, logs, strict=True):
                command = [
                    *[sys.executable, *agent.arguments],
                    *["--log-dir", str(log), "--redirects", "3"],
                    *["-m", RANK, job.worker, str(job_file), str(rows_file)],
                ]
                with agent.place:
                    process = started(command, log.with_suffix(".log"), agent.environment)
                    processes.append(stack.enter_context(process))
            complaint = watched(processes, rows_file, START_S + job.timeout_s, on_row)
        if complaint:
            outputs = [line for log in logs for line in _outputs(log)]
            raise MeasureError("\n".join([complaint, *outputs]))
        for log in logs:
            on_log(log.with_suffix(".log").read_text(encoding="utf-8", errors="replace"))


def _agent_of_several(world: WorldSpec, endpoint: str) -> Agent:
    """Return the agent of this node; nodes that meet at a loopback address are all on this machine."""
    options = ["--nnodes", str(world.nodes), "--rdzv-conf", f"join_timeout={int(START_S)}"]
    host, _, port = endpoint.rpartition(":")
    if host in (LOOPBACK, "localhost"):
        return local_agent(world.per_node, *options, endpoint=f"{LOOPBACK}:{port}")
    meeting = ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "--rdzv-id", "ringside"]
    return Agent([*TORCHRUN, *meeting, "--nproc-per-node", str(world.per_node), *options])


@contextmanager
def started(
    command: Sequence[str], log: Path, environment: Mapping[str, str]
) -> Iterator[subprocess.Popen[bytes]]:
    """Yield a process in its own session; kill it, with all that it started, at the end of the block."""
    with log.open("wb") as output:
        agent = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
            preexec_fn=die_with_parent, env={**os.environ, "PYTHONSAFEPATH": "1", **environment},
        )  # fmt: skip
    try:
        yield agent
    finally:
        agent.terminate()
        try:
            agent.wait(timeout=3)
        except subprocess.TimeoutExpired:
            agent.kill()  # the ranks follow: each dies with its parent
            agent.wait()


def watched(
    processes: Sequence["subprocess.Popen[bytes]"],
    rows: Path,
    patience_s: float,
    on_row: Callable[[Row], None],
) -> str | None:
    """Pass on rows until all processes have ended; return an error if one fails or the run stalls."""
    return follow(rows, patience_s, on_row, lambda: _ended(processes)) or _failure(processes)


def _ended(agents: Sequence["subprocess.Popen[bytes]"]) -> bool:
    """Return whether all agents have ended, or one failed; wait a moment first."""
    time.sleep(0.05)
    codes = [agent.poll() for agent in agents]
    return None not in codes or any(codes)


def _failure(agents: Sequence["subprocess.Popen[bytes]"]) -> str | None:
    codes = [agent.returncode for agent in agents if agent.returncode]
    return f"the run failed, exit code {codes[0]}" if codes else None


def _outputs(logs: Path) -> Iterator[str]:
    """Yield which rank failed, and the last lines of each rank of an agent in its last attempt."""
    report = logs.with_suffix(".log").read_text(encoding="utf-8", errors="replace")
    cause = report.partition("Root Cause")[2] or report
    failure = re.search(r"rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", cause, re.DOTALL)
    if failure:
        yield f"first to fail: rank {failure[1]} {how(int(failure[2]))}"
    elif report:
        yield from report.splitlines()[-LAST_LINES:]
    attempts = sorted(logs.glob("*/attempt_*"), key=lambda path: int(path.name.removeprefix("attempt_")))
    last = attempts[-1].glob("*/stderr.log") if attempts else ()
    for error in sorted(last, key=lambda path: int(path.parent.name)):
        yield from last_lines(error, f"local rank {error.parent.name}")


def _check_endpoint(world: WorldSpec) -> None:
    """Raise ValueError for an invalid endpoint, or one whose port is in use."""
    assert world.endpoint is not None
    host, _, port = world.endpoint.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(
            f"{world.endpoint!r} is not a rendezvous endpoint; write host:port, such as node0:29500"
        )
    try:
        with socket.create_connection((host, int(port)), timeout=2):
            pass
    except OSError:
        return
    if world.nodes == 1 or not _is_rendezvous(host, int(port)):
        raise ValueError(f"port {port} of {host} is busy; write a free one after `rdzv_endpoint` {host}:")


def _is_rendezvous(host: str, port: int) -> bool:
    """Return whether torchrun's store responds; a process tests it, as other services may never respond."""
    ask = (
        "import sys; from datetime import timedelta; from torch.distributed import TCPStore; "
        "TCPStore(sys.argv[1], int(sys.argv[2]), is_master=False, timeout=timedelta(seconds=5))"
    )
    try:
        probe = subprocess.run(
            [sys.executable, "-c", ask, host, str(port)], capture_output=True, timeout=_ASK_S, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return probe.returncode == 0
