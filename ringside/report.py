"""The demo's report: one page that a person would want to read."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from topologies.units import format_duration, format_rate, format_size
from validation.compare import Compared, summaries

_PAGE = Path(__file__).with_suffix(".html")
_HEADS = ("ranks", "algorithm", "size", "measured", "spread", "predicted", "error", "busbw", "set")


def page(compared: Sequence[Compared], picture: str, reports: Sequence[str]) -> str:
    """The whole page, with the ``picture`` (SVG text) in it."""
    first = compared[0].record
    cores, date = first.fingerprint["cores"], first.date[:10]
    machine = f"{first.cluster}, {cores} cores, torch {first.library_version}, Gloo over loopback, {date}"
    ranks = sorted({row.record.ranks for row in compared})
    return Template(_PAGE.read_text(encoding="utf-8")).substitute(
        machine=escape(machine),
        picture=picture[picture.index("<svg") :],
        verdicts="\n".join(_verdict(compared, count) for count in ranks),
        table=_table(compared),
        reports="\n".join(f"<pre>{escape(text)}</pre>" for text in reports),
    )


def _verdict(compared: Sequence[Compared], ranks: int) -> str:
    held_out = summaries([row for row in compared if row.record.ranks == ranks])["held_out"]
    noise = held_out.median_spread
    reading = "within" if held_out.median_error <= noise else "beyond"
    return (
        f'<p class="verdict"><strong>{ranks} ranks:</strong> median error {held_out.median_error:.1%} on '
        f"{held_out.rows} held-out rows, {reading} the measurements' own spread of {noise:.1%}; "
        f"90th percentile {held_out.p90_error:.1%}, worst {held_out.worst_error:.1%}.</p>"
    )


def _table(compared: Sequence[Compared]) -> str:
    head = "".join(f"<th>{head}</th>" for head in _HEADS)
    body = "\n".join(
        f'<tr class="{row.set}">{"".join(f"<td>{escape(cell)}</td>" for cell in _cells(row))}</tr>'
        for row in compared
    )
    return f"<table>\n<tr>{head}</tr>\n{body}\n</table>"


def _cells(row: Compared) -> tuple[str, ...]:
    record = row.record
    return (
        str(record.ranks),
        row.way.replace("_", " "),
        format_size(record.nbytes),
        format_duration(record.time_s, 3),
        f"{record.spread:.0%}" if record.spread else "-",
        format_duration(row.predicted_s, 3),
        f"{row.error:+.1%}",
        format_rate(record.busbw, 3),
        row.set.replace("_", " "),
    )
