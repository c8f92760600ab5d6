"""A long training job: what fails, how it is noticed, what a restart takes, when it saves itself."""

import math
from dataclasses import dataclass, field

DAY_S = 86_400.0

MOST_NODES = 1_000_000
"""More are a slip of the pen."""

LEAST_S = 1e-6
"""Of work, of an interval, between two failures: nothing is shorter."""

WATCHDOG_S = 600.0
"""After which a collective that hangs is given up: PyTorch's default with NCCL."""

LAST_CALL_S = 30.0
"""How long a rendezvous that has enough nodes, but not all, waits for more: torchrun's default."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why the job stops.

    ``per_node_s`` is how often it strikes, in failures a second and node. ``hangs`` says that no process
    ends, so that only a collective's time-out tells; ``loses_node`` that the node is gone until repaired.
    """

    name: str
    per_node_s: float
    hangs: bool = False
    loses_node: bool = False

    def __post_init__(self) -> None:
        _check(self.per_node_s, f"failures of {self.name!r} a node and second", "write a rate of 0 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """What passes from a failure until training goes on, in seconds, as torchrun has it.

    A failure is noticed (``detect_s``, or ``timeout_s`` where the job hangs), all other ranks are stopped,
    nodes meet again (``rendezvous_s``), all ranks start anew from the script's beginning (``start_s``:
    processes, imports, communicators, compilation) and read the checkpoint (``load_s``). A rendezvous with
    fewer nodes than there could be takes ``last_call_s`` more. ``repair_s`` is how long a lost node is away.
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
            words = name.removesuffix("_s").replace("_", " ")
            _check(getattr(self, name), f"{words} of a restart", "write a duration, such as 5min")

    def noticed_s(self, cause: Cause) -> float:
        """From the failure until somebody knows of it."""
        return self.timeout_s if cause.hangs else self.detect_s

    def whole_s(self, cause: Cause) -> float:
        """From the failure until training goes on, where every node is there."""
        return self.noticed_s(cause) + self.stop_s + self.rendezvous_s + self.start_s + self.load_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """How the job saves itself: training stands still for ``write_s`` each time.

    With ``persist_s`` the checkpoint is asynchronous: it is written beside training, and a restart can use it
    only so many seconds after training went on.
    """

    write_s: float
    persist_s: float = 0.0

    def __post_init__(self) -> None:
        _check(self.write_s, "time that training stands still for a checkpoint", "write such as 30s")
        _check(self.persist_s, "time to persist a checkpoint", "write such as 2min")


@dataclass(frozen=True, slots=True, kw_only=True)
class LongJob:
    """``work_s`` seconds of training, were it never disturbed, on ``nodes`` nodes.

    ``spares`` are further nodes that stand ready. Where a node is missing and none is spare, the job waits
    for the repair; with ``replica_nodes`` it goes on with the whole model replicas that are left, of so many
    nodes each, and everybody restarts once more when a replica is whole again.
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
        """Failures a second of the whole job."""
        return self.nodes * sum(cause.per_node_s for cause in self.causes)

    @property
    def mtbf_s(self) -> float:
        """Mean time between failures of the whole job; infinite where nothing fails."""
        return 1 / self.rate if self.rate else math.inf

    @property
    def shares(self) -> tuple[float, ...]:
        """Of each cause the share of failures."""
        whole = sum(cause.per_node_s for cause in self.causes)
        return tuple(cause.per_node_s / whole for cause in self.causes) if whole else ()

    @property
    def restart_s(self) -> float:
        """A restart from the failure until training goes on, in the mean over causes."""
        pairs = zip(self.shares, self.causes, strict=False)
        return sum(share * self.restart.whole_s(cause) for share, cause in pairs)

    def check_interval(self, interval_s: float) -> float:
        """The interval; refused where no job can save itself so often."""
        least = max(LEAST_S, self.checkpoints.persist_s - self.checkpoints.write_s)
        if not least <= interval_s <= 1e9:
            raise ValueError(
                f"a checkpoint every {interval_s:g} s; write from {least:g} s, when the one before is "
                "persisted, to 1e9 s"
            )
        return interval_s


def causes_of_mtbf(mtbf_s: float, nodes: int, name: str = "failure") -> tuple[Cause, ...]:
    """One cause, which stops a job of so many nodes every ``mtbf_s`` seconds in the mean."""
    _check(mtbf_s, "mean time between failures", "write a duration above 0, such as 3h", least=LEAST_S)
    return (Cause(name, 1 / mtbf_s / nodes),)


def _check(value: float, what: str, advice: str, least: float = 0.0) -> None:
    if not least <= value <= 1e9:
        raise ValueError(f"{what}: {value:g}; {advice}")
