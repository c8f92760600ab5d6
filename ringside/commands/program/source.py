"""``ringside program``: jobs from scripts and imported files, and exported files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ringside import console
from ringside.sim.effort import consider_ranks
from ringside.sim.engine.run import uncollected
from ringside.sim.formats.goal_flatten import ScheduleOf
from ringside.sim.formats.program_files import ProgramFile, holds_program, read
from ringside.sim.libraries import gloo
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.operations import Call, Program
from ringside.sim.program.record.script import program_of
from ringside.sim.schedule import Schedule

EVERY = 100
"""Ranks between two progress updates."""


class Asked(NamedTuple):
    """A script and its number of ranks, or a file with all ranks of a job."""

    file: Path
    ranks: int
    read: ProgramFile | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """How parts of the file that a program cannot express were converted."""
        return self.read.notes if self.read else ()

    def program(self, library: str, *, eager: bool) -> Program:
        """Return the job by the rules of a library."""
        if self.read is None:
            return _written_down(program_of(self.file, self.ranks, library, eager=eager))
        if eager:
            raise ValueError(f"--eager applies to scripts, and {self.file} is not one; remove it")
        return self.read.program(library)


def _written_down(program: Program) -> Program:
    """Record all ranks of a script's job; raise ValueError first if that would take too long."""
    ranks = program.ranks
    with console.simulating("recording", ranks) as bar, uncollected():
        consider_ranks(ranks, max(len(program.operations(rank)) for rank in {0, ranks // 2, ranks - 1}))
        for rank in range(ranks):
            program.operations(rank)
            if rank % EVERY == 0:
                bar.moved(rank, f"recording: rank {rank:,} of {ranks:,}")
    return program


def asked(file: Path, ranks: int | None) -> Asked:
    """Return one job, with its file's ranks or ``ranks``."""
    if holds_program(file):
        job = read(file)
        if ranks not in (None, job.ranks):
            raise ValueError(f"-g {ranks}, but {file} has {job.ranks} ranks; remove -g")
        return Asked(file, job.ranks, job)
    if ranks is None:
        raise ValueError(f"{file} needs a number of ranks; write -g N")
    return Asked(file, ranks)


def all_asked(file: Path | None, ranks: int | None, jobs: Sequence[str]) -> list[Asked]:
    """Return the jobs of a command line: one, or several from ``--job``."""
    if (file is None) == (not jobs):
        raise ValueError("write either FILE.py or --job FILE.py for each of several jobs")
    if file is not None:
        return [asked(file, ranks)]
    every = []
    for text in jobs:
        name, colon, count = text.rpartition(":")
        if colon and count.isdecimal() and not Path(text).is_file():
            every.append(asked(Path(name), int(count)))
        elif ranks is None and not holds_program(Path(text)):
            raise ValueError(f"{text} needs a number of ranks; write -g N, or --job {text}:N")
        else:
            every.append(asked(Path(text), None if holds_program(Path(text)) else ranks))
    if any(one.ranks < 1 for one in every):
        raise ValueError("a job has 0 ranks; write 1 or more")
    return every


def library_of(jobs: Sequence[Asked]) -> str:
    """Return the default library of jobs: the files' own if they agree, else Gloo."""
    libraries = {job.read.library if job.read else "gloo" for job in jobs}
    return libraries.pop() if len(libraries) == 1 else "gloo"


def by_default(call: Call) -> Schedule:
    """Return a collective's schedule without a cluster: Gloo's own."""
    if call.group.rules.on_stream:
        raise ValueError(
            f"{call.name}: {call.group.library}'s schedule depends on the machines; add --cluster NAME"
        )
    return gloo.schedule(call.collective, "auto")


def schedules_of(libraries: Libraries, hosts: Sequence[int]) -> ScheduleOf:
    """Return a function that gives a collective's schedule on these ranks of a cluster."""

    def schedule_of(call: Call) -> Schedule:
        library = libraries.of(tuple(hosts[rank] for rank in call.group.ranks))
        return library.schedule(call.collective, library.choose(call.collective))

    return schedule_of


def exported(export: Path | None, lost: Sequence[str]) -> dict[str, Any]:
    """Return the exported file and its losses for JSON."""
    return {"export": str(export), "lost": list(lost)} if export else {}


def print_exported(export: Path | None, lost: Sequence[str]) -> None:
    """Print the exported file, and its losses."""
    if export:
        console.print_comments([f"written to {export}", *lost])
