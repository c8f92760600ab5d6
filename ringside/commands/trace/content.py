"""The JSON of ``ringside trace``; docs/traces.md describes each field."""

from dataclasses import asdict
from typing import Any

from ringside.validation.readers.kineto import Trace, Traced
from ringside.validation.traces.analysis import Analysis, RankRow, Row
from ringside.validation.traces.replay import Replay, WhatIf, predicted


def content(analysis: Analysis, replays: WhatIf | None) -> dict[str, Any]:
    """Return traces, rows, ranks and replays for JSON."""
    clocks, matched = analysis.clocks, analysis.matched
    return {
        "traces": [_trace(trace) for trace in analysis.traces],
        "rows": [_row(row, replays) for row in analysis.rows],
        "ranks": [_rank(row) for row in analysis.ranks],
        "clocks": clocks and {
            "shift_s": {str(rank): by for rank, by in clocks.shift_s.items()},
            "moved_s": clocks.moved_s, "residual_s": clocks.residual_s, "collectives": clocks.used,
        },
        "transfer_disagreement": analysis.disagreement,
        "mismatches": matched.mismatches if matched else [],
        "without_partner": matched.alone if matched else None,
        "replay": replays and _replays(replays),
    }  # fmt: skip


def _trace(trace: Trace) -> dict[str, Any]:
    return {
        "file": str(trace.path), "rank": trace.rank, "ranks": trace.ranks, "backend": trace.backend,
        "library_version": trace.library_version, "gpu": trace.gpu, "origin_ns": trace.origin_ns,
        "steps": [{"name": step.name, "begin_s": step.begin_s, "end_s": step.end_s} for step in trace.steps],
        "notes": list(trace.notes),
        "collectives": [_one(one) for one in trace.collectives],
    }  # fmt: skip


def _one(one: Traced) -> dict[str, Any]:
    fields = asdict(one)
    del fields["group"]
    return {
        **fields, "duration_s": one.duration_s, "group_name": one.group.name,
        "group_description": one.group.description, "group_size": one.group.size,
        "group_ranks": one.group.ranks and list(one.group.ranks),
    }  # fmt: skip


def _row(row: Row, replays: WhatIf | None) -> dict[str, Any]:
    others = [one for one in (replays.own, replays.other) if one] if replays else []
    return {
        **asdict(row), "algbw_Bps": row.algbw, "busbw_Bps": row.busbw,
        "predicted_s": {one.cluster: predicted(row, one.libraries) for one in others},
    }  # fmt: skip


def _rank(row: RankRow) -> dict[str, Any]:
    return {**row._asdict(), "share": row.share, "exposed_share": row.exposed_share}


def _replays(replays: WhatIf) -> dict[str, Any]:
    return {
        "recorded_s": replays.traced.recorded_s, "replayed_s": replays.recorded.makespan_s,
        "steps": replays.steps, "step_s": replays.step_s, "collectives": replays.traced.calls,
        "kept": replays.traced.kept, "alike": replays.traced.is_alike,
        "own": replays.own and _replay(replays, replays.own), "own_why": replays.why,
        "cluster": replays.other and _replay(replays, replays.other),
    }  # fmt: skip


def _replay(replays: WhatIf, one: Replay) -> dict[str, Any]:
    return {
        "cluster": one.cluster, "library": one.library, "makespan_s": one.timeline.makespan_s,
        "step_s": replays.step_on(one),
        "ranks": [{"rank": rank, **times._asdict()} for rank, times in one.timeline.times.items()],
    }  # fmt: skip
