"""Forty hangs in NCCL's shape: the guilty rank and the call are named in each, and a wrong order."""

import random
from dataclasses import replace

import pytest

from ringside.sim.questions.hang_cause import HangCause
from tests.sim.flight.nccl import NcclJob, Posted

WAYS = ("late", "dead", "size", "dtype", "kind", "order", "message", "message size", "batch", "states")

STEP = (
    Posted("1", (("_all_gather_base", 512, 1024),), 11),
    Posted("1", (("all_reduce", 4096, 4096),), 12),
    Posted("2", (("all_reduce", 64, 64), ("all_reduce", 32, 32)), 13, is_batch=True),
    Posted("0", (("all_reduce", 1, 1),), 14, dtype="Float"),
    Posted("2", (("_reduce_scatter_base", 2048, 256),), 15),
)
"""Tensor parallelism on group 1, data parallelism on group 2, and a sum of all ranks."""


def job_of(ranks, steps=3):
    """Return a job of tensor parallelism in pairs; groups of one kind have one name, as PyTorch's may."""
    pairs = tuple((one, one + 1) for one in range(0, ranks, 2))
    halves = tuple(tuple(range(one, ranks, 2)) for one in (0, 1))
    job = NcclJob(ranks, {"0": (tuple(range(ranks)),), "1": pairs, "2": halves})
    for rank in range(ranks):
        job.posted[rank] = [call for _ in range(steps) for call in (*_passed(rank), *STEP)]
    return job


def _passed(rank):
    """Return the messages of a pair: one alone, then a batch both ways."""
    own, peer = rank % 2, 1 - rank % 2
    alone = f"send {own}->{peer}" if own == 0 else f"recv {own}<-{peer}"
    yield Posted("1", ((alone, 128, 128),), 9, is_message=True)
    both = ((f"send {own}->{peer}", 256, 256), (f"recv {own}<-{peer}", 256, 256))
    yield Posted("1", both, 10, is_message=True, is_batch=True)


def spoilt(way, job, rank, chance):
    """Spoil the last step of a rank; return the call that is named, as (name, group, line)."""
    calls = job.posted[rank]
    begin = len(calls) - len(STEP) - 2
    at = chance.choice([begin + 3, begin + 5, begin + 6])
    call = calls[at]
    name, into, out = call.parts[0]
    named = (name, call.group, call.line)
    match way:
        case "late" | "dead":
            del calls[at:]
        case "size":
            calls[at] = replace(call, parts=((name, into + 8, out + 8),))
        case "dtype":
            calls[at] = replace(call, dtype="Float" if call.dtype == "BFloat16" else "BFloat16")
        case "kind":
            calls[at] = replace(call, parts=(("reduce", into, out),))
            named = ("reduce", call.group, call.line)
        case "order":  # of two groups that both have more than two members
            calls[begin + 4 : begin + 6] = calls[begin + 5], calls[begin + 4]
            named = ("all_reduce", "0", 14)
        case "message":
            other = job.posted[rank ^ 1][begin]
            named = (other.parts[0][0], "1", 9)
            del calls[begin]
        case "message size":
            sender = job.posted[rank & ~1][begin]
            named = (sender.parts[0][0], "1", 9)
            calls[begin] = replace(calls[begin], parts=tuple((one, 99, 99) for one, *_ in calls[begin].parts))
        case "batch":
            own = rank % 2
            calls[begin + 1] = replace(calls[begin + 1], parts=((f"send {own}->{1 - own}", 256, 256),))
            named = (f"send {1 - own}->{own}", "1", 10)
    return named


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", WAYS)
def test_the_guilty_rank_and_its_call_are_named(tmp_path, way, seed):
    chance = random.Random(f"{way} {seed}")
    job = job_of(chance.choice([6, 8, 12]))
    rank = chance.randrange(job.ranks)
    named = spoilt(way, job, rank, chance)
    how = [{}, {"as_json": True}, {"version": "2.4", "timing": False}, {"most": 14}][seed]
    if way == "states":
        job.behind, named, how = rank, ("all_reduce", "0", 14), {**how, "timing": True}
    job.write(tmp_path, without=(rank,) if way == "dead" else (), **how)
    answer = HangCause(file=tmp_path).ask()
    finding = answer.finding
    both = {rank, rank ^ 1} if way == "message size" else {rank}
    if named[1] == "1" and way in ("size", "dtype", "kind"):
        both = {rank, rank ^ 1}  # of two ranks none is in the majority
    assert set(finding.ranks) == both, answer.headline
    assert (finding.call, finding.group.partition(" ")[0]) == named[:2] or len(both) == 2
    assert finding.place in ("" if "as_json" in how else f"train.py:{named[2]}", f"train.py:{named[2]}")
    assert str(rank) in answer.headline
    assert answer.job.missing == ([rank] if way == "dead" else [])
    if answer.proof:
        assert (answer.proof.verdict == "proved") == (way in ("late", "dead"))
