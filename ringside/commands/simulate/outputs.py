"""Files that ``ringside simulate`` writes, and what it can show."""

from dataclasses import dataclass
from pathlib import Path

from ringside.commands.simulate.timeline import draw as draw_timeline
from ringside.pictures.style import check_format
from ringside.sim.formats.schedule_files import ScheduleFile, write
from ringside.sim.formats.schedule_files import check_format as check_format_of
from ringside.sim.questions.collective_time import CollectiveTime, CollectiveTimes
from ringside.sim.questions.splits import splits_file
from ringside.topologies.catalogue import split
from ringside.topologies.disk import check_outputs, write_file


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
            check_format(self.plot)
            check_format(self.timeline)
        disturbed = question.disturbed_by
        if disturbed and (self.trace or self.timeline or self.links):
            raise ValueError(
                f"{disturbed}: --trace, --timeline and --links show undisturbed runs; remove one of them"
            )
        if self.timeline and question.engine in ("model", "fast"):
            raise ValueError(
                f"--timeline {self.timeline} draws messages, which engine {question.engine} does not keep; "
                "write --engine simpy"
            )
        self._check_one(question, disturbed)

    def _check_one(self, question: CollectiveTime, disturbed: str) -> None:
        """Raise ValueError for several sizes or clusters if an output shows only one."""
        sizes = 1 if question.splits else len(question.sizes)
        for option, is_given in (
            (disturbed, disturbed),
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
        if self.plot and not (self.links or disturbed) and sizes * len(question.nodes or "1") == 1:
            raise ValueError(
                f"--plot {self.plot} draws a curve, and one size on one cluster is a point; "
                "add --links, or several sizes, or --nodes 1,2,4"
            )

    def write(self, answer: CollectiveTimes) -> list[str]:
        """Write the files of the first prediction; return the export's losses, a sentence each."""
        library, prediction = answer.first.library, answer.first.predictions[0]
        lost = []
        if self.timeline:
            draw_timeline(library, answer.question.cluster, prediction, self.timeline)
        if self.export:
            candidate = library.choose(prediction.collective)
            plan = library.schedule(prediction.collective, candidate)
            lost = write(plan, self.export, candidate.protocol)
        if self.trace and prediction.timeline:
            write_file(self.trace, prediction.timeline.dumps())
        return lost
