"""``ringside program --cluster``: how long jobs take on a cluster, and what their ranks wait for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ringside import console
from ringside.commands.program_check import told
from sim.calibration import find_calibration
from sim.program.check import PROVED, check
from sim.program.jobs import Job, placed, simulate
from sim.program.libraries import Libraries
from sim.program.script import program_of
from sim.program.timeline import ProgramTimeline
from topologies import parse_settings
from topologies.disk import check_outputs, write_file
from topologies.units import format_duration

MOST_ROWS = 64
"""Ranks that a table shows; JSON has them all."""

HEADS = (
    *(("rank", ""), ("ends", "(ms)"), ("compute", "(ms)"), ("comm", "(ms)"), ("exposed", "(ms)")),
    *(("waiting", "(ms)"), ("alike", "")),
)


class Asked(NamedTuple):
    """A script, and how many ranks run it."""

    file: Path
    ranks: int


def asked(file: Path | None, ranks: int | None, jobs: Sequence[str]) -> list[Asked]:
    """The jobs that a command line names: one, or several by ``--job``."""
    if (file is None) == (not jobs):
        raise ValueError("write either FILE.py or --job FILE.py for each of several jobs")
    found = []
    for text in [str(file)] if file is not None else jobs:
        name, colon, count = text.rpartition(":")
        if file is None and colon and count.isdecimal() and not Path(text).is_file():
            found.append(Asked(Path(name), int(count)))
        elif ranks is None:
            raise ValueError(
                f"{text} on how many ranks? write -g N" + ("" if file else f", or --job {text}:N")
            )
        else:
            found.append(Asked(Path(text), ranks))
    if any(one.ranks < 1 for one in found):
        raise ValueError("a job of 0 ranks; write 1 or more")
    return found


def run(
    jobs: list[Asked],
    library: str,
    cluster: str,
    settings: list[str],
    *,
    eager: bool,
    placement: list[str],
    network: str,
    calibration: str,
    trace: Path | None,
    as_json: bool,
) -> None:
    """Record, prove, simulate and print."""
    check_outputs((trace,), [*(str(job.file) for job in jobs), cluster])
    if trace and len(jobs) > 1:
        raise ValueError("a trace shows one job; leave --trace out, or ask for one")
    hosts = placed(placement, [job.ranks for job in jobs])
    libraries = Libraries(
        library, cluster, parse_settings(settings), max(map(max, hosts)) + 1, network,
        find_calibration(calibration, cluster),
    )  # fmt: skip
    made = []
    for one, own in zip(jobs, hosts, strict=True):
        program = program_of(one.file, one.ranks, libraries.rules, eager=eager)
        verdict = check(program)
        if verdict.verdict != PROVED:
            told(one.file, one.ranks, libraries.rules, verdict, as_json=as_json)
        made.append(Job(program, own))
    with console.simulating("simulating", len(made) if len(made) == 1 else len(made) + 1) as bar:
        found = simulate(made, libraries)
        bar.done("simulated")
        alone = [found[0].makespan_s] if len(made) == 1 else []
        for single in made if len(made) > 1 else ():
            alone += [simulate([single], libraries)[0].makespan_s]
            bar.done(f"simulated {single.program.name} alone")
    if trace:
        write_file(trace, found[0].dumps())
    inputs = {
        "jobs": [{"file": str(job.file), "ranks": job.ranks} for job in jobs], "library": library,
        "cluster": cluster, "settings": settings, "placement": placement, "network": network,
        "calibration": calibration,
    }  # fmt: skip
    if as_json:
        contents = [_content(*one) for one in zip(found, hosts, alone, strict=True)]
        first = contents[0] if len(contents) == 1 else {"jobs": contents}
        makespan = max(one.makespan_s for one in found)
        console.print_json("program", {"inputs": inputs, "verdict": PROVED, "makespan_s": makespan, **first})
        return
    where = " ".join([cluster, *settings])
    for job, outcome, own, by_itself in zip(jobs, found, hosts, alone, strict=True):
        _print(job.file, outcome, own, by_itself, f"{library} on {where}", several=len(jobs) > 1)


def _content(found: ProgramTimeline, hosts: tuple[int, ...], alone: float) -> dict[str, Any]:
    return {
        "name": found.name,
        "makespan_s": found.makespan_s,
        "slowdown": found.makespan_s / alone if alone else 1.0,
        "assumes": list(found.assumes),
        "ranks": [
            {"rank": rank, "host": hosts[rank], "stands_for": found.stands_for[rank], **times._asdict()}
            for rank, times in found.times.items()
        ],
        "groups": [
            {
                "name": one.group.name,
                "ranks": list(one.group.ranks),
                "operations": one.operations,
                "busy_s": one.busy_s,
            }
            for one in found.groups
        ],
    }


def _print(
    file: Path, found: ProgramTimeline, hosts: tuple[int, ...], alone: float, where: str, *, several: bool
) -> None:
    slower = f", {found.makespan_s / alone:.4g} times as long as alone" if several and alone else ""
    comments = [
        f"{file} on {found.ranks} ranks of {where}: {format_duration(found.makespan_s, 4)}{slower}",
        *found.assumes,
    ]
    if several:
        comments.append(f"on ranks {' '.join(map(str, hosts[:16]))}{' ...' * (len(hosts) > 16)}")
    for one in found.groups[:MOST_ROWS]:
        comments.append(
            f"group {one.group.name}: {one.operations} operations, busy {format_duration(one.busy_s, 4)}"
        )
    shown = list(found.times)[:MOST_ROWS]
    if len(shown) < len(found.times):
        comments.append(f"ranks after {shown[-1]} are in the JSON")
    console.print_table(comments, HEADS, [_row(found, rank) for rank in shown])


def _row(found: ProgramTimeline, rank: int) -> list[console.Cell]:
    return [rank, *(f"{seconds * 1e3:.4f}" for seconds in found.times[rank]), found.stands_for[rank]]
