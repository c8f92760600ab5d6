"""What ``ringside simulate`` is asked, and what of it could not be shown or written."""

from collections.abc import Sized
from dataclasses import dataclass, field
from pathlib import Path

from ringside.disturbed import DisturbanceWords
from ringside.pictures.style import check_format
from ringside.sim.formats.schedule_files import check_format as check_format_of
from ringside.splits import splits_file
from ringside.topologies.catalogue import split
from ringside.topologies.disk import check_outputs as check_files
from ringside.topologies.placement import EVEN


@dataclass(frozen=True, slots=True)
class SimulateRequest:
    """What was asked for, in the words of the command line."""

    collective: str
    cluster: str
    nodes: str | None
    settings: tuple[str, ...]
    sweep: tuple[str, str, int, str | None]
    ranks: int | None
    library: str | None
    algorithm: str
    protocol: str
    engine: str
    network: str
    nccl_version: str | None
    nccl_graph: Path | None
    dtype: str
    redop: str
    calibration: str
    anchor: Path | None
    times: str | None
    trace: Path | None
    timeline: Path | None
    links: bool
    top: int
    plot: Path | None
    export: Path | None
    splits: str | None = None
    placement: str = EVEN
    disturbances: DisturbanceWords = field(default_factory=DisturbanceWords)


def check_outputs(request: SimulateRequest, sizes: list[int], clusters: Sized) -> None:
    """Refuse, before any work, what could not be shown or written."""
    outputs = [request.trace, request.timeline, request.plot, request.export]
    if any(outputs):
        splits = splits_file(request.splits) if request.splits else None
        inputs = [
            request.collective,
            split(request.cluster)[0],
            request.calibration,
            request.nccl_graph or "",
            request.anchor or "",
            splits or "",
        ]
        check_format_of(request.export)
        check_files(outputs, inputs=inputs)
        check_format(request.plot)
        check_format(request.timeline)
    said = request.disturbances.said()
    if said and (request.trace or request.timeline or request.links):
        raise ValueError(
            f"{said}: --trace, --timeline and --links show what nothing disturbs; leave one or the other out"
        )
    if request.timeline and request.engine in ("model", "fast"):
        raise ValueError(
            f"--timeline {request.timeline} draws messages, which engine {request.engine} does not keep; "
            "write --engine simpy"
        )
    for option, is_given in (
        (said, said),
        ("a trace", request.trace),
        ("--timeline", request.timeline),
        ("--links", request.links),
        ("--export", request.export),
    ):
        if is_given and len(sizes) > 1:
            raise ValueError(f"{option} shows one size, not {len(sizes)}; add --size")
        if is_given and request.nodes:
            raise ValueError(
                f"{option} shows one cluster; write its count as --cluster NAME:COUNT, not --nodes"
            )
    if request.plot and not (request.links or said) and len(sizes) * len(clusters) == 1:
        raise ValueError(
            f"--plot {request.plot} draws a curve, and one size on one cluster is a point; "
            "add --links, or several sizes, or --nodes 1,2,4"
        )
