"""Files and folders that hold a program: GOAL, Chakra's traces, and recorded jobs."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ringside.sim.formats import (
    FormatError,
    bytes_of,
    chakra,
    chakra_program,
    goal,
    goal_flatten,
    text_of,
)
from ringside.sim.formats.goal_flatten import ScheduleOf
from ringside.sim.program.operations import Program
from ringside.sim.recorded.file import is_job_file, read_job
from ringside.sim.recorded.job import RecordedJob
from ringside.sim.recorded.program import Playing
from ringside.sim.recorded.sound import title
from ringside.topologies.disk import check_folder, check_outputs, write_file, write_folder

GROUPS = "comm_groups.json"
"""Beside Chakra's traces: the ranks of each ``pg_name``, as ASTRA-sim reads them."""

_TRACE = re.compile(r"(?P<stem>.*)\.(?P<rank>\d+)\.(?P<ending>et|json)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ProgramFile:
    """A program that was read; ``program`` makes it by the rules of a library, ``library`` carries it.

    ``library`` is ``ideal``, which has the links alone, where the file has messages without a library.
    """

    ranks: int
    program: Callable[[str], Program]
    notes: tuple[str, ...] = ()
    """How parts that a program lacks were converted, in sentences."""
    library: str = "gloo"


def holds_program(path: Path) -> bool:
    """Check by its name whether a file or a folder is one of those that are read here."""
    named = path.suffix == ".goal" or _TRACE.fullmatch(path.name) is not None
    return named or path.is_dir() or is_job_file(path)


def read(path: Path) -> ProgramFile:
    """Return the program in a GOAL file, in a folder of Chakra's traces, or in a trace and those beside it.

    Raise `FormatError` that says where something is wrong.
    """
    if is_job_file(path):
        return of_recorded(read_job(path))
    if path.suffix == ".goal":
        parsed = goal.loads(text_of(path), str(path))
        placed = f"{parsed.placed} nodes name a processor or a card of their rank, which is ignored"
        of_library = partial(goal.program_of, parsed, str(path))
        return ProgramFile(len(parsed.ranks), of_library, (placed,) if parsed.placed else (), "ideal")
    traces = _traces(path)
    groups = _groups(traces[0].with_name(GROUPS), len(traces))
    left, ranks = 0, []
    for trace in traces:
        if trace.suffix == ".json":
            nodes, missing = chakra.loads_json(text_of(trace), str(trace))
        else:
            nodes, missing = chakra.loads(bytes_of(trace), str(trace))
        left += missing
        ranks.append(nodes)
    stem = traces[0].name.removesuffix(f".0{traces[0].suffix}")
    _, notes = chakra_program.program_of(ranks, groups, stem, "gloo")
    if left:
        notes.append(f"{left} dependencies on nodes that are missing from the files are left out")

    def make(library: str) -> Program:
        return chakra_program.program_of(ranks, groups, stem, library)[0]

    return ProgramFile(len(ranks), make, tuple(notes))


def of_recorded(job: RecordedJob) -> ProgramFile:
    """Return a recorded job's program, whose operators take no time without a GPU that prices them."""
    notes = (f"{title(job)} as recorded; operators take no time, for which ask ringside train", *job.notes)
    return ProgramFile(job.ranks, lambda library: Playing(job, library=library).program(), notes, "nccl")


def _traces(path: Path) -> list[Path]:
    """Return the traces of all ranks, given one of them or their folder."""
    folder, named = (path, None) if path.is_dir() else (path.parent, _TRACE.fullmatch(path.name))
    if named and not path.exists():
        raise FormatError(f"{path}: no such file")
    by_job: dict[tuple[str, str], dict[int, Path]] = {}
    for file in sorted(folder.iterdir()):
        if (match := _TRACE.fullmatch(file.name)) and len(match["rank"]) < 8:
            by_job.setdefault((match["stem"], match["ending"]), {})[int(match["rank"])] = file
    if named:
        by_job = {key: files for key, files in by_job.items() if key == (named["stem"], named["ending"])}
    if not by_job:
        raise FormatError(
            f"{path}: a folder without Chakra traces, which are called NAME.RANK.et, and without dumps of "
            "the Flight Recorder"
        )
    if len(by_job) > 1:
        names = ", ".join(f"{stem}.RANK.{ending}" for stem, ending in list(by_job)[:4])
        raise FormatError(f"{path}: traces of several jobs ({names}); name one of the files")
    files = next(iter(by_job.values()))
    missing = [rank for rank in range(max(files) + 1) if rank not in files]
    if missing:
        some = ", ".join(map(str, missing[:4])) + (", ..." if len(missing) > 4 else "")
        raise FormatError(
            f"{path}: {len(files)} traces, but none of rank {some}; each rank from 0 on has one"
        )
    return [files[rank] for rank in range(len(files))]


def _groups(path: Path, ranks: int) -> dict[str, list[int]]:
    """Return the ranks of each group, if there is such a file."""
    if not path.exists():
        return {}
    text = text_of(path)
    try:
        content: Any = json.loads(text)
    except (ValueError, RecursionError):
        raise FormatError(f"{path}: not JSON") from None
    if not isinstance(content, dict):
        raise FormatError(f"{path}: not a JSON object of groups and their ranks")
    for name, members in content.items():
        sound = isinstance(members, list) and members and all(type(one) is int for one in members)
        if not sound or len(set(members)) < len(members) or not all(0 <= one < ranks for one in members):
            raise FormatError(
                f"{path}: group {name} is not a list of ranks; allowed: each of 0 to {ranks - 1} once"
            )
    return content


def check_export(path: Path | None, inputs: tuple[Path | str, ...] = ()) -> None:
    """Refuse a file or folder that a program cannot be written to, before any work."""
    if path is None:
        return
    if path.suffix == ".goal":
        check_outputs([path], inputs)
    elif path.suffix:
        raise FormatError(
            f"{path}: not a format of programs; write FILE.goal, or a new folder for Chakra's traces"
        )
    else:
        check_folder(path)


def write(program: Program, path: Path, schedule_of: ScheduleOf) -> list[str]:
    """Write a program atomically; return sentences on the information lost.

    A name without a suffix is a folder of Chakra's traces, one for each rank.
    """
    if path.suffix == ".goal":
        write_file(path, goal.dumps(goal_flatten.of_program(program, schedule_of)))
        return goal_flatten.losses(program)
    ranks, groups = chakra_program.nodes_of(program)
    name = Path(program.name).name.removesuffix(".py").removesuffix(".goal") or "program"
    files = {f"{name}.{rank}.et": chakra.dumps(nodes) for rank, nodes in enumerate(ranks)}
    if groups:
        files[GROUPS] = (json.dumps(groups) + "\n").encode()
    write_folder(path, files)
    return chakra_program.losses(program)
