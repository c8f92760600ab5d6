"""``ringside measure``: run a collective for real and store every record."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options
from ringside.options import asks
from ringside.real.questions.collective_measurement import CollectiveMeasurement, CollectiveMeasurements
from ringside.sim.record import Record, RecordError, add, read_lines, write
from ringside.topologies.disk import check_outputs, is_stream
from ringside.topologies.units import format_size


@asks(CollectiveMeasurement)
def command(
    question: CollectiveMeasurement,
    output: Annotated[Path, typer.Option("-o", metavar="FILE.jsonl", help="Append records to this file.")],
    force: options.ForceStart = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Measure a collective for real."""
    check_outputs([output], inputs=[question.emulate] if question.emulate else [])
    question.check(force=force)
    for warning in question.warnings:
        print(f"ringside: {warning}", file=sys.stderr)
    grows = not is_stream(output)
    if grows and output.exists():
        _check_records(output)
    records: list[Record] = []
    with console.progress("starting", len(question.sizes)) as bar:

        def keep(record: Record) -> None:
            records.append(record)
            if grows:
                add(record, output)
            bar.done(f"measured {format_size(record.nbytes)}")

        try:
            question.ask(force=force, on_record=keep)
        finally:
            if records:
                _print(CollectiveMeasurements(question, records), output, as_json=json)
            if records and not grows:
                write(records, output)
    if not records and json:
        _print(CollectiveMeasurements(question, ()), output, as_json=True)
    elif not records:
        empty = CollectiveMeasurements(question, ())
        console.print_answer(empty.headline, rests_on=[f"{output} is unchanged"])


def _check_records(path: Path) -> None:
    """Raise RecordError for a file without records."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise RecordError(f"{path} is binary and contains no records; write another name after -o") from None
    read_lines(text, str(path))


def _print(answer: CollectiveMeasurements, output: Path, *, as_json: bool) -> None:
    if as_json:
        content = {"inputs": answer.inputs, "output": str(output), "rows": answer.rows}
        console.print_json("measure", content)
        return
    heads = (
        *(("size", "(B)"), ("time", "(us)"), ("min", "(us)"), ("p95", "(us)"), ("max", "(us)")),
        *(("algbw", "(GB/s)"), ("busbw", "(GB/s)"), ("spread", "(%)")),
    )
    cells = [
        (
            *(r.nbytes, r.time_s * 1e6, r.min_s * 1e6, r.p95_s * 1e6, r.max_s * 1e6),
            *(r.algbw / 1e9, r.busbw / 1e9, r.spread * 100),
        )
        for r in answer.records
    ]
    console.print_answer(
        f"{answer.headline}; records in {output}", console.TextTable(heads, cells), rests_on=answer.rests_on,
        notes=answer.notes,
    )  # fmt: skip
