"""A long training job: its failures, their detection, restarts and checkpoints."""

import math
from dataclasses import dataclass, field

DAY_S = 86_400.0

MOST_NODES = 1_000_000
"""Maximum number of nodes; more is treated as a typing error."""

LEAST_S = 1e-6
"""Minimum seconds of work, of an interval, and between two failures."""

WATCHDOG_S = 600.0
"""Time-out of a collective that hangs: PyTorch's default with NCCL."""

LAST_CALL_S = 30.0
"""How long a rendezvous that has enough nodes, but not all, waits for more: torchrun's default."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why the job stops.

    ``per_node_s`` is its rate, in failures per second and node. ``hangs`` says that no process ends, so that
    only a collective's time-out reveals it; ``loses_node`` that the node is gone until repaired.
    """

    name: str
    per_node_s: float
    hangs: bool = False
    loses_node: bool = False

    def __post_init__(self) -> None:
        _check(self.per_node_s, f"failures of {self.name!r} per node and second", "write a rate of 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """Times from a failure until training continues, in seconds, as in torchrun.

    A failure is noticed (``detect_s``, or ``timeout_s`` where the job hangs), all other ranks are stopped,
    nodes meet again (``rendezvous_s``), all ranks start from the script's beginning (``start_s``: processes,
    imports, communicators, compilation) and read the checkpoint (``load_s``). A rendezvous with missing nodes
    takes ``last_call_s`` more. ``repair_s`` is how long a lost node is away.
    """

    detect_s: float = 0.0
    timeout_s: float = WATCHDOG_S
    stop_s: float = 0.0
    rendezvous_s: float = 0.0
    start_s: float = 0.0
    load_s: float = 0.0
    last_call_s: float = LAST_CALL_S
    repair_s: float = DAY_S

    def __post_init__(self) -> None:
        for name in self.__slots__:
            stage = name.removesuffix("_s").replace("_", " ")
            _check(getattr(self, name), f"{stage} of a restart", "write a duration, such as 5min")

    def noticed_s(self, cause: Cause) -> float:
        """Return the time from the failure until it is noticed."""
        return self.timeout_s if cause.hangs else self.detect_s

    def whole_s(self, cause: Cause) -> float:
        """Return the time from the failure until training continues, with no node missing."""
        return self.noticed_s(cause) + self.stop_s + self.rendezvous_s + self.start_s + self.load_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Checkpoints of the job: each stops training for ``write_s``.

    With ``persist_s`` the checkpoint is asynchronous: it is written beside training, and a restart can use it
    only ``persist_s`` seconds after training continued.
    """

    write_s: float
    persist_s: float = 0.0

    def __post_init__(self) -> None:
        _check(self.write_s, "pause of training for a checkpoint", "write such as 30s")
        _check(self.persist_s, "time to persist a checkpoint", "write such as 2min")


@dataclass(frozen=True, slots=True, kw_only=True)
class LongJob:
    """``work_s`` seconds of undisturbed training on ``nodes`` nodes.

    ``spares`` are further nodes on standby. Where a node is missing and none is spare, the job waits for the
    repair; with ``replica_nodes`` it continues with the complete model replicas, of that many nodes each, and
    all ranks restart again when a replica is whole again.
    """

    nodes: int
    causes: tuple[Cause, ...]
    work_s: float
    checkpoints: Checkpoints
    restart: Restart = field(default_factory=Restart)
    spares: int = 0
    replica_nodes: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.nodes <= MOST_NODES:
            raise ValueError(f"{self.nodes} nodes; write 1 to {MOST_NODES}")
        if not 0 <= self.spares <= self.nodes:
            raise ValueError(f"{self.spares} spare nodes for {self.nodes}; write 0 to {self.nodes}")
        _check(self.work_s, "work of a job", "write a duration above 0, such as 54d", least=LEAST_S)
        if self.replica_nodes is not None and (
            not 1 <= self.replica_nodes <= self.nodes or self.nodes % self.replica_nodes
        ):
            raise ValueError(
                f"replicas of {self.replica_nodes} nodes do not make up {self.nodes} nodes; "
                f"write a number that divides {self.nodes}"
            )

    @property
    def rate(self) -> float:
        """Failures per second of the whole job."""
        return self.nodes * sum(cause.per_node_s for cause in self.causes)

    @property
    def mtbf_s(self) -> float:
        """Mean time between failures of the whole job; infinite without failures."""
        return 1 / self.rate if self.rate else math.inf

    @property
    def shares(self) -> tuple[float, ...]:
        """Each cause's share of failures."""
        whole = sum(cause.per_node_s for cause in self.causes)
        return tuple(cause.per_node_s / whole for cause in self.causes) if whole else ()

    @property
    def restart_s(self) -> float:
        """The mean over causes of a restart, from the failure until training continues."""
        pairs = zip(self.shares, self.causes, strict=False)
        return sum(share * self.restart.whole_s(cause) for share, cause in pairs)

    def check_interval(self, interval_s: float) -> float:
        """Return the interval; refuse one too short for the job's checkpoints."""
        least = max(LEAST_S, self.checkpoints.persist_s - self.checkpoints.write_s)
        if not least <= interval_s <= 1e9:
            raise ValueError(
                f"a checkpoint every {interval_s:g} s; write {least:g} s, when the previous one is "
                "persisted, to 1e9 s"
            )
        return interval_s


def causes_of_mtbf(mtbf_s: float, nodes: int, name: str = "failure") -> tuple[Cause, ...]:
    """Return one cause, which stops the whole job every ``mtbf_s`` seconds on average."""
    _check(mtbf_s, "mean time between failures", "write a duration above 0, such as 3h", least=LEAST_S)
    return (Cause(name, 1 / mtbf_s / nodes),)


def _check(value: float, what: str, advice: str, least: float = 0.0) -> None:
    if not least <= value <= 1e9:
        raise ValueError(f"{what}: {value:g}; {advice}")
