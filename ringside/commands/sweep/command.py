"""``ringside sweep``: one command line asked at many points, kept as Parquet, and what came of it."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringside import console, options
from ringside.report.page import Page, Table, check_page, shown_number, write_page
from ringside.studies.study import read
from ringside.topologies.units import format_duration

if TYPE_CHECKING:
    from ringside.studies.asking import Row
    from ringside.studies.folder import Folder
    from ringside.studies.study import Study
    from ringside.studies.summary import Effect, Summary

PICTURE, PAGE = "study.svg", "study.html"

MOST_ROWS = 1000
"""Of the page's table; all of them are in the Parquet files."""

NO_WORDS = "''"
"""How an empty value is shown, as a shell writes it."""

EXAMPLE = """\
# How long is an all-reduce, on how many machines, with which network cards?
# ringside sweep FILE -o FOLDER
ask: >-
  simulate all_reduce --cluster dgx-h100:{nodes} --set nic={nic} --size {size}
  --calibration none
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
        Path | None, typer.Argument(metavar="STUDY.yaml", help="What is asked, at which points.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR", help="A new folder, or that of this study."),
    ] = None,
    html: options.Html = None,
    workers: Annotated[
        int | None, typer.Option(min=1, show_default="one a core", help="Processes of this machine.")
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A Dask cluster that does the work, tcp://HOST:PORT."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many points, and about how long.")
    ] = False,
    example: Annotated[
        bool, typer.Option("--example", help="Print a study that takes some seconds.")
    ] = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Run one command at many points, in parallel; run it again to continue an interrupted sweep."""
    if example:
        if study or output:
            raise ValueError("--example prints a study; leave the others out")
        print(EXAMPLE, end="")
        return
    if study is None:
        raise ValueError("no study; write its file, or --example for one")
    found = read(study)
    if workers and scheduler:
        raise ValueError("--workers are of this machine, --scheduler is another; remove one of them")
    if scheduler is not None:
        from ringside.studies.workers import check_address

        check_address(scheduler)
    if dry_run:
        _foretell(found, workers, scheduler, as_json=json)
        return
    if output is None:
        raise ValueError("nothing says where rows go; write -o and a folder, or --dry-run")
    check_page(html, read=[study])
    run(found, output, html, workers, scheduler, as_json=json)


def run(
    study: "Study",
    output: Path,
    html: Path | None,
    workers: int | None,
    scheduler: str | None,
    *,
    as_json: bool,
) -> None:
    """Ask what has not been asked yet, then say what came of all."""
    from ringside.studies.folder import opened

    with opened(output, study) as folder:
        asked = _ask(folder, workers, scheduler)
        _tell(folder, asked, html, as_json=as_json)


def _ask(folder: "Folder", workers: int | None, scheduler: str | None) -> int:
    """Ask; return how many points were asked now."""
    from ringside.studies.run import run as ask

    count, before = folder.study.count, len(folder.done())
    asked, first, begun = 0, 0, 0.0
    with console.simulating("asking", count) as bar:

        def keep(rows: "Sequence[Row]") -> None:
            nonlocal asked, first, begun
            asked += len(rows)
            done = before + asked
            told = f"{done:,} of {count:,} points"
            if first:
                left = (perf_counter() - begun) / (asked - first) * (count - done)
                told += f", about {format_duration(left, 2)} left"
            else:  # before, processes started, which says nothing of what is left
                first, begun = asked, perf_counter()
            bar.moved(done, told)

        ask(folder, keep, workers=workers, scheduler=scheduler)
    return asked


