"""``ringside trace``: communication in PyTorch's profiles, replayed on other clusters."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

import typer

from ringside import console, options
from ringside.options import asks
from ringside.topologies.disk import check_outputs, write_file
from ringside.topologies.placement import placement_notes
from ringside.topologies.units import format_duration
from ringside.validation.questions.job_profile import JobProfile, ProfiledJob
from ringside.validation.readers.kineto import RankTrace
from ringside.validation.traces.analysis import Analysis, CollectiveRow, RankRow
from ringside.validation.traces.headlines import doubts_of
from ringside.validation.traces.matching import group_size, world
from ringside.validation.traces.replay import Replay, TraceReplay, predicted

MOST_ROWS = 64
"""Maximum number of ranks and what-if rows in a table; JSON has all."""

_WHAT = (("kind", ""), ("size", "(B)"), ("ranks", ""), ("count", ""), ("median", "(us)"))
_MORE = (("time", "(ms)"), ("apart", ""), ("algbw", "(GB/s)"))
ROWS = (
    *_WHAT,
    *(("transfer", "(us)"), ("skew", "(us)"), ("busbw", "(GB/s)"), ("last", "rank"), ("in", "(%)")),
    *_MORE,
)
ROWS_OF_ONE = (*_WHAT, ("shortest", "(us)"), ("busbw", "(GB/s)"), *_MORE)
RANKS = (
    *(("rank", ""), ("calls", ""), ("window", "(ms)"), ("comm", "(ms)"), ("", "(%)"), ("exposed", "(ms)")),
    *(("", "(%)"), ("waited", "(ms)"), ("last", "times"), ("by", "(us)"), ("in", "(B)"), ("out", "(B)")),
)
EACH = (
    *(("rank", ""), ("begin", "(ms)"), ("took", "(us)"), ("kind", ""), ("in", "(B)"), ("out", "(B)")),
    *(
        ("type", ""),
        ("ranks", ""),
        ("group", ""),
        ("seq", ""),
        ("stream", ""),
        ("channels", ""),
        ("step", ""),
    ),
)


@asks(JobProfile)
def command(
    question: JobProfile,
    each: Annotated[bool, typer.Option("--each", help="List every collective of every rank.")] = False,
    plot: options.Plot = None,
    trace: options.Trace = None,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Show collectives, skew and transfer of a profiled job; replay it on another cluster."""
    check_outputs((plot, trace), [*map(str, question.files), question.cluster or ""])
    with console.simulating("replaying"):
        answer = question.ask(is_replayed=bool(plot or trace))
    replays = answer.replays
    if replays and plot:
        from ringside.pictures.jobs.program import draw_trace

        draw_trace(replays, plot)
    if replays and trace:
        write_file(trace, (replays.other.timeline if replays.other else replays.recorded).dumps())
    if json:
        console.print_json("trace", {"inputs": answer.inputs, **answer.content})
    else:
        _print(answer, each=each)


def _print(answer: ProfiledJob, *, each: bool) -> None:
    """Print tables: by kind and size, by rank, and replays."""
    analysis, replays = answer.analysis, answer.replays
    one, grids, notes = len(analysis.traces) == 1, [], [*_comments(analysis)]
    if analysis.rows:
        heads = ROWS_OF_ONE if one else ROWS
        grids.append(console.TextTable(heads, [_row(row, short=one) for row in analysis.rows]))
    shown = analysis.ranks[:MOST_ROWS]
    more = f"ranks after {shown[-1].rank} are in the JSON" if len(shown) < len(analysis.ranks) else ""
    ranks = [_rank(row, trace) for row, trace in zip(shown, analysis.traces, strict=False)]
    grids.append(console.TextTable(RANKS, ranks, more))
    if each:
        grids.append(console.TextTable(EACH, list(_each(analysis.traces))))
    if replays and analysis.rows:
        grids.append(_what_if(analysis, replays))
        notes += _story(replays)
    rests_on = answer.rests_on if analysis.rows else [_nothing(analysis), *answer.rests_on][:2]
    console.print_answer(answer.headline, *grids, rests_on=rests_on, notes=notes)


