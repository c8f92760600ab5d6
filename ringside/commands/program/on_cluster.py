"""``ringside program --cluster``: how long jobs take on a cluster, and what their ranks wait for."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ringside import console
from ringside.commands.program.check import told
from ringside.commands.program.source import Asked, exported, print_exported, schedules_of
from ringside.pictures.style import check_format
from ringside.sim.calibration import find_calibration
from ringside.sim.disturbance import Disturbance, Draw
from ringside.sim.disturbance.networks import libraries_under
from ringside.sim.formats.program_files import check_export, write
from ringside.sim.libraries.find import LIBRARIES, find_library
from ringside.sim.program import Program
from ringside.sim.program.jobs import PlacedProgram, placed, play, simulate
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.proof.check import PROVED, check
from ringside.sim.program.roles import roles
from ringside.sim.program.simulate import Simulation
from ringside.sim.program.timeline import ProgramTimeline
from ringside.sim.questions.disturbances import Disturbances
from ringside.sim.questions.disturbed_time import DisturbedTime, draw_programs
from ringside.topologies import parse_settings
from ringside.topologies.catalogue import split
from ringside.topologies.disk import check_outputs, write_file
from ringside.topologies.fabrics.refitting import parted
from ringside.topologies.load import counts
from ringside.topologies.placement import EVEN, NUMBERED, PACKED, SPREADS, placement_told
from ringside.topologies.units import format_duration

MOST_ROWS = 64
"""The maximum of ranks in a table; JSON has them all."""

MOST_LETTERS = 60
"""The maximum length of a group's name, which may list its ranks."""

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
    disturbances: Disturbances,
) -> None:
    """Record, prove, simulate and print."""
    disturbance = disturbances.disturbance
    files = [*(str(job.file) for job in jobs), cluster]
    check_format(plot)
    check_outputs((plot, trace), files)
    check_export(export, tuple(files))
    if len(jobs) > 1:
        _check_many(disturbances, drawn=bool(plot or trace or export))
    placement = placement or [EVEN if len(jobs) == 1 else PACKED]
    spread = placement[0] if len(jobs) == len(placement) == 1 and placement[0] in SPREADS else None
    hosts = placed([PACKED] if spread else placement, [job.ranks for job in jobs])
    libraries = _libraries(library, cluster, settings, max(map(max, hosts)) + 1, network, calibration, spread)
    made = [
        PlacedProgram(program, own, roles(program) if fold else None)
        for program, own in zip(_proved(jobs, libraries, eager=eager, as_json=as_json), hosts, strict=True)
    ]
    timelines, alone = _simulated(made, libraries)
    disturbed = None
    if disturbance:
        disturbed = _disturbed(disturbances, disturbance, made[0], libraries, timelines[0].makespan_s)
        if plot:
            from ringside.pictures.jobs.disturbance import draw_disturbed

            draw_disturbed(f"{timelines[0].name} on {timelines[0].ranks} ranks, disturbed", disturbed, plot)
        if trace and disturbed.typical:
            write_file(trace, disturbed.typical.dumps())
    else:
        _draw(timelines[0], plot, trace)
    lost = write(made[0].program, export, schedules_of(libraries, hosts[0])) if export else []
    shown = [_numbers(libraries)] if spread == EVEN else hosts
    answers = list(zip(jobs, timelines, shown, alone, strict=True))
    if not as_json:
        where = f"{library} on {' '.join([cluster, *settings])}"
        if spread:
            console.print_comments(placement_told(jobs[0].ranks, spread, libraries.placed))
        for answer in answers:
            _print(*answer, where, several=len(jobs) > 1)
        if disturbed:
            console.print_comments(disturbed.lines())
        print_exported(export, lost)
        return
    inputs = {
        "jobs": [{"file": str(job.file), "ranks": job.ranks} for job in jobs], "library": library,
        "cluster": cluster, "settings": settings, "placement": placement, "network": network,
        "calibration": calibration, "fold": fold,
    }  # fmt: skip
    contents = [_content(*answer) for answer in answers]
    first = contents[0] if len(contents) == 1 else {"jobs": contents}
    makespan = max(one.makespan_s for one in timelines)
    content = {"inputs": inputs, "verdict": PROVED, "makespan_s": makespan, **first}
    content |= {"disturbed": disturbed.content()} if disturbed else {}
    console.print_json("program", content | exported(export, lost))


def _check_many(disturbances: Disturbances, *, drawn: bool) -> None:
    """Raise ValueError for options that apply to one job only."""
    if drawn:
        raise ValueError(
            "a picture, trace or export shows one job; write one, or remove --plot, --trace and --export"
        )
    if disturbances.disturbance:
        raise ValueError(
            f"{disturbances.disturbed_by}: a disturbance applies to one job; write one, or remove it"
        )


