"""``ringside program --cluster``: how long jobs take on a cluster, and what their ranks wait for."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringside import console
from ringside.commands.program_check import told
from ringside.commands.program_source import Asked, exported, print_exported, schedules_of
from ringside.pictures.style import check_format
from sim.calibration import find_calibration
from sim.formats.program_files import check_export, write
from sim.libraries.find import find_library
from sim.program.check import PROVED, check
from sim.program.jobs import Job, placed, simulate
from sim.program.libraries import Libraries
from sim.program.roles import roles
from sim.program.timeline import ProgramTimeline
from topologies import parse_settings
from topologies.disk import check_outputs, write_file
from topologies.units import format_duration

MOST_ROWS = 64
"""Ranks that a table shows; JSON has them all."""

MOST_LETTERS = 60
"""Of the name of a group, which may list its ranks."""

HEADS = (
    *(("rank", ""), ("ends", "(ms)"), ("compute", "(ms)"), ("comm", "(ms)"), ("exposed", "(ms)")),
    *(("waiting", "(ms)"), ("alike", "")),
)


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
    fold: bool,
    plot: Path | None,
    trace: Path | None,
    export: Path | None,
    as_json: bool,
) -> None:
    """Record, prove, simulate and print."""
    check_format(plot)
    check_outputs((plot, trace), [*(str(job.file) for job in jobs), cluster])
    check_export(export, (*(str(job.file) for job in jobs), cluster))
    if (plot or trace or export) and len(jobs) > 1:
        raise ValueError(
            "a picture, a trace or an export is of one job; ask for one, or leave --plot, --trace, "
            "--export out"
        )
    hosts = placed(placement, [job.ranks for job in jobs])
    figures, found_calibration = parse_settings(settings), find_calibration(calibration, cluster)
    count = max(map(max, hosts)) + 1
    if library == "nccl" and (len(jobs) > 1 or placement != ["packed"]):
        # by itself NCCL spreads the ranks of a job over all machines
        count = max(count, find_library("nccl", cluster, figures, calibration=found_calibration).ranks)
    libraries = Libraries(library, cluster, figures, count, network, found_calibration)
    made = []
    for one, own in zip(jobs, hosts, strict=True):
        program = one.program(libraries.rules, eager=eager)
        verdict = check(program)
        if verdict.verdict != PROVED:
            told(one, libraries.rules, verdict, as_json=as_json)
        made.append(Job(program, own, roles(program) if fold else None))
    with console.simulating("simulating", len(made) if len(made) == 1 else len(made) + 1) as bar:
        found = simulate(made, libraries)
        bar.done("simulated")
        alone = [found[0].makespan_s] if len(made) == 1 else []
        for single in made if len(made) > 1 else ():
            alone += [simulate([single], libraries)[0].makespan_s]
            bar.done(f"simulated {single.program.name} alone")
    lost = write(made[0].program, export, schedules_of(libraries, hosts[0])) if export else []
    if plot:
        from ringside.pictures.program import draw_program

        draw_program(found[0], plot)
    if trace:
        write_file(trace, found[0].dumps())
    inputs = {
        "jobs": [{"file": str(job.file), "ranks": job.ranks} for job in jobs], "library": library,
        "cluster": cluster, "settings": settings, "placement": placement, "network": network,
        "calibration": calibration, "fold": fold,
    }  # fmt: skip
    if as_json:
        notes = [job.notes for job in jobs]
        contents = [_content(*one) for one in zip(found, hosts, alone, notes, strict=True)]
        first = contents[0] if len(contents) == 1 else {"jobs": contents}
        makespan = max(one.makespan_s for one in found)
        told_of = {"inputs": inputs, "verdict": PROVED, "makespan_s": makespan, **first}
        console.print_json("program", told_of | exported(export, lost))
        return
    where = " ".join([cluster, *settings])
    for job, outcome, own, by_itself in zip(jobs, found, hosts, alone, strict=True):
        _print(job, outcome, own, by_itself, f"{library} on {where}", several=len(jobs) > 1)
    print_exported(export, lost)


def _content(
    found: ProgramTimeline, hosts: tuple[int, ...], alone: float, notes: Sequence[str]
) -> dict[str, Any]:
    return {
        "name": found.name,
        "makespan_s": found.makespan_s,
        "slowdown": found.makespan_s / alone if alone else 1.0,
        "assumes": [*found.assumes, *notes],
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
    job: Asked, found: ProgramTimeline, hosts: tuple[int, ...], alone: float, where: str, *, several: bool
) -> None:
    slower = f", {found.makespan_s / alone:.4g} times as long as alone" if several and alone else ""
    comments = [
        f"{job.file} on {found.ranks} ranks of {where}: {format_duration(found.makespan_s, 4)}{slower}",
        *found.assumes,
        *job.notes,
    ]
    if several:
        comments.append(f"on ranks {' '.join(map(str, hosts[:16]))}{' ...' * (len(hosts) > 16)}")
    for one in found.groups[:MOST_ROWS]:
        busy = format_duration(one.busy_s, 4)
        comments.append(f"group {_short(one.group.name)}: {one.operations} operations, busy {busy}")
    shown = list(found.times)[:MOST_ROWS]
    if len(shown) < len(found.times):
        comments.append(f"ranks after {shown[-1]} are in the JSON")
    console.print_table(comments, HEADS, [_row(found, rank) for rank in shown])


def _short(name: str) -> str:
    return name if len(name) <= MOST_LETTERS else f"{name[:MOST_LETTERS]} ..."


def _row(found: ProgramTimeline, rank: int) -> list[console.Cell]:
    return [rank, *(f"{seconds * 1e3:.4f}" for seconds in found.times[rank]), found.stands_for[rank]]
