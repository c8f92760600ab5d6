"""A profiled job in one sentence, and what leaves its replay in doubt."""

from ringside.topologies.units import format_duration
from ringside.validation.traces.analysis import Analysis
from ringside.validation.traces.replay import TraceReplay


def headline_of(analysis: Analysis, replays: TraceReplay | None) -> str:
    """Return the step replayed on another cluster; without one the share of communication."""
    if replays and (replay := replays.other):
        step_s = replays.step_on(replay)
        return (
            f"{format_duration(step_s, 4)} a step on {replay.cluster} with {replay.library}, "
            f"{step_s / replays.step_s - 1:+.1%} of the recorded {format_duration(replays.step_s, 4)}"
        )
    whole = sum(row.window_s for row in analysis.ranks)
    calls = sum(row.collectives for row in analysis.ranks)
    traces = f"{calls} collectives on {len(analysis.traces)} traced ranks"
    if not whole or not any(row.communication_s for row in analysis.ranks):
        return f"no timed communication: {traces}"
    share, exposed = (
        sum(getattr(row, name) or 0.0 for row in analysis.ranks) / whole
        for name in ("communication_s", "exposed_s")
    )
    return f"communication takes {share:.1%} of all ranks' time, {exposed:.1%} exposed: {traces}"


def doubts_of(replays: TraceReplay) -> list[str]:
    """Return what leaves a replay in doubt, a sentence each."""
    traced, doubts = replays.traced, []
    if replays.own is None:
        doubts.append(f"the job's own cluster is unknown: {replays.why}")
    if replays.other and traced.is_alike:
        doubts.append("ranks without a trace are assumed to act as traced ones, at the same moments")
    if replays.other and traced.kept:
        doubts.append(
            f"{traced.kept} of {traced.kept + traced.calls} collectives and messages keep their recorded "
            "duration: the traces lack kind, size or members"
        )
    return doubts
