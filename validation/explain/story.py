"""A verdict on a log in sentences: the answer, causes with what decides them, and what is unknown."""

from collections.abc import Sequence
from typing import Any

from ringside.topologies.units import format_size
from ringside.validation.explain.verdict import CauseFit, LogVerdict

_KIB, _MIB = 2**10, 2**20

UNLIKE = 2.0
"""A typical factor beyond which no variation between similar machines is the reason."""


def lines(verdict: LogVerdict) -> list[str]:
    """Return the answer in sentences."""
    return [*_answer(verdict), *_of_bound(verdict), *_unusual(verdict), "unknown:", *unknown(verdict)]


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
    if max(verdict.typical, 1 / verdict.typical) > UNLIKE:
        return [f"cannot tell: {how} as similar machines, but too few rows are comparable"]
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


def unknown(verdict: LogVerdict) -> list[str]:
    """Return what the log cannot tell, and what to measure."""
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


def row_of(verdict: LogVerdict, place: int) -> dict[str, Any]:
    """Return a row beside its family, in plain values."""
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
