"""Published long trainings: their failures by cause, and their known checkpoints and restarts.

Figures missing from a publication are assumed, and listed in ``assumed``.
"""

from dataclasses import dataclass

from ringside.sim.goodput.job import DAY_S, Cause, Checkpoints, LongJob, Restart
from ringside.topologies.names import one_of

_MINUTE_S = 60.0
_HOUR_S = 3600.0

TYPICAL = Restart(
    detect_s=2 * _MINUTE_S, stop_s=30.0, rendezvous_s=30.0, start_s=7 * _MINUTE_S, load_s=_MINUTE_S
)
"""Eleven minutes in all, where no publication says it: MegaScale (arXiv:2402.15627) diagnoses within ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A job, the source of its figures, the assumptions, and its reported goodput."""

    name: str
    title: str
    job: LongJob
    gpus_per_node: int
    reported: str
    source: str
    assumed: str


_LLAMA_DAYS, _LLAMA_NODES = 54, 2048
_LLAMA = {
    "Faulty GPU": 148,
    "GPU HBM3 memory": 72,
    "Software bug": 54,
    "Planned": 47,
    "Network switch or cable": 35,
    "Host maintenance": 32,
    "GPU SRAM memory": 19,
    "GPU system processor": 17,
    "NIC": 7,
    "NCCL watchdog time-out": 7,
    "Silent data corruption": 6,
    "GPU thermal interface or sensor": 6,
    "SSD": 3,
    "Power supply": 3,
    "Server chassis": 2,
    "IO expansion board": 2,
    "Dependency": 2,
    "CPU": 2,
    "System memory": 2,
}
_NODE_STAYS = {
    "Software bug", "Planned", "Dependency", "NCCL watchdog time-out", "Network switch or cable"
}  # fmt: skip


def _llama() -> Published:
    node_s = _LLAMA_DAYS * DAY_S * _LLAMA_NODES
    causes = tuple(
        Cause(name, count / node_s, "watchdog" in name, name not in _NODE_STAYS)
        for name, count in _LLAMA.items()
    )
    save_s = 405e9 * 14 / 2e12
    return Published(
        name="llama3-405b",
        title="Llama 3 405B, 54 days of pre-training",
        job=LongJob(
            nodes=_LLAMA_NODES, causes=causes, work_s=_LLAMA_DAYS * DAY_S, spares=64,
            checkpoints=Checkpoints(write_s=save_s),
            restart=Restart(
                detect_s=_MINUTE_S, stop_s=30.0, rendezvous_s=30.0, start_s=7 * _MINUTE_S, load_s=save_s
            ),
        ),
        gpus_per_node=8,
        reported="effective training time above 90 %",
        source="arXiv:2407.21783, table 5: 419 unexpected interruptions, and 47 planned ones",
        assumed="14 bytes per parameter, written and read at the paper's 2 TB/s of sustained storage; nine "
        "minutes from failure to loading; 64 spare nodes; planned interruptions lose work as failures do",
    )  # fmt: skip


def _cluster(name: str, nodes: int, per_1000_node_days: float, whole: str) -> Published:
    return Published(
        name=name,
        title=f"{name.upper()} of Meta: a job of {nodes * 8:,} A100 on {whole}",
        job=LongJob(
            nodes=nodes, causes=(Cause("any", per_1000_node_days / 1000 / DAY_S, loses_node=True),),
            work_s=30 * DAY_S, checkpoints=Checkpoints(write_s=_MINUTE_S), restart=TYPICAL,
            spares=nodes // 32,
        ),
        gpus_per_node=8,
        reported="",
        source=f"arXiv:2410.21680: {per_1000_node_days} failures in 1000 node-days",
        assumed="30 days of work, 1 min per checkpoint, 11 min per restart, one spare node per 32",
    )  # fmt: skip


def _opt() -> Published:
    nodes = 124
    return Published(
        name="opt-175b",
        title="OPT-175B, 992 A100",
        job=LongJob(
            nodes=nodes, causes=(Cause("any", 1 / (7.5 * _HOUR_S) / nodes, loses_node=True),),
            work_s=33 * DAY_S,
            checkpoints=Checkpoints(write_s=5 * _MINUTE_S),
            restart=Restart(
                detect_s=30 * _MINUTE_S, stop_s=30.0, rendezvous_s=30.0, start_s=59 * _MINUTE_S,
                load_s=5 * _MINUTE_S, repair_s=2 * DAY_S,
            ), spares=16,
        ),
        gpus_per_node=8,
        reported="59 % of the time",
        source="glennklockwood.com/garden/job-reliability: an interruption every 7.5 h, up 59 % of the time",
        assumed="33 days of work; restarts by hand: half an hour to notice, an hour to find the node and "
        "start again; five minutes per checkpoint",
    )  # fmt: skip


def _bloom() -> Published:
    nodes = 48
    return Published(
        name="bloom-176b",
        title="BLOOM 176B, 384 A100",
        job=LongJob(
            nodes=nodes, causes=(Cause("GPU", 1.5 / (7 * DAY_S) / nodes, loses_node=True),),
            work_s=105 * DAY_S,
            checkpoints=Checkpoints(write_s=40.0),
            restart=Restart(
                detect_s=30 * _MINUTE_S, stop_s=30.0, rendezvous_s=30.0, start_s=14 * _MINUTE_S,
                load_s=_MINUTE_S, repair_s=3 * DAY_S,
            ), spares=4,
        ),
        gpus_per_node=8,
        reported="",
        source="BigScience's chronicles and the blog post The Technology Behind BLOOM Training: one or two "
        "GPUs a week, four spare nodes, 2.3 TB in 40 s, a checkpoint every three hours",
        assumed="105 days of work; half an hour to notice and fifteen minutes to start again",
    )  # fmt: skip


PUBLISHED = {
    one.name: one
    for one in (
        _llama(),
        _cluster("rsc-1", 512, 6.50, "16,000 GPUs"),
        _cluster("rsc-2", 128, 2.34, "8,000 GPUs"),
        _opt(),
        _bloom(),
    )
}
"""Published trainings, by name."""


def published(name: str) -> Published:
    """Return the training of that name."""
    if name not in PUBLISHED:
        raise ValueError(f"{name!r} is not a published training; write {one_of(PUBLISHED, name)}")
    return PUBLISHED[name]
