"""``ringside program --cluster``: how long jobs take on a cluster, and what their ranks wait for."""

from pathlib import Path

from ringside import console
from ringside.sim.formats.program_files import check_export, write
from ringside.sim.program.timeline import ProgramTimeline
from ringside.sim.questions.program_time import JobTime, ProgramTime, ProgramTimes
from ringside.sim.questions.program_verdict import ProgramProof
from ringside.topologies.disk import check_outputs, write_file
from ringside.topologies.units import format_duration

MOST_ROWS = 64
"""Maximum number of ranks in a table; JSON has all."""

MOST_LETTERS = 60
"""Maximum length of a group's name, which may list its ranks."""

HEADS = (
    *(("rank", ""), ("ends", "(ms)"), ("compute", "(ms)"), ("comm", "(ms)"), ("exposed", "(ms)")),
    *(("waiting", "(ms)"), ("alike", "")),
)


def run(
    question: ProgramTime, plot: Path | None, trace: Path | None, export: Path | None, *, as_json: bool
) -> ProgramProof | None:
    """Simulate, draw, write and print; return the proof of a job that does not end."""
    files = [*map(str, question.paths), question.cluster]
    check_outputs((plot, trace), files)
    check_export(export, tuple(files))
    if len(files) > 2 and (plot or trace or export):
        raise ValueError(
            "a picture, trace or export shows one job; write one, or remove --plot, --trace and --export"
        )
    with console.simulating("simulating") as bar:
        answer = question.ask(tell=bar.done)
    if isinstance(answer, ProgramProof):
        return answer
    _draw(answer, plot, trace)
    lost = write(answer.jobs[0].program.program, export, answer.schedule_of) if export else []
    if as_json:
        rows = answer.rows
        content = {"inputs": answer.inputs, **answer.totals}
        content |= rows[0] if len(rows) == 1 else {"jobs": rows}
        content |= {"export": str(export), "lost": lost} if export else {}
        console.print_json("program", content)
        return None
    grids = [_grid(job, is_alone=len(answer.jobs) == 1) for job in answer.jobs]
    notes = [*answer.notes, *(note for job in answer.jobs for note in _notes(job))]
    notes += answer.disturbed.lines() if answer.disturbed else []
    notes += [f"written to {export}", *lost] if export else []
    console.print_answer(answer.headline, *grids, rests_on=answer.rests_on, notes=notes)
    return None


def _draw(answer: ProgramTimes, plot: Path | None, trace: Path | None) -> None:
    """Draw the job, and write its trace: of a disturbed one the typical draw."""
    timeline: ProgramTimeline | None = answer.jobs[0].timeline
    if answer.disturbed:
        if plot:
            from ringside.pictures.jobs.program import draw_disturbed

            first = answer.jobs[0].timeline
            draw_disturbed(f"{first.name} on {first.ranks} ranks, disturbed", answer.disturbed, plot)
        timeline = answer.disturbed.typical
    elif plot:
        from ringside.pictures.jobs.program import draw_program

        draw_program(answer.jobs[0].timeline, plot)
    if trace and timeline:
        write_file(trace, timeline.dumps())


def _grid(one: JobTime, *, is_alone: bool) -> console.TextTable:
    timeline, hosts = one.timeline, one.hosts
    titles = []
    if not is_alone:
        slowdown = timeline.makespan_s / one.alone_s if one.alone_s else 1.0
        titles = [
            f"{one.job.path}: {format_duration(timeline.makespan_s, 4)}, {slowdown:.4g} times its time alone",
            f"on ranks {' '.join(map(str, hosts[:16]))}{' ...' * (len(hosts) > 16)}",
        ]
    shown = list(timeline.times)[:MOST_ROWS]
    if len(shown) < len(timeline.times):
        titles.append(f"ranks after {shown[-1]} are in the JSON")
    return console.TextTable(HEADS, [_row(timeline, rank) for rank in shown], "\n".join(titles))


def _notes(one: JobTime) -> list[str]:
    """Return what a job's time assumes, and how long its groups are busy."""
    busy = [
        f"group {_short(group.group.name)}: {group.operations} operations, busy "
        f"{format_duration(group.busy_s, 4)}"
        for group in one.timeline.groups[:MOST_ROWS]
    ]
    return [*one.timeline.assumes, *one.job.notes, *busy]


def _short(name: str) -> str:
    return name if len(name) <= MOST_LETTERS else f"{name[:MOST_LETTERS]} ..."


def _row(timeline: ProgramTimeline, rank: int) -> list[console.Cell]:
    return [rank, *(f"{seconds * 1e3:.4f}" for seconds in timeline.times[rank]), timeline.stands_for[rank]]
