"""``ringside program``: scripts and files of others that hold its jobs, and what is written for others."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ringside import console
from ringside.sim.engine.effort import consider_ranks
from ringside.sim.engine.run import uncollected
from ringside.sim.formats.goal_flatten import ScheduleOf
from ringside.sim.formats.program_files import ProgramFile, holds_program, read
from ringside.sim.libraries import gloo
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.operations import Call, Program
from ringside.sim.program.script import program_of
from ringside.sim.schedule import Schedule

EVERY = 100
"""Ranks from one sign of life to the next."""


class Asked(NamedTuple):
    """A script and how many ranks run it, or a file that holds all ranks of a job."""

    file: Path
    ranks: int
    read: ProgramFile | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What was made of parts of the file that a program does not have."""
        return self.read.notes if self.read else ()

    def program(self, library: str, *, eager: bool) -> Program:
        """The job by the rules of a library."""
        if self.read is None:
            return _written_down(program_of(self.file, self.ranks, library, eager=eager))
        if eager:
            raise ValueError(
                f"--eager is how a script's groups are made, and {self.file} is none; leave it out"
            )
        return self.read.program(library)


def _written_down(program: Program) -> Program:
    """A script's job, whose ranks have all been asked; refused beforehand where that would take too long."""
    ranks = program.ranks
    with console.simulating("writing down", ranks) as bar, uncollected():
        consider_ranks(ranks, max(len(program.operations(rank)) for rank in {0, ranks // 2, ranks - 1}))
        for rank in range(ranks):
            program.operations(rank)
            if rank % EVERY == 0:
                bar.moved(rank, f"writing down: rank {rank:,} of {ranks:,}")
    return program


def asked(file: Path, ranks: int | None) -> Asked:
    """One job, of as many ranks as its file has, or as are written."""
    if holds_program(file):
        found = read(file)
        if ranks not in (None, found.ranks):
            raise ValueError(f"-g {ranks}, but {file} has {found.ranks} ranks; leave -g out")
        return Asked(file, found.ranks, found)
    if ranks is None:
        raise ValueError(f"{file} on how many ranks? write -g N")
    return Asked(file, ranks)


def all_asked(file: Path | None, ranks: int | None, jobs: Sequence[str]) -> list[Asked]:
    """The jobs that a command line names: one, or several by ``--job``."""
    if (file is None) == (not jobs):
        raise ValueError("write either FILE.py or --job FILE.py for each of several jobs")
    if file is not None:
        return [asked(file, ranks)]
    found = []
    for text in jobs:
        name, colon, count = text.rpartition(":")
        if colon and count.isdecimal() and not Path(text).is_file():
            found.append(asked(Path(name), int(count)))
        elif ranks is None and not holds_program(Path(text)):
            raise ValueError(f"{text} on how many ranks? write -g N, or --job {text}:N")
        else:
            found.append(asked(Path(text), None if holds_program(Path(text)) else ranks))
    if any(one.ranks < 1 for one in found):
        raise ValueError("a job of 0 ranks; write 1 or more")
    return found


def library_of(jobs: Sequence[Asked]) -> str:
    """The library that carries jobs of which none is named: the files' own, where they have the same."""
    libraries = {job.read.library if job.read else "gloo" for job in jobs}
    return libraries.pop() if len(libraries) == 1 else "gloo"


def by_default(call: Call) -> Schedule:
    """By which transfers a collective is carried out where no cluster is named: Gloo's own."""
    if call.group.rules.on_stream:
        raise ValueError(
            f"{call.name}: how {call.group.library} does it depends on the machines; add --cluster NAME"
        )
    return gloo.schedule(call.collective, "auto")


def schedules_of(libraries: Libraries, hosts: Sequence[int]) -> ScheduleOf:
    """By which transfers a job's collectives are carried out on these ranks of a cluster."""

    def schedule_of(call: Call) -> Schedule:
        library = libraries.of(tuple(hosts[rank] for rank in call.group.ranks))
        return library.schedule(call.collective, library.choose(call.collective))

    return schedule_of


def exported(export: Path | None, lost: Sequence[str]) -> dict[str, Any]:
    """What was written, for JSON."""
    return {"export": str(export), "lost": list(lost)} if export else {}


def print_exported(export: Path | None, lost: Sequence[str]) -> None:
    """Say what was written, and what of it was lost."""
    if export:
        console.print_comments([f"written to {export}", *lost])
