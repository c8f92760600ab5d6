"""The long job that ``ringside goodput`` is asked about: a published one, one's own, or a changed one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ringside.sim.goodput.job import DAY_S, Cause, Checkpoints, LongJob, causes_of_mtbf
from ringside.sim.goodput.published import TYPICAL, Published, published
from ringside.sim.goodput.words import parse_causes
from ringside.topologies.units import parse_duration

WORK_S = 30 * DAY_S
_BLANK = LongJob(nodes=1, causes=(), work_s=WORK_S, checkpoints=Checkpoints(write_s=0.0), restart=TYPICAL)
GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodputRequest:
    """What was written on the command line, in its words; what was not is None."""

    name: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    failures: tuple[str, ...] = ()
    mtbf: str | None = None
    work: str | None = None
    checkpoint: str | None = None
    persist: str | None = None
    detect: str | None = None
    timeout: str | None = None
    restart: str | None = None
    load: str | None = None
    repair: str | None = None
    spares: int | None = None
    replica: int | None = None


def job_of(request: GoodputRequest) -> LongJob:
    """The published job with what was written in place of its own, or the job that was written."""
    known = published(request.name) if request.name is not None else None
    if known is None:
        _check_complete(request)
    old = known.job if known else _BLANK
    sized = replace(
        old,
        nodes=old.nodes if request.nodes is None else request.nodes,
        spares=old.spares if request.spares is None else request.spares,
        replica_nodes=old.replica_nodes if request.replica is None else request.replica,
    )
    saving = _seconds({"write_s": request.checkpoint, "persist_s": request.persist})
    starting = _seconds(
        {
            "detect_s": request.detect, "timeout_s": request.timeout, "start_s": request.restart,
            "load_s": request.load, "repair_s": request.repair,
        }
    )  # fmt: skip
    if request.restart is not None:
        starting |= {"stop_s": 0.0, "rendezvous_s": 0.0}  # they are in it
    return replace(
        sized,
        causes=_causes(request, sized, known),
        checkpoints=replace(old.checkpoints, **saving),
        restart=replace(old.restart, **starting),
        work_s=old.work_s if request.work is None else parse_duration(request.work),
    )


def _check_complete(request: GoodputRequest) -> None:
    """Refuse a job of one's own of which something lacks."""
    if request.nodes is None:
        raise ValueError("how many nodes? write --nodes 128, or the name of a published training")
    if request.mtbf is None and not request.failures:
        raise ValueError("how often does it fail? write --failures 6.5/1000node-days, or --mtbf 8h")
    if request.checkpoint is None:
        raise ValueError("how long does a checkpoint stop training? write for example --checkpoint 30s")


def _causes(request: GoodputRequest, job: LongJob, known: Published | None) -> tuple[Cause, ...]:
    gpus = request.gpus_per_node
    if gpus is None:
        gpus = known.gpus_per_node if known else GPUS_PER_NODE
    if not 1 <= gpus <= 1024:
        raise ValueError(f"--gpus-per-node {gpus}; write 1 to 1024")
    if request.mtbf is not None and request.failures:
        raise ValueError("--mtbf and --failures both say how often it fails; leave one of them out")
    if request.mtbf is not None:
        return causes_of_mtbf(parse_duration(request.mtbf), job.nodes)
    return parse_causes(request.failures, job.nodes, gpus) if request.failures else job.causes


def _seconds(texts: Mapping[str, str | None]) -> dict[str, float]:
    """What was written, as seconds."""
    return {name: parse_duration(text) for name, text in texts.items() if text is not None}
