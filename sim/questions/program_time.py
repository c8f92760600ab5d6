"""How long jobs of collectives and messages take on a cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ringside.sim.calibration import Calibration, find_calibration
from ringside.sim.disturbance import Disturbance, Draw
from ringside.sim.disturbance.study import libraries_under
from ringside.sim.formats.program_files import holds_program
from ringside.sim.libraries.find import LIBRARIES, find_library
from ringside.sim.program.check import PROVED
from ringside.sim.program.jobs import PlacedProgram, placed, play, simulate
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.operations import Call
from ringside.sim.program.roles import roles
from ringside.sim.program.simulate import Simulation
from ringside.sim.program.timeline import ProgramTimeline
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.calibrated import calibration_option
from ringside.sim.questions.disturbances import Disturbances
from ringside.sim.questions.disturbed_time import DisturbedTime, draw_programs
from ringside.sim.questions.fields import network_option
from ringside.sim.questions.program_verdict import JobFile, OfProgram, ProgramProof, Tell, job_file, prove_job
from ringside.sim.questions.question import QuestionError, option, settings_option
from ringside.sim.schedule import Schedule
from ringside.topologies.fabrics.refitting import parted
from ringside.topologies.load import parse_name
from ringside.topologies.placement import EVEN, NUMBERED, PACKED, SPREADS, placement_notes
from ringside.topologies.units import format_count, format_duration


@dataclass(frozen=True, kw_only=True)
class ProgramTime(Disturbances, OfProgram):
    """How long one job, or several at once, take on a cluster, and what their ranks wait for.

    ``job`` names several jobs instead of ``file``. ``placement`` is one for all jobs, or one for each.
    """

    schema: ClassVar[str] = "program"

    cluster: str = option("Simulate it here. See ringside topo.", metavar="NAME[:COUNT]|FILE")
    settings: Mapping[str, str] = settings_option()
    job: Sequence[str] = option(
        "Instead of FILE.py: several jobs at once.",
        metavar="FILE.py[:RANKS]", default=(), parse=tuple, repeats=True,
    )  # fmt: skip
    placement: Sequence[str] = option(
        "Placement, or the cluster's ranks of each job: 0-3,8.",
        metavar="even|packed|interleaved|RANKS",
        default=(), default_text="even; several jobs packed", parse=tuple, repeats=True,
    )  # fmt: skip
    network: str = network_option()
    calibration: str | Calibration | None = calibration_option()
    fold: bool = option("Simulate one rank per role.", default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.file is None) == (not self.job):
            raise QuestionError("write either FILE.py or --job FILE.py for each of several jobs")
        if len(self.job) > 1 and self.disturbance:
            raise QuestionError(
                f"{self.disturbed_by}: a disturbance applies to one job; write one, or remove it"
            )

    @property
    def paths(self) -> list[Path]:
        """The files of all jobs."""
        return [self.file] if self.file else [_split(text)[0] for text in self.job]

    def ask(self, *, tell: Tell = lambda _: None) -> "ProgramTimes | ProgramProof":
        """Prove the jobs and simulate them together; return the proof of the first job that does not end.

        ``tell`` is called with progress messages.
        """
        jobs = self._jobs()
        placement = self.placement or [EVEN if len(jobs) == 1 else PACKED]
        spread = placement[0] if len(jobs) == len(placement) == 1 and placement[0] in SPREADS else None
        hosts = placed([PACKED] if spread else placement, [job.ranks for job in jobs])
        libraries = self._libraries(jobs, max(map(max, hosts)) + 1, spread)
        proofs: list[ProgramProof] = []
        for job in jobs:
            proofs.append(prove_job(job, libraries.rules, self.inputs(), eager=self.eager, tell=tell))
            if not proofs[-1].is_proved:
                return proofs[-1]
        programs = [
            PlacedProgram(proof.program, own, roles(proof.program) if self.fold else None)
            for proof, own in zip(proofs, hosts, strict=True)
        ]
        timelines = simulate(programs, libraries)
        tell("simulated")
        alone_s = [timelines[0].makespan_s] if len(programs) == 1 else []
        for one in programs if len(programs) > 1 else ():
            alone_s.append(simulate([one], libraries)[0].makespan_s)
            tell(f"simulated {one.program.name} alone")
        disturbed = None
        if self.disturbance:
            disturbed = self._disturbed(
                self.disturbance, programs[0], libraries, timelines[0].makespan_s, tell
            )
        shown = [_numbers(libraries)] if spread == EVEN else hosts
        return ProgramTimes(
            question=self,
            libraries=libraries,
            jobs=[JobTime(*one) for one in zip(jobs, programs, timelines, shown, alone_s, strict=True)],
            placement=placement,
            notes=placement_notes(jobs[0].ranks, spread, libraries.placed) if spread else [],
            disturbed=disturbed,
        )

    def _jobs(self) -> list[JobFile]:
        if self.file:
            return [job_file(self.file, self.ranks)]
        jobs = []
        for text in self.job:
            path, ranks = _split(text)
            if ranks is None and not holds_program(path):
                if self.ranks is None:
                    raise QuestionError(f"{text} needs a number of ranks; write -g N, or --job {text}:N")
                ranks = self.ranks
            jobs.append(job_file(path, ranks))
        if any(job.ranks < 1 for job in jobs):
            raise QuestionError("a job has 0 ranks; write 1 or more")
        return jobs

    def _libraries(self, jobs: Sequence[JobFile], count: int, spread: str | None) -> Libraries:
        """Return the library on ``count`` ranks placed by ``spread``, or on the cluster's ranks."""
        named = {job.library for job in jobs}
        library = self.library or (named.pop() if len(named) == 1 else "gloo")
        calibration = find_calibration(self.calibration, self.cluster)
        if spread is None and library in LIBRARIES and LIBRARIES[library].by_machines:
            whole = find_library(library, self.cluster, self.settings, calibration=calibration)
            count = max(count, whole.ranks)
        return Libraries(
            library, self.cluster, self.settings, count, self.network, calibration, spread or NUMBERED
        )

    def _disturbed(
        self,
        disturbance: Disturbance,
        job: PlacedProgram,
        libraries: Libraries,
        undisturbed_s: float,
        tell: Tell,
    ) -> DisturbedTime:
        """Play the draws of a job, with all of its ranks."""
        there = libraries_under(libraries, disturbance)

        def once(draw: Draw) -> Simulation:
            program = PlacedProgram(draw.program(job.program), job.hosts)
            (simulation,) = play([program], there, late=disturbance.late)
            return simulation

        disturbance.check_ranks(job.program.ranks)
        return draw_programs(self, once, undisturbed_s, tell)