def _comments(analysis: Analysis) -> Iterator[str]:
    first, traces = analysis.traces[0], analysis.traces
    of = f" of {first.ranks}" if first.ranks else ""
    ranks = ", ".join("unknown" if trace.rank is None else str(trace.rank) for trace in traces[:16])
    parts = [
        f"rank {ranks}{' ...' * (len(traces) > 16)}{of}", first.backend, first.library_version, first.gpu,
        f"{len(first.steps)} step{'s' * (len(first.steps) > 1)}" if first.steps else None,
    ]  # fmt: skip
    yield ", ".join(filter(None, parts))
    yield from dict.fromkeys(note for trace in traces for note in trace.notes)
    every = [one for trace in traces for one in trace.collectives]
    sizes = Counter((group_size(first, one), one.ranks) for one in every if one.group.size is None)
    for (size, by_sizes), count in sizes.items():
        if size is not None:
            how = "by their input and output sizes they are" if size == by_sizes else "assumed to be"
            all_of = "all " * (size == world(first))
            yield f"{count} of {len(every)} calls have no group name: {how} of {all_of}{size} ranks"
    for why, count in Counter(one.unknown for one in every if one.unknown).most_common():
        yield f"{count} without a size: {why}"
    whole = sum(row.window_s for row in analysis.ranks)
    if whole and any(row.communication_s for row in analysis.ranks):
        share = sum(row.communication_s or 0.0 for row in analysis.ranks) / whole
        exposed = sum(row.exposed_s or 0.0 for row in analysis.ranks) / whole
        yield f"communication: {share:.1%} of all ranks' time, {exposed:.1%} exposed, waiting included"
    if len(traces) > 1:
        yield from _of_all(analysis)
    elif analysis.rows:
        yield "one rank only: durations include waiting for others, so skew and transfer cannot be separated;"
        yield "the shortest collective of a kind and size bounds its transfer time;"
        yield "the excess of the others is waiting, which a replay keeps"


def _of_all(analysis: Analysis) -> Iterator[str]:
    clocks, matched = analysis.clocks, analysis.matched
    assert clocks is not None
    assert matched is not None
    ranks = analysis.traces[0].ranks
    if ranks and len(analysis.traces) < ranks:
        yield f"traces of {len(analysis.traces)} of {ranks} ranks: the last rank may be missing"
    if clocks.used:
        moved, left = format_duration(clocks.moved_s, 3), format_duration(clocks.residual_s, 3)
        yield (
            f"clocks: aligned by the ends of {clocks.used} collectives, which all ranks leave at "
            f"once; shifted by at most {moved}, ends differ by {left}"
        )
    else:
        yield "clocks: not aligned, because no collective ends on all ranks at once"
    if analysis.disagreement is not None:
        yield (
            f"{len(analysis.meetings)} collectives matched; transfer times over their ranks differ by "
            f"{analysis.disagreement * 100:.1f} % (median)"
        )
    for text in matched.mismatches:
        yield f"mismatch: {text}"
    if matched.alone:
        yield f"{matched.alone} calls have no match in the other traces; their rows have no skew"


def _nothing(analysis: Analysis) -> str:
    work = sum(len(trace.work) for trace in analysis.traces)
    have = f"none of its {work} kernels and operators is" if work else "it has no kernel and no operator"
    return (
        f"no collectives: {have} NCCL's, RCCL's or Gloo's, and no operator of torch.distributed "
        "(c10d::..., record_param_comms) is in the trace"
    )


def _row(row: CollectiveRow, *, short: bool) -> list[console.Cell]:
    cells: list[console.Cell] = [
        row.kind or "-", _or(row.nbytes), _or(row.ranks), row.count, _in(row.median_s, 1e6),
        _in(row.transfer_s, 1e6),
    ]  # fmt: skip
    if not short:
        cells.append(_in(row.skew_s, 1e6))
    cells.append(_in(row.busbw, 1e-9))
    if not short:
        cells += [_or(row.last), "-" if row.last_share is None else f"{row.last_share * 100:.0f}"]
    return [*cells, _in(row.time_s, 1e3), _or(row.stride), _in(row.algbw, 1e-9)]