def _tell(folder: "Folder", asked: int, html: Path | None, *, as_json: bool) -> None:
    from ringside.pictures.sweep import draw_study
    from ringside.studies.folder import MANIFEST
    from ringside.studies.summary import summary

    study, rows = folder.study, folder.read()
    found = summary(study, rows)
    sentences = _sentences(found, rows)
    picture = folder.path / PICTURE
    content = asdict(found) | {"asked_now": asked, "inputs": study.model_dump(mode="json", by_alias=True)}
    content["folder"] = str(folder.path)
    where = f"{folder.path}: {len(folder.parts)} Parquet files"
    if folder.unwritable:
        where += f", only read, for nothing can be written there: {folder.unwritable}"
    elif found.effects:
        draw_study(study, rows, found, picture)
        where += f", {PICTURE}"
    page = html or (None if folder.unwritable else folder.path / PAGE)
    if page:
        raw = [folder.path / MANIFEST, *folder.parts[:1], picture]
        write_page(_page(study, rows, found, sentences, content), page, raw)
        where += f"; {page}"
    if as_json:
        console.print_json("sweep", content)
    else:
        comments = [
            study.ask,
            *sentences,
            where,
            f"mean {found.target} over each parameter, the others being what they are",
        ]
        console.print_table(comments, HEADS, [_cells(effect) for effect in found.effects])
    if not found.answered:
        raise RuntimeError(f"no point was answered; the first: {rows['error'].iloc[0]}")


def _page(study: "Study", rows: Any, found: "Summary", sentences: list[str], raw: Mapping[str, Any]) -> Page:
    from ringside.report.study import study_figures

    some = rows.head(MOST_ROWS).dropna(axis="columns", how="all")
    asked = [name for name in some if name in ("point", *study.parameters, study.target)]
    shown = some[[*asked, *(name for name in some if name not in asked)]]
    left = f", the first {MOST_ROWS:,} of {len(rows):,}" if len(rows) > MOST_ROWS else ""
    effects = Table("What matters most", HEADS, [_cells(effect) for effect in found.effects])
    cells = shown.astype(object).where(shown.notna(), None).to_numpy().tolist()
    return Page(
        title=f"ringside {study.ask}",
        headline=_headline(found),
        figures=study_figures(study, rows, found),
        tables=[
            *([effects] if found.effects else []),
            Table(f"Every point{left}", [(str(name), "") for name in shown], cells),
        ],
        told=sentences[1:],
        raw=raw,
    )


def _headline(found: "Summary") -> str:
    said = f"{found.answered:,} of {found.points:,} points answered"
    if not (found.effects and found.effects[0].spread > 0):
        return f"{said}."
    first, target = found.effects[0], found.target
    show = (lambda value: format_duration(value, 4)) if target.endswith("_s") else shown_number
    return (
        f"{first.parameter} matters most: mean {target} is {show(first.least)} at {_short(first.least_at)} "
        f"and {show(first.most)} at {_short(first.most_at)}; {said}."
    )


def _sentences(found: "Summary", rows: Any) -> list[str]:
    failed = f", {found.failed:,} refused" if found.failed else ""
    told = [f"{found.answered:,} of {found.points:,} points answered{failed}"]
    if found.failed:
        often = rows["error"].value_counts()
        told.append(f"refused most often: {str(often.index[0]).splitlines()[0]} ({often.iloc[0]:,} times)")
    for word, row in (("least", found.least), ("most", found.most)):
        if row:
            told.append(f"{word}: " + ", ".join(f"{key} {_short(value)}" for key, value in row.items()))
    if found.effects and found.effects[0].spread > 0:
        first = found.effects[0]
        _, least, least_at, most, most_at = _cells(first)
        ends = f"{least} at {least_at}, {most} at {most_at}"
        told.append(f"{first.parameter} matters most: in the mean {found.target} is {ends}")
    return told


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value) or NO_WORDS


def _foretell(study: "Study", workers: int | None, scheduler: str | None, *, as_json: bool) -> None:
    from ringside.studies.run import estimate_s, processes

    each = processes(workers, scheduler)
    seconds = estimate_s(study, each)
    if as_json:
        content = {"points": study.count, "estimate_s": seconds, "processes": each,
                   "parameters": study.parameters}  # fmt: skip
        console.print_json("sweep", content)
    else:
        who = "one process" if each == 1 else f"{each} processes"
        console.print_comments([f"{study.count:,} points, about {format_duration(seconds, 2)} with {who}"])


def _cells(effect: "Effect") -> tuple[console.Cell, ...]:
    least, most = _short(effect.least), _short(effect.most)
    return effect.parameter, least, _short(effect.least_at), most, _short(effect.most_at)