def _split(text: str) -> tuple[Path, int | None]:
    """Parse ``FILE.py`` or ``FILE.py:RANKS``."""
    name, colon, count = text.rpartition(":")
    if colon and count.isdecimal() and not Path(text).is_file():
        return Path(name), int(count)
    return Path(text), None


def _numbers(libraries: Libraries) -> tuple[int, ...]:
    """Return the cluster's numbers of a job's ranks that are spread over its machines."""
    named = parse_name(libraries.cluster)
    if len(libraries.placed) == 1 or named.counts != "nodes":
        return tuple(range(libraries.ranks))
    alone = parted(libraries.values)[2]  # one machine is on no fabric
    room = find_library(libraries.name, f"{named.name}:1", alone, calibration=None).ranks
    return tuple(
        machine * room + rank for machine, share in enumerate(libraries.placed) for rank in range(share)
    )


@dataclass(frozen=True, slots=True)
class JobTime:
    """One job's times: each rank is on the cluster's rank in ``hosts``; ``alone_s`` is its time alone."""

    job: JobFile
    program: PlacedProgram
    timeline: ProgramTimeline
    hosts: Sequence[int]
    alone_s: float

    @property
    def row(self) -> dict[str, Any]:
        """The times in plain values, in seconds."""
        timeline = self.timeline
        return {
            "name": timeline.name,
            "makespan_s": timeline.makespan_s,
            "slowdown": timeline.makespan_s / self.alone_s if self.alone_s else 1.0,
            "assumes": [*timeline.assumes, *self.job.notes],
            "ranks": [
                {
                    "rank": rank, "host": self.hosts[rank], "stands_for": timeline.stands_for[rank],
                    **times._asdict(),
                }
                for rank, times in timeline.times.items()
            ],
            "groups": [
                {
                    "name": one.group.name, "ranks": list(one.group.ranks), "operations": one.operations,
                    "busy_s": one.busy_s,
                }
                for one in timeline.groups
            ],
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramTimes(AnswerOnDemand):
    """The answer: each job's times, together with the others; ``notes`` say where ranks are placed."""

    question: ProgramTime
    libraries: Libraries
    jobs: Sequence[JobTime]
    placement: Sequence[str]
    notes: Sequence[str]
    disturbed: DisturbedTime | None

    @property
    def headline(self) -> str:
        """The end of the last job, and of how many."""
        what = f"{len(self.jobs)} jobs" if len(self.jobs) > 1 else str(self.jobs[0].job.path)
        if self.disturbed:
            return self.disturbed.headline(what)
        ranks = sum(one.timeline.ranks for one in self.jobs)
        return (
            f"{format_duration(self.makespan_s, 4)}: {what} on {format_count(ranks, 'rank')} of "
            f"{self.libraries.name} on {self.question.cluster}, proved to end"
        )

    @property
    def grounds(self) -> str:
        """What the simulation assumes."""
        assumed = dict.fromkeys(one for job in self.jobs for one in (*job.timeline.assumes, *job.job.notes))
        return "; ".join(assumed)

    @property
    def makespan_s(self) -> float:
        """The end of the last job."""
        return max(job.timeline.makespan_s for job in self.jobs)

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood; ``jobs`` has all files and their numbers of ranks."""
        jobs = [{"file": str(one.job.path), "ranks": one.job.ranks} for one in self.jobs]
        library, placement = self.libraries.name, list(self.placement)
        return self.question.inputs() | {"jobs": jobs, "library": library, "placement": placement}

    @property
    def totals(self) -> dict[str, Any]:
        """The verdict, the end of the last job, and the disturbed time."""
        disturbed = {"disturbed": self.disturbed.content()} if self.disturbed else {}
        return {"verdict": PROVED, "makespan_s": self.makespan_s, **disturbed}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Each job in plain values."""
        return [job.row for job in self.jobs]

    def schedule_of(self, call: Call) -> Schedule:
        """Return the schedule of a collective of the first job on its ranks of the cluster."""
        hosts = self.jobs[0].program.hosts
        library = self.libraries.of(tuple(hosts[rank] for rank in call.group.ranks))
        return library.schedule(call.collective, library.choose(call.collective))
