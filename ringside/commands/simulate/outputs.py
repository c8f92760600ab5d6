"""Files that ``ringside simulate`` writes, and checks of the requested outputs."""

from dataclasses import dataclass
from pathlib import Path

from ringside.sim.formats.schedule_files import ScheduleFile, write
from ringside.sim.formats.schedule_files import check_format as check_format_of
from ringside.sim.libraries.library import Library, Prediction
from ringside.sim.questions.collective_time import CollectiveTime, CollectiveTimes, splits_file
from ringside.topologies.catalogue import split
from ringside.topologies.disk import check_outputs, write_file
from ringside.topologies.units import format_duration, format_size

_TIMES = {"measured": "measured", "model": "closed-form"}
"""Names in pictures for the times of engines that do not simulate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """Files to write, and whether links are printed."""

    trace: Path | None
    timeline: Path | None
    plot: Path | None
    export: Path | None
    links: bool

    def check(self, question: CollectiveTime) -> None:
        """Raise ValueError, before any work, for outputs that are not possible."""
        files = [self.trace, self.timeline, self.plot, self.export]
        if any(files):
            inputs = [split(question.cluster)[0], question.calibration, question.nccl_graph]
            inputs += [question.anchor.path] if question.anchor else []
            inputs += [splits_file(question.splits)] if question.splits else []
            inputs += [question.collective.path] if isinstance(question.collective, ScheduleFile) else []
            check_format_of(self.export)
            check_outputs(files, inputs=[str(one) for one in inputs if one])
        if question.disturbance and (self.trace or self.timeline or self.links):
            raise ValueError(
                f"{question.disturbed_by}: --trace, --timeline and --links show undisturbed runs; "
                "remove one of them"
            )
        if self.timeline and question.engine in ("model", "fast"):
            raise ValueError(
                f"--timeline {self.timeline} draws messages, which engine {question.engine} does not keep; "
                "write --engine simpy"
            )
        self._check_one(question)

    def _check_one(self, question: CollectiveTime) -> None:
        """Raise ValueError for several sizes or clusters if an output shows only one."""
        sizes = 1 if question.splits else len(question.sizes)
        for option, is_given in (
            ("a trace", self.trace),
            ("--timeline", self.timeline),
            ("--links", self.links),
            ("--export", self.export),
        ):
            if is_given and sizes > 1:
                raise ValueError(f"{option} shows one size, not {sizes}; add --size")
            if is_given and question.nodes:
                raise ValueError(
                    f"{option} shows one cluster; write its count as --cluster NAME:COUNT, not --nodes"
                )
        if self.plot and not (self.links or question.disturbance) and sizes * len(question.nodes or "1") == 1:
            raise ValueError(
                f"--plot {self.plot} draws a curve, but one size on one cluster is a point; add "
                "--links, or several sizes, or --nodes 1,2,4"
            )

    def write(self, answer: CollectiveTimes) -> list[str]:
        """Write the files of the first prediction; return the export's losses, a sentence each."""
        library, prediction = answer.first.library, answer.first.predictions[0]
        lost = []
        if self.timeline:
            _draw_timeline(library, answer.question.cluster, prediction, self.timeline)
        if self.export:
            candidate = library.choose(prediction.collective)
            plan = library.schedule(prediction.collective, candidate)
            lost = write(plan, self.export, candidate.protocol)
        if self.trace and prediction.timeline:
            write_file(self.trace, prediction.timeline.dumps())
        return lost


def _draw_timeline(library: Library, cluster: str, prediction: Prediction, path: Path) -> None:
    """Draw the events of one prediction; notes below the title give the time not drawn."""
    from ringside.pictures.collectives.timeline import draw_timeline

    timeline, collective = prediction.timeline, prediction.collective
    assert timeline is not None  # every traced prediction has one
    size = format_size(collective.nbytes)
    title = f"{prediction.algorithm} {collective.kind} of {size} on {cluster}, {library.name}"
    title += f": {format_duration(prediction.time_s, 4)}"
    notes = []
    if prediction.channels > 1:
        notes.append(f"the slowest of {prediction.channels} channels, each on separate links")
    outside = prediction.time_s - max((sent.delivered for sent in timeline.transfers), default=0.0)
    if outside > 1e-6 * prediction.time_s:
        notes.append(f"{format_duration(outside, 3)} before the first byte or after the last are not drawn")
    draw_timeline(timeline, title, notes, path)


def draw_answer(answer: CollectiveTimes, path: Path) -> None:
    """Draw times and bus bandwidths against nodes, or against sizes of one cluster."""
    from ringside.pictures.collectives.curves import Point, draw_curves

    points = [
        Point(count, one.collective, one.time_s, (one.time_lo_s, one.time_hi_s), one.algorithm)
        for count, predicted in answer.by_nodes.items()
        for one in predicted.predictions
    ]
    engines = {one.engine for one in answer.predictions}
    times = " and ".join(sorted({_TIMES.get(engine, "simulated") for engine in engines}))
    question, library = answer.question, answer.first.library.name
    draw_curves(points, f"{question.kind} on {question.cluster}: {library}, {times} times", path)
