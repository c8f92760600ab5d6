"""``ringside sweep``: one question at many points, stored as Parquet, with a summary."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringside import console, options
from ringside.report.page import Cell, Page, Table, write_page
from ringside.studies.study import read, shown_answer
from ringside.topologies.disk import check_outputs
from ringside.topologies.units import format_duration

if TYPE_CHECKING:
    from ringside.studies.folder import Folder
    from ringside.studies.inputs import Row
    from ringside.studies.study import Study
    from ringside.studies.summary import Effect, Summary

PICTURE, PAGE = "study.svg", "study.html"

MOST_ROWS = 1000
"""Maximum number of rows in the page's table; the Parquet files have all."""

NOTE = "note"
"""The column of what an answer rests on."""

EMPTY = "''"
"""An empty value, as in a shell."""

EXAMPLE = """\
# How does the time of an all-reduce depend on machines, network cards and size?
# ringside sweep FILE -o FOLDER
ask: simulate
options:
  collective: all_reduce
  cluster: dgx-h100:{nodes}
  settings: {nic: "{nic}"}
  calibration: none
grid:
  nodes: [2, 4, 8, 16]
  nic: [25GB/s, 50GB/s]
sample:
  points: 12
  seed: 1
  draws:
    size: {from: 1000000, to: 1000000000, scale: log, whole: true}
"""

HEADS = (("parameter", ""), ("least", ""), ("at", ""), ("most", ""), ("at", ""))