def _rank(row: RankRow, trace: RankTrace) -> list[console.Cell]:
    given, got = (
        [size for size in sizes if size is not None]
        for sizes in (
            [one.in_bytes for one in trace.collectives],
            [one.out_bytes for one in trace.collectives],
        )
    )
    return [
        _or(row.rank), row.collectives, row.window_s * 1e3, _in(row.communication_s, 1e3),
        _in(row.share, 100), _in(row.exposed_s, 1e3), _in(row.exposed_share, 100), _in(row.waited_s, 1e3),
        _or(row.last), _in(row.lead_s, 1e6), sum(given) if given else "-", sum(got) if got else "-",
    ]  # fmt: skip


def _each(traces: Iterable[RankTrace]) -> Iterator[list[console.Cell]]:
    for trace in traces:
        for one in trace.collectives:
            group = one.group.description or one.group.name or "-"
            yield [
                _or(trace.rank), one.begin_s * 1e3, _in(one.duration_s, 1e6), one.kind or "-",
                _or(one.in_bytes), _or(one.out_bytes), one.dtype or "-", _or(one.group.size),
                group if len(group) < 24 else f"{group[:20]} ...", _or(one.sequence), one.stream or "-",
                _or(one.channels), one.step or "-",
            ]  # fmt: skip


def _what_if(analysis: Analysis, replays: TraceReplay) -> console.TextTable:
    others = [one for one in (replays.own, replays.other) if one]
    heads = [("kind", ""), ("size", "(B)"), ("ranks", ""), ("recorded", "(us)")]
    heads += [(one.cluster, "(us)") for one in others]
    heads += [("error", "(%)")] if replays.own else []
    heads += [("count", ""), ("apart", "")]
    rows = [_predicted(row, replays.own, others) for row in analysis.rows if row.transfer_s is not None]
    rows = [row for row in rows if any(cell != "-" for cell in row[4:-2])]
    return console.TextTable(heads if rows else [], rows[:MOST_ROWS], "" if rows else "nothing to replay")


def _predicted(row: CollectiveRow, own: Replay | None, replays: Sequence[Replay]) -> list[console.Cell]:
    times = [predicted(row, one.libraries) for one in replays]
    cells: list[console.Cell] = [row.kind or "-", _or(row.nbytes), _or(row.ranks)]
    cells += [_in(row.transfer_s, 1e6), *(_in(time, 1e6) for time in times)]
    if own:
        error = (times[0] / row.transfer_s - 1) * 100 if times[0] and row.transfer_s else None
        cells.append("-" if error is None else error)
    return [*cells, row.count, _or(row.stride)]


def _story(replays: TraceReplay) -> Iterator[str]:
    traced = replays.traced
    took = format_duration(replays.recorded.makespan_s, 4)
    off = replays.recorded.makespan_s / traced.recorded_s - 1 if traced.recorded_s else 0.0
    recorded = format_duration(traced.recorded_s, 4)
    count = f"{replays.steps} step{'s' * (replays.steps > 1)}" if replays.steps else "no steps, all as one"
    yield f"recorded: {recorded}, {count} of {format_duration(replays.step_s, 4)}"
    yield f"replayed with its own transfer times: {took} ({off * 100:+.2f} %)"
    for one, like in ((replays.own, ", the job's own"), (replays.other, "")):
        if one:
            makespan, step = one.timeline.makespan_s, replays.step_on(one)
            yield (
                f"replayed on {one.cluster}{like} with {one.library}: {format_duration(makespan, 4)}, "
                f"a step {format_duration(step, 4)} ({(step / replays.step_s - 1) * 100:+.1f} %)"
            )
    if replays.other:
        libraries = replays.other.libraries
        yield from placement_notes(libraries.ranks, libraries.placement, libraries.placed)
    yield from doubts_of(replays)


def _or(value: int | None) -> console.Cell:
    return "-" if value is None else value


def _in(value: float | None, times: float) -> console.Cell:
    return "-" if value is None else value * times
