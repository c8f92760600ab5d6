"""``ringside explain``: why a log's bus bandwidth is low, what to try, and the limits of the log."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ringside import console, options
from ringside.options import asks
from ringside.topologies.units import format_size
from ringside.validation.explain.verdict import CauseFit, LogVerdict, UnusualSettings
from ringside.validation.questions.explanation import Explanation

HEADS = (
    ("fits best where", ""),
    ("off by", "(x)"),
    ("cause?", ""),
    ("looked at", ""),
)

_KIB, _MIB = 2**10, 2**20


@asks(Explanation)
def command(
    question: Explanation,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Explain why a log's bus bandwidth is low, compared with similar machines, and what to try."""
    answer = console.ask(question, "trying causes")
    measured, verdict = answer.measured, answer.verdict
    if json:
        inputs = question.inputs() | {"cluster": measured.cluster}
        content = {"inputs": inputs, "machine": measured.cluster, "notes": answer.notes}
        console.print_json("explain", content | _content(verdict))
        return
    comments = [
        f"machine: {measured.cluster}, {measured.source}; similar machines (the family): {answer.family}",
        f"rows: {len(verdict.records)} of {len(measured.records)} are compared",
        *answer.notes,
    ]
    console.print_table(comments, HEADS, _table(verdict))
    console.print_comments(lines(verdict))


def lines(verdict: LogVerdict) -> list[str]:
    """Return the answer in sentences."""
    return [*_answer(verdict), *_of_bound(verdict), *_unusual(verdict), "unknown:", *_unknown(verdict)]


def _answer(verdict: LogVerdict) -> list[str]:
    if verdict.named:
        several = len(verdict.named) > 1
        perhaps = "" if verdict.clear else "perhaps, because similar machines vary widely in these rows: "
        sentences = [
            f"slower than similar machines: {verdict.slower:.2f}x in {_where(verdict, verdict.rows)}",
            perhaps + ("one of these causes, which the rows cannot distinguish:" if several else "cause:"),
        ]
        for one in verdict.named:
            sentences += [f"- {sentence(one)}", f"  to decide: {one.cause.settle}"]
        return [
            *sentences,
            f"these rows are then typically {verdict.named[0].left:.2f}x off; "
            f"without a cause {verdict.left:.2f}x",
        ]
    if verdict.departs:
        return [
            f"slower than similar machines: {verdict.slower:.2f}x in {_where(verdict, verdict.rows)}",
            "no single known cause is certain enough to be named",
        ]
    how = (
        f"typically {max(verdict.typical, 1 / verdict.typical):.2f}x as long"
        if verdict.typical >= 1
        else (f"typically {1 / verdict.typical:.2f}x as fast")
    )
    return [f"no anomaly compared with similar machines: {how}, within their variation"]


def sentence(one: CauseFit) -> str:
    """Describe a cause with its value."""
    return one.cause.sentence(one.value)


def _of_bound(verdict: LogVerdict) -> list[str]:
    """Compare the largest size with the links' capacity."""
    place = max(range(len(verdict.records)), key=lambda row: verdict.records[row].nbytes)
    record = verdict.records[place]
    bound = verdict.bound_s[place]
    share, family = bound / record.time_s, bound / verdict.family_s[place]
    sentences = [
        f"hardware limit at {format_size(record.nbytes)}: {record.busbw / 1e9:.4g} GB/s of bus bandwidth is "
        f"{share:.0%} of the links' capacity; similar machines reach {family:.0%}"
    ]
    if share > 1.05:
        sentences.append("more than the links' capacity: this is another machine, or the rows are wrong")
    return sentences


def _unusual(verdict: LogVerdict) -> list[str]:
    setting = verdict.unusual
    if setting is None:
        return []
    if not setting.rows:
        return [f"according to the log, {setting.says}: at these sizes that costs less than 5 %"]
    agree = "the rows show it" if setting.shown else "the rows do not show it"
    where = _where(verdict, setting.rows)
    usual = "the time of one process per GPU without pinning"
    return [f"according to the log, {setting.says}: up to {setting.factor:.2f}x {usual}, in {where}; {agree}"]


def _unknown(verdict: LogVerdict) -> list[str]:
    sizes = [record.nbytes for record in verdict.records]
    gaps = []
    if max(sizes) < 64 * _MIB:
        gaps.append(f"- bandwidths: the largest size is {format_size(max(sizes))}; measure up to 1 GiB")
    if min(sizes) > 64 * _KIB:
        gaps.append(f"- latencies: the smallest size is {format_size(min(sizes))}; measure from 8 B")
    if all(record.num_nodes == 1 for record in verdict.records):
        gaps.append("- the network: there is one node")
    else:
        gaps.append("- which node or link it is: measure every pair of nodes, then run ringside pairs")
    if verdict.extrapolated:
        gaps.append(
            f"- {verdict.extrapolated} of {len(sizes)} rows beyond what was measured of similar machines: "
            "their times are extrapolated"
        )
    if any(not record.library_version for record in verdict.records):
        gaps.append("- effects of NCCL's release: the log does not name it, the newest is assumed")
    gaps.append("- combinations of causes: each is tried alone")
    return gaps


def _where(verdict: LogVerdict, rows: Sequence[int]) -> str:
    sizes = sorted({verdict.records[row].nbytes for row in rows})
    count = f"{len(rows)} of {len(verdict.records)} rows"
    if len(sizes) == 1:
        return f"{count}, {format_size(sizes[0])}"
    return f"{count}, {format_size(sizes[0])} to {format_size(sizes[-1])}"


def _table(verdict: LogVerdict) -> list[tuple[console.Cell, ...]]:
    def mark(one: CauseFit) -> str:
        if one in verdict.named:
            return "yes" if verdict.clear else "maybe"
        return "no" if verdict.named or verdict.departs else "-"

    return [
        ("nothing is changed", verdict.left, "", "(similar machines)"),
        *((sentence(one), one.left, mark(one), one.cause.looks_at) for one in verdict.tried),
    ]


def _content(verdict: LogVerdict) -> dict[str, Any]:
    return {
        "departs": verdict.departs,
        "clear": verdict.clear,
        "slower": verdict.slower,
        "typical": verdict.typical,
        "causes": [cause_content(one) for one in verdict.named],
        "tried": [cause_content(one) for one in verdict.tried],
        "told": _settings_content(verdict.unusual),
        "cannot_tell": [line.removeprefix("- ") for line in _unknown(verdict)],
        "rows": [_row(verdict, place) for place in range(len(verdict.records))],
    }


def cause_content(one: CauseFit) -> dict[str, Any]:
    """Return a cause for JSON."""
    return {
        "cause": one.cause.key,
        "value": one.value,
        "says": sentence(one),
        "settle": one.cause.settle,
        "cost": one.cost,
        "left": one.left,
    }


def _settings_content(setting: UnusualSettings | None) -> dict[str, Any] | None:
    return None if setting is None else asdict(setting)


def _row(verdict: LogVerdict, place: int) -> dict[str, Any]:
    record = verdict.records[place]
    return {
        "size_bytes": record.nbytes,
        "num_nodes": record.num_nodes or None,
        "ranks": record.ranks,
        "collective": record.collective,
        "measured_s": record.time_s,
        "measured_busbw": record.busbw,
        "family_s": verdict.family_s[place],
        "family_lo_s": verdict.lo_s[place],
        "family_hi_s": verdict.hi_s[place],
        "bound_s": verdict.bound_s[place],
        "slow": place in verdict.rows,
    }