def command(
    study: Annotated[
        Path | None, typer.Argument(metavar="STUDY.yaml", help="A question and its points.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="A new folder, or that of this study."),
    ] = None,
    html: options.Html = None,
    workers: Annotated[
        int | None, typer.Option(min=1, show_default="one per core", help="Processes of this machine.")
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Address of a Dask cluster, tcp://HOST:PORT."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the number of points and the estimated time.")
    ] = False,
    example: Annotated[bool, typer.Option("--example", help="Print an example study.")] = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Ask one question at many points, in parallel; run it again to continue an interrupted sweep."""
    if example:
        if study or output:
            raise ValueError("--example prints a study; remove the other options")
        print(EXAMPLE, end="")
        return
    if study is None:
        raise ValueError("no study; write its file, or --example for one")
    parsed = read(study)
    if workers and scheduler:
        raise ValueError("--workers and --scheduler exclude each other; remove one of them")
    if scheduler is not None:
        from ringside.studies.run import check_address

        check_address(scheduler)
    if dry_run:
        _estimate(parsed, workers, scheduler, as_json=json)
        return
    if output is None:
        raise ValueError("the output folder is missing; write -o FOLDER, or --dry-run")
    check_outputs([html], inputs=[study])
    run(parsed, output, html, workers, scheduler, as_json=json)


def run(
    study: "Study",
    output: Path,
    html: Path | None,
    workers: int | None,
    scheduler: str | None,
    *,
    as_json: bool,
) -> None:
    """Run the missing points, then summarize all."""
    from ringside.studies.folder import opened

    with opened(output, study) as folder:
        count = _run_missing(folder, workers, scheduler)
        _report(folder, count, html, as_json=as_json)


def _run_missing(folder: "Folder", workers: int | None, scheduler: str | None) -> int:
    """Run the missing points; return their number."""
    from ringside.studies.run import run

    count, before = folder.study.count, len(folder.done())
    answered, first, begun = 0, 0, 0.0
    with console.simulating("running", count) as bar:

        def keep(rows: "Sequence[Row]") -> None:
            nonlocal answered, first, begun
            answered += len(rows)
            done = before + answered
            text = f"{done:,} of {count:,} points"
            if first:
                left = (perf_counter() - begun) / (answered - first) * (count - done)
                text += f", about {format_duration(left, 2)} left"
            else:  # the first result includes starting the processes
                first, begun = answered, perf_counter()
            bar.moved(done, text)

        run(folder, keep, workers=workers, scheduler=scheduler)
    return answered


def _report(folder: "Folder", count: int, html: Path | None, *, as_json: bool) -> None:
    from ringside.pictures.sweep import draw_study
    from ringside.studies.folder import MANIFEST
    from ringside.studies.summary import summary

    study, rows = folder.study, folder.read()
    results = summary(study, rows)
    sentences = _sentences(results, rows)
    picture = folder.path / PICTURE
    content = asdict(results) | {"asked_now": count, "inputs": study.model_dump(mode="json", by_alias=True)}
    content["folder"] = str(folder.path)
    where = f"{folder.path}: {len(folder.parts)} Parquet files"
    if folder.unwritable:
        where += f", read only: {folder.unwritable}"
    elif results.effects:
        draw_study(study, rows, results, picture)
        where += f", {PICTURE}"
    page = html or (None if folder.unwritable else folder.path / PAGE)
    if page:
        raw = [folder.path / MANIFEST, *folder.parts[:1], picture]
        write_page(_page(study, rows, results, sentences, content), page, raw)
        where += f"; {page}"
    if as_json:
        console.print_json("sweep", content)
    else:
        grid = console.TextTable(HEADS, [_cells(effect, results.target) for effect in results.effects])
        notes = [study.title, *sentences[1:]]
        refused = [one for one in sentences if one.startswith("refused")]
        console.print_answer(_headline(results), grid, rests_on=[where, *refused], notes=notes)
    if not results.answered:
        raise RuntimeError(f"no point was answered; the first error: {rows['error'].iloc[0]}")


def _page(study: "Study", rows: Any, results: "Summary", notes: list[str], raw: Mapping[str, Any]) -> Page:
    from ringside.report.study import study_figures

    some = rows.head(MOST_ROWS).dropna(axis="columns", how="all")
    columns = [name for name in some if name in ("point", *study.parameters, study.target)]
    shown = some[[*columns, *(name for name in some if name not in (*columns, NOTE))]]
    left = f", the first {MOST_ROWS:,} of {len(rows):,}" if len(rows) > MOST_ROWS else ""
    effects = Table(
        "What matters most", HEADS, [_cells(effect, results.target) for effect in results.effects]
    )
    known = shown.astype(object).where(shown.notna(), None)
    cells = [[_cell(value, name) for name, value in row.items()] for row in known.to_dict("records")]
    return Page(
        title=f"ringside {study.title}",
        headline=_headline(results),
        figures=study_figures(study, rows, results),
        tables=[
            *([effects] if results.effects else []),
            Table(f"Every point{left}", [(str(name), "") for name in shown], cells),
        ],
        notes=[*notes[1:], *(_notes(rows) if NOTE not in study.parameters else ())],
        raw=raw,
    )


def _cell(value: Any, column: str) -> Cell:
    """Return a cell of the page; seconds have their unit."""
    return shown_answer(value, column) if isinstance(value, float) and column.endswith("_s") else value


def _notes(rows: Any) -> list[str]:
    """Return the points' notes, each once, with the number of its points where they differ."""
    often = rows[NOTE].value_counts() if NOTE in rows else {}
    return [f"{note} ({count:,} points)" if len(often) > 1 else str(note) for note, count in often.items()]


def _headline(results: "Summary") -> str:
    refused = f", {results.failed:,} refused" if results.failed else ""
    answered = f"{results.answered:,} of {results.points:,} points answered{refused}"
    if not (results.effects and results.effects[0].spread > 0):
        return f"{answered}."
    first, target = results.effects[0], results.target
    least, most = (shown_answer(value, target) for value in (first.least, first.most))
    return (
        f"{first.parameter} matters most: mean {target} is {least} at {_short(first.least_at)} "
        f"and {most} at {_short(first.most_at)}; {answered}."
    )


def _sentences(results: "Summary", rows: Any) -> list[str]:
    failed = f", {results.failed:,} refused" if results.failed else ""
    sentences = [f"{results.answered:,} of {results.points:,} points answered{failed}"]
    if results.failed:
        often = rows["error"].value_counts()
        first_line = str(often.index[0]).splitlines()[0]
        sentences.append(f"refused most often: {first_line} ({often.iloc[0]:,} times)")
    for word, row in (("least", results.least), ("most", results.most)):
        if row:
            texts = {key: _said(value, key) for key, value in row.items()}
            sentences.append(f"{word}: " + ", ".join(f"{key} {text}" for key, text in texts.items()))
    return sentences


def _said(value: Any, column: str) -> str:
    return shown_answer(value, column) if isinstance(value, float) else _short(value)


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value) or EMPTY


def _estimate(study: "Study", workers: int | None, scheduler: str | None, *, as_json: bool) -> None:
    from ringside.studies.run import estimate_s, processes

    each = processes(workers, scheduler)
    seconds = estimate_s(study, each)
    if as_json:
        content = {"points": study.count, "estimate_s": seconds, "processes": each,
                   "parameters": study.parameters}  # fmt: skip
        console.print_json("sweep", content)
    else:
        who = "one process" if each == 1 else f"{each} processes"
        console.print_answer(f"{study.count:,} points, about {format_duration(seconds, 2)} with {who}")


def _cells(effect: "Effect", target: str) -> tuple[console.Cell, ...]:
    least, most = (shown_answer(value, target).replace(" ", "") for value in (effect.least, effect.most))
    return effect.parameter, least, _short(effect.least_at), most, _short(effect.most_at)
