"""What ``ringside trace --json`` prints; docs/traces.md says what each field means."""

from dataclasses import asdict
from typing import Any

from ringside.validation.readers.kineto import Trace, Traced
from ringside.validation.traces.analysis import Analysis, RankRow, Row
from ringside.validation.traces.replay import Replay, WhatIf, predicted


def content(analysis: Analysis, found: WhatIf | None) -> dict[str, Any]:
    """Traces, rows, ranks, and the replays."""
    clocks, matched = analysis.clocks, analysis.matched
    return {
        "traces": [_trace(trace) for trace in analysis.traces],
        "rows": [_row(row, found) for row in analysis.rows],
        "ranks": [_rank(row) for row in analysis.ranks],
        "clocks": clocks and {
            "shift_s": {str(rank): by for rank, by in clocks.shift_s.items()},
            "moved_s": clocks.moved_s, "residual_s": clocks.residual_s, "collectives": clocks.used,
        },
        "transfer_disagreement": analysis.disagreement,
        "mismatches": matched.mismatches if matched else [],
        "without_partner": matched.alone if matched else None,
        "replay": found and _replays(found),
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


def _row(row: Row, found: WhatIf | None) -> dict[str, Any]:
    replays = [one for one in (found.own, found.other) if one] if found else []
    return {
        **asdict(row), "algbw_Bps": row.algbw, "busbw_Bps": row.busbw,
        "predicted_s": {one.cluster: predicted(row, one.libraries) for one in replays},
    }  # fmt: skip


def _rank(row: RankRow) -> dict[str, Any]:
    return {**row._asdict(), "share": row.share, "exposed_share": row.exposed_share}


def _replays(found: WhatIf) -> dict[str, Any]:
    return {
        "recorded_s": found.traced.recorded_s, "replayed_s": found.recorded.makespan_s,
        "steps": found.steps, "step_s": found.step_s, "collectives": found.traced.calls,
        "kept": found.traced.kept, "alike": found.traced.is_alike,
        "own": found.own and _replay(found, found.own), "own_why": found.why,
        "cluster": found.other and _replay(found, found.other),
    }  # fmt: skip


def _replay(found: WhatIf, one: Replay) -> dict[str, Any]:
    return {
        "cluster": one.cluster, "library": one.library, "makespan_s": one.timeline.makespan_s,
        "step_s": found.step_on(one),
        "ranks": [{"rank": rank, **times._asdict()} for rank, times in one.timeline.times.items()],
    }  # fmt: skip
