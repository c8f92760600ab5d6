"""``ringside explain``: why a log's bus bandwidth is low, what to try, and what the log cannot tell."""

from collections.abc import Sequence
from typing import Any

from ringside import console, options
from ringside.commands.fields import asks
from ringside.sim.engine.effort import forced
from ringside.topologies.units import format_size
from ringside.validation.explain.verdict import Candidate, Told, Verdict
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
    with forced(force), console.simulating("trying causes"):
        answer = question.ask()
    measured, verdict = answer.measured, answer.verdict
    console.warn_of(measured)
    if json:
        inputs = question.inputs() | {"cluster": measured.cluster}
        content = {"inputs": inputs, "machine": measured.cluster, "notes": answer.notes}
        console.print_json("explain", content | _content(verdict))
        return
    comments = [
        f"machine: {measured.cluster}, {measured.source}; family: {answer.family}",
        f"rows: {len(verdict.records)} of {len(measured.records)} are judged",
        *answer.notes,
    ]
    console.print_table(comments, HEADS, _table(verdict))
    console.print_comments(lines(verdict))


def lines(verdict: Verdict) -> list[str]:
    """The answer in sentences."""
    return [*_answer(verdict), *_of_bound(verdict), *_told(verdict), "cannot tell:", *_untold(verdict)]


def _answer(verdict: Verdict) -> list[str]:
    if verdict.named:
        several = len(verdict.named) > 1
        perhaps = "" if verdict.clear else "perhaps, for the family leaves these rows wide open: "
        found = [
            f"slower than the family: {verdict.slower:.2f}x in {_where(verdict, verdict.rows)}",
            perhaps + ("one of these causes, which the rows cannot tell apart:" if several else "cause:"),
        ]
        for one in verdict.named:
            found += [f"- {sentence(one)}", f"  to settle it: {one.cause.settle}"]
        return [
            *found,
            f"these rows are then typically {verdict.named[0].left:.2f}x off; "
            f"without a cause {verdict.left:.2f}x",
        ]
    if verdict.departs:
        return [
            f"slower than the family: {verdict.slower:.2f}x in {_where(verdict, verdict.rows)}",
            "no single cause that is known here explains it",
        ]
    how = (
        f"typically {max(verdict.typical, 1 / verdict.typical):.2f}x as long"
        if verdict.typical >= 1
        else (f"typically {1 / verdict.typical:.2f}x as fast")
    )
    return [f"nothing departs from the family: {how}, within what it leaves open"]


def sentence(one: Candidate) -> str:
    """A cause with its value."""
    return one.cause.sentence(one.value)


def _of_bound(verdict: Verdict) -> list[str]:
    """The largest size beside what the links can carry."""
    place = max(range(len(verdict.records)), key=lambda row: verdict.records[row].nbytes)
    record = verdict.records[place]
    bound = verdict.bound_s[place]
    share, family = bound / record.time_s, bound / verdict.family_s[place]
    found = [
        f"hardware's bound at {format_size(record.nbytes)}: {record.busbw / 1e9:.4g} GB/s on the bus is "
        f"{share:.0%} of what the links carry, the family reaches {family:.0%}"
    ]
    if share > 1.05:
        found.append("more than the links carry: this is not the machine, or the rows are wrong")
    return found


def _told(verdict: Verdict) -> list[str]:
    told = verdict.told
    if told is None:
        return []
    if not told.rows:
        return [f"as the log says, {told.says}: at these sizes that costs less than 5 %"]
    agree = "the rows show it" if told.shown else "the rows do not show it"
    where = _where(verdict, told.rows)
    usual = "the time of one process a GPU and nothing pinned"
    return [f"as the log says, {told.says}: up to {told.factor:.2f}x {usual}, in {where}; {agree}"]


def _untold(verdict: Verdict) -> list[str]:
    sizes = [record.nbytes for record in verdict.records]
    found = []
    if max(sizes) < 64 * _MIB:
        found.append(
            f"- what links carry: the largest size is {format_size(max(sizes))}; measure up to 1 GiB"
        )
    if min(sizes) > 64 * _KIB:
        found.append(f"- latencies: the smallest size is {format_size(min(sizes))}; measure from 8 B")
    if all(record.num_nodes == 1 for record in verdict.records):
        found.append("- anything of the network: there is one node")
    else:
        found.append("- which node or link it is: measure every two nodes, then ringside pairs")
    if any(not record.library_version for record in verdict.records):
        found.append("- what NCCL's release changes: the log does not name it, the newest was taken")
    found.append("- two causes at once: each is tried alone")
    return found


def _where(verdict: Verdict, rows: Sequence[int]) -> str:
    sizes = sorted({verdict.records[row].nbytes for row in rows})
    count = f"{len(rows)} of {len(verdict.records)} rows"
    if len(sizes) == 1:
        return f"{count}, {format_size(sizes[0])}"
    return f"{count}, {format_size(sizes[0])} to {format_size(sizes[-1])}"


def _table(verdict: Verdict) -> list[tuple[console.Cell, ...]]:
    def mark(one: Candidate) -> str:
        if one in verdict.named:
            return "yes" if verdict.clear else "maybe"
        return "no" if verdict.named or verdict.departs else "-"

    return [
        ("nothing is changed", verdict.left, "", "(the family)"),
        *((sentence(one), one.left, mark(one), one.cause.looks_at) for one in verdict.tried),
    ]


def _content(verdict: Verdict) -> dict[str, Any]:
    return {
        "departs": verdict.departs,
        "clear": verdict.clear,
        "slower": verdict.slower,
        "typical": verdict.typical,
        "causes": [_cause(one) for one in verdict.named],
        "tried": [_cause(one) for one in verdict.tried],
        "told": _told_content(verdict.told),
        "cannot_tell": [line.removeprefix("- ") for line in _untold(verdict)],
        "rows": [_row(verdict, place) for place in range(len(verdict.records))],
    }


def _cause(one: Candidate) -> dict[str, Any]:
    return {
        "cause": one.cause.key,
        "value": one.value,
        "says": sentence(one),
        "settle": one.cause.settle,
        "cost": one.cost,
        "left": one.left,
    }


def _told_content(told: Told | None) -> dict[str, Any] | None:
    if told is None:
        return None
    return {"says": told.says, "factor": told.factor, "rows": list(told.rows), "shown": told.shown}


def _row(verdict: Verdict, place: int) -> dict[str, Any]:
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
