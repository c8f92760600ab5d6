"""The last calls of a job that hangs: a row for each rank, a column for each call."""

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ringside.pictures.style import STYLE, save
from ringside.sim.flight.dump import FlightCall
from ringside.sim.flight.job import FlightJob
from ringside.sim.questions.hang_cause import HangAnswer

MOST_RANKS = 24
"""The number of rows that remain legible; guilty ranks come first."""

MOST_CALLS = 9
"""Last calls of the job that are drawn."""

# light to dark, so that they differ in grey
_ENDED, _WAITS, _GUILTY = "#dcdcdc", "#f4a582", "#08306b"

Column = tuple[str, str, bool, int]
"""A call of groups of one name: the name, its description, whether it is a message, and its number."""


def draw_hang(answer: HangAnswer, path: Path) -> None:
    """Draw each rank's last calls: those that have ended, those that have not, and those not made."""
    job = answer.job
    guilty = set(answer.finding.ranks) if answer.finding else set()
    ranks = sorted(range(job.ranks), key=lambda rank: (rank not in guilty, rank))[:MOST_RANKS]
    columns = _columns(job)
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(10, 1.7 + 0.36 * max(len(ranks), 3)))
        axes = figure.subplots()
        for row, rank in enumerate(ranks):
            _draw_rank(axes, row, rank, job, columns, is_guilty=rank in guilty)
        _label(axes, ranks, guilty, columns)
        if len(ranks) < job.ranks:
            axes.set_xlabel(f"{job.ranks - len(ranks):,} more ranks are not drawn")
        handles = [
            Patch(color=_ENDED, label="ended"),
            Patch(color=_WAITS, label="waits"),
            Patch(color=_GUILTY, label="guilty rank waits"),
            Patch(facecolor="white", edgecolor="0.35", linestyle=":", label="not called"),
        ]
        drawn = {patch.get_facecolor() for patch in axes.patches}
        handles = [one for one in handles if one.get_facecolor() in drawn]
        figure.legend(handles=handles, loc="outside upper right", ncols=len(handles))
        save(figure, path)


def _column(call: FlightCall) -> Column:
    number = call.p2p_seq_id if call.is_p2p else call.collective_seq_id
    return *call.process_group, call.is_p2p, number


def _columns(job: FlightJob) -> list[Column]:
    """Return the last calls, in the order of their first posting, from three before those that wait."""
    first: dict[Column, int] = {}
    waits: set[Column] = set()
    for calls in job.calls.values():
        for call in calls:
            column = _column(call)
            first[column] = min(call.time_created_ns, first.get(column, call.time_created_ns))
            waits |= set() if call.has_ended else {column}
    ordered = sorted(first, key=lambda column: (first[column], column))
    begin = next((at for at, column in enumerate(ordered) if column in waits), len(ordered))
    begin = max(0, min(begin - 3, len(ordered) - MOST_CALLS))
    return ordered[begin : begin + MOST_CALLS]


def _draw_rank(
    axes: Axes, row: int, rank: int, job: FlightJob, columns: list[Column], *, is_guilty: bool
) -> None:
    calls = {_column(call): call for call in job.calls.get(rank, ())}
    names = {key[0] for key, group in job.groups.items() if rank in group.ranks}
    for place, column in enumerate(columns):
        call = calls.get(column)
        cell = Rectangle((place + 0.04, row - 0.4), 0.92, 0.8, lw=0.0)
        if call is not None:
            colour = _ENDED if call.has_ended else _GUILTY if is_guilty else _WAITS
            cell.set_facecolor(colour)
            name = call.name.removeprefix("_")
            shown = name if len(name) <= 15 else f"{name[:14]}\N{HORIZONTAL ELLIPSIS}"
            ink = "white" if colour == _GUILTY else "black"
            axes.text(place + 0.5, row, shown, ha="center", va="center", fontsize=7.5, color=ink)
        elif column[0] in names and not column[2]:
            cell.set(facecolor="white", edgecolor="0.35", linestyle=":", linewidth=1.0)
        else:
            continue
        axes.add_patch(cell)
    if rank not in job.dumps:
        axes.text(0.1, row, "no dump", va="center", fontsize=8.5, color=_GUILTY)


def _label(axes: Axes, ranks: list[int], guilty: set[int], columns: list[Column]) -> None:
    axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks])
    for label, rank in zip(axes.get_yticklabels(), ranks, strict=True):
        label.set_fontweight("bold" if rank in guilty else "normal")
    axes.set_ylim(len(ranks) - 0.5, -0.5)
    axes.set_xlim(0, max(len(columns), 1))
    heads = []
    for name, desc, is_message, number in columns:
        title = f"group {name[:12]}" if desc in ("", "undefined") else desc[:16]
        heads.append(f"{title}\n{'message' if is_message else 'call'} {number}")
    axes.set_xticks([place + 0.5 for place in range(len(columns))], heads, fontsize=8)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for side in axes.spines.values():
        side.set_visible(False)
