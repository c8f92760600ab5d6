"""Verdicts of the proof, and their reasons."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.program.check import check
from ringside.sim.program.record.distributed import record
from tests.sim.program.cases.known import CASES

BOTH = ("gloo", "nccl")

ASKED = [
    (name, library, verdict)
    for name, case in CASES.items()
    for library, verdict in (("gloo", case.gloo), ("nccl", case.nccl))
    if verdict
]


@pytest.mark.parametrize(("name", "library", "verdict"), ASKED)
def test_every_program_has_its_verdict(name: str, library: str, verdict: str) -> None:
    found = check(record(CASES[name].main, CASES[name].ranks, library))
    assert found.verdict == verdict, found.story
    assert bool(found.story) == (verdict != "proved")


def test_a_cycle_is_told_rank_by_rank_with_its_places() -> None:
    case = CASES["call_then_message_in_opposite_orders"]
    story = check(record(case.main, case.ranks, "gloo")).story
    file = case.main.__code__.co_filename
    line = case.main.__code__.co_firstlineno
    assert story == (
        f"rank 0 waits in all_reduce 0 of group world ({file}:{line + 3}), which rank 1 has not reached",
        f"rank 1 waits in recv from 0 ({file}:{line + 6})",
        "they wait for one another: rank 0 for rank 1 for rank 0",
        "2 of 2 ranks never end",
    )


def test_one_who_has_ended_is_told_of() -> None:
    case = CASES["nobody_receives"]
    story = check(record(case.main, case.ranks, "gloo")).story
    assert story[0].startswith("rank 0 waits in send of 1048576 bytes to 1 (")
    assert story[1:] == ("rank 1 has ended", "1 of 2 ranks never end")


def _from_the_one_before(dist: Any) -> None:
    rank = dist.get_rank()
    dist.send(4, 0) if rank else dist.recv(4, rank - 1)


def _to_the_one_before(dist: Any) -> None:
    dist.send(4, dist.get_rank() - 1)


def _to_nobody(dist: Any) -> None:
    dist.send(4, None)


@pytest.mark.parametrize(
    ("main", "library", "verdict"),
    [
        *((_from_the_one_before, library, "fails" if library == "nccl" else "hangs") for library in BOTH),
        *((_to_the_one_before, library, "fails" if library == "nccl" else "hangs") for library in BOTH),
        *((_to_nobody, library, "fails") for library in BOTH),
    ],
)
def test_no_rank_has_the_number_minus_one(main: Any, library: str, verdict: str) -> None:
    found = check(record(main, 2, library))
    assert found.verdict == verdict
    told = (
        "is not in the world of 2 ranks"
        if verdict == "hangs"
        else "is not in group world, which has ranks [0, 1]"
    )
    assert told in found.story[0]


@pytest.mark.parametrize("library", ["gloo", "nccl"])
def test_a_batch_has_only_messages_that_do_not_wait(library: str) -> None:
    def main(dist: Any) -> None:
        rank = dist.get_rank()
        dist.batch_isend_irecv([dist.P2POp(dist.recv if rank else dist.send, 4, 1 - rank)])

    found = check(record(main, 2, library))
    assert found.verdict == "fails"
    assert "write P2POp(dist.isend, ...)" in found.story[0]


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["send", "recv", "isend", "irecv", "wait", "all_reduce", "group", "barrier", "compute"]
        ),
        st.integers(0, 3),
        st.integers(0, 3),
    ),
    max_size=12,
)


def _random_main(steps: list[tuple[str, int, int]]) -> Any:
    """Return a program in which each rank does the steps that name it, or that name no rank."""

    def main(dist: Any) -> None:
        rank, works, groups = dist.get_rank(), [], [None]
        for what, one, other in steps:
            mine = one in (rank, 3)
            match what:
                case "send" | "recv" | "isend" | "irecv" if mine:
                    works.append(getattr(dist, what)(64, other % 3))
                case "wait" if mine:
                    for work in works:
                        if work is not None:
                            work.wait()
                case "all_reduce" | "barrier" if mine:
                    getattr(dist, what)(*([64] if what == "all_reduce" else []), group=groups[-1])
                case "group":
                    groups.append(dist.new_group([one % 3, (one + 1) % 3]))
                case "compute" if mine:
                    dist.compute(other * 1e-3)

    return main


@settings(max_examples=300)
@given(steps=_STEPS, library=st.sampled_from(["gloo", "nccl"]))
def test_no_program_breaks_the_proof(steps: list[tuple[str, int, int]], library: str) -> None:
    verdict = check(record(_random_main(steps), 3, library))
    assert verdict.verdict in ("proved", "hangs", "fails", "unsafe")
    assert bool(verdict.story) == (verdict.verdict != "proved")