def _libraries(
    library: str, cluster: str, settings: list[str], count: int, network: str, calibration: str,
    spread: str | None,
) -> Libraries:  # fmt: skip
    """Return the library on ``count`` ranks placed by ``spread``, or on the cluster's ranks."""
    figures, fits = parse_settings(settings), find_calibration(calibration, cluster)
    if spread is None and library in LIBRARIES and LIBRARIES[library].by_machines:
        count = max(count, find_library(library, cluster, figures, calibration=fits).ranks)
    return Libraries(library, cluster, figures, count, network, fits, spread or NUMBERED)


def _numbers(libraries: Libraries) -> tuple[int, ...]:
    """Return the cluster's numbers of a job's ranks that are spread over its machines."""
    name, _ = split(libraries.cluster)
    if len(libraries.placed) == 1 or counts(name) != "nodes":
        return tuple(range(libraries.ranks))
    alone = parted(libraries.values)[2]  # one machine is on no fabric
    room = find_library(libraries.name, f"{name}:1", alone, calibration=None).ranks
    return tuple(
        machine * room + rank for machine, share in enumerate(libraries.placed) for rank in range(share)
    )


def _proved(jobs: list[Asked], libraries: Libraries, *, eager: bool, as_json: bool) -> Iterator[Program]:
    """Yield the programs of all jobs; print the first that does not end, and exit."""
    for one in jobs:
        program = one.program(libraries.rules, eager=eager)
        verdict = check(program)
        if verdict.verdict != PROVED:
            told(one, libraries.rules, verdict, as_json=as_json)
        yield program


def _simulated(made: list[PlacedProgram], libraries: Libraries) -> tuple[list[ProgramTimeline], list[float]]:
    """Simulate all jobs together, and return also the time of each alone, seconds."""
    with console.simulating("simulating", len(made) if len(made) == 1 else len(made) + 1) as bar:
        timelines = simulate(made, libraries)
        bar.done("simulated")
        alone = [timelines[0].makespan_s] if len(made) == 1 else []
        for single in made if len(made) > 1 else ():
            alone += [simulate([single], libraries)[0].makespan_s]
            bar.done(f"simulated {single.program.name} alone")
    return timelines, alone


def _disturbed(
    question: Disturbances,
    disturbance: Disturbance,
    job: PlacedProgram,
    libraries: Libraries,
    undisturbed_s: float,
) -> DisturbedTime:
    """Play the draws of a job, with all of its ranks."""
    there = libraries_under(libraries, disturbance)

    def once(draw: Draw) -> Simulation:
        (simulation,) = play(
            [PlacedProgram(draw.program(job.program), job.hosts)], there, late=disturbance.late
        )
        return simulation

    disturbance.check_ranks(job.program.ranks)
    with console.simulating("drawing") as bar:
        return draw_programs(question, once, undisturbed_s, bar.done)


def _draw(timeline: ProgramTimeline, plot: Path | None, trace: Path | None) -> None:
    """Draw an undisturbed job, and write its trace."""
    if plot:
        from ringside.pictures.jobs.program import draw_program

        draw_program(timeline, plot)
    if trace:
        write_file(trace, timeline.dumps())


def _content(job: Asked, timeline: ProgramTimeline, hosts: tuple[int, ...], alone: float) -> dict[str, Any]:
    return {
        "name": timeline.name,
        "makespan_s": timeline.makespan_s,
        "slowdown": timeline.makespan_s / alone if alone else 1.0,
        "assumes": [*timeline.assumes, *job.notes],
        "ranks": [
            {"rank": rank, "host": hosts[rank], "stands_for": timeline.stands_for[rank], **times._asdict()}
            for rank, times in timeline.times.items()
        ],
        "groups": [
            {
                "name": one.group.name,
                "ranks": list(one.group.ranks),
                "operations": one.operations,
                "busy_s": one.busy_s,
            }
            for one in timeline.groups
        ],
    }


def _print(
    job: Asked, timeline: ProgramTimeline, hosts: tuple[int, ...], alone: float, where: str, *, several: bool
) -> None:
    slower = f", {timeline.makespan_s / alone:.4g} times its time alone" if several and alone else ""
    comments = [
        f"{job.file} on {timeline.ranks} ranks of {where}: {format_duration(timeline.makespan_s, 4)}{slower}",
        *timeline.assumes,
        *job.notes,
    ]
    if several:
        comments.append(f"on ranks {' '.join(map(str, hosts[:16]))}{' ...' * (len(hosts) > 16)}")
    for one in timeline.groups[:MOST_ROWS]:
        busy = format_duration(one.busy_s, 4)
        comments.append(f"group {_short(one.group.name)}: {one.operations} operations, busy {busy}")
    shown = list(timeline.times)[:MOST_ROWS]
    if len(shown) < len(timeline.times):
        comments.append(f"ranks after {shown[-1]} are in the JSON")
    console.print_table(comments, HEADS, [_row(timeline, rank) for rank in shown])


def _short(name: str) -> str:
    return name if len(name) <= MOST_LETTERS else f"{name[:MOST_LETTERS]} ..."


def _row(timeline: ProgramTimeline, rank: int) -> list[console.Cell]:
    return [rank, *(f"{seconds * 1e3:.4f}" for seconds in timeline.times[rank]), timeline.stands_for[rank]]
