"""Laws of simulated programs, and times computed by hand."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ringside.sim.collective import Collective
from ringside.sim.libraries.find import find_library
from ringside.sim.libraries.library import answer
from ringside.sim.program.check import check
from ringside.sim.program.jobs import PlacedProgram, placed, simulate
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.operations import Call, Compute
from ringside.sim.program.record.distributed import record
from ringside.sim.program.timeline import ProgramTimeline
from tests.sim.program.cases.known import CASES

MIB = 1 << 20
STAR = {"bandwidth": "1GB/s", "latency": "10us"}
CLUSTERS = {"gloo": ("star", STAR), "ideal": ("star", STAR), "nccl": ("dgx-h100", {})}
KINDS = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "reduce"]
Main = Callable[[Any], Any]


def on(
    library: str, ranks: int, cluster: str | None = None, values: dict[str, str] | None = None
) -> Libraries:
    name, figures = CLUSTERS[library]
    return Libraries(library, cluster or name, figures if values is None else values, ranks)


def run(main: Main, ranks: int, library: str = "gloo", **where: Any) -> ProgramTimeline:
    libraries = on(library, ranks, **where)
    program = record(main, ranks, libraries.rules, eager=library == "nccl")
    return simulate([PlacedProgram(program, tuple(range(ranks)))], libraries)[0]


@pytest.mark.parametrize(("library", "ranks"), [("gloo", 5), ("ideal", 6), ("nccl", 8), ("nccl", 16)])
@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "all_to_all"])
def test_a_program_of_one_collective_is_its_prediction(library: str, ranks: int, kind: str) -> None:
    name, values = CLUSTERS[library]
    found = find_library(library, name, values, ranks=ranks)
    nbytes = 3 * MIB // ranks if kind == "all_gather" else 3 * MIB
    collective = Collective(kind, ranks, nbytes * ranks if kind == "all_gather" else nbytes)
    timeline = run(lambda dist: getattr(dist, kind)(nbytes), ranks, library)
    assert timeline.makespan_s == answer(found, collective).time_s


@pytest.mark.parametrize(
    ("name", "library"),
    [
        (name, library)
        for name, case in CASES.items()
        for library, verdict in (("gloo", case.gloo), ("ideal", case.gloo), ("nccl", case.nccl))
        if verdict == "proved"
    ],
)
def test_what_is_proved_comes_to_its_end(name: str, library: str) -> None:
    case = CASES[name]
    libraries = on(library, case.ranks)
    program = record(case.main, case.ranks, libraries.rules)
    timeline = simulate([PlacedProgram(program, tuple(range(case.ranks)))], libraries)[0]
    assert timeline.makespan_s >= 0


KINDS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "reduce")


@st.composite
def scripts(draw: st.DrawFn) -> tuple[int, list[tuple[Any, ...]]]:
    """Draw a number of ranks, and a list of steps, of which each rank does its part."""
    ranks = draw(st.integers(2, 5))
    rank = st.integers(0, ranks - 1)
    size = st.sampled_from([0, 1, 1000, MIB])
    groups = st.lists(rank, min_size=1, unique=True).map(tuple)
    step = st.one_of(
        st.tuples(st.just("compute"), st.lists(st.sampled_from([0.0, 1e-4, 3e-3]), min_size=5, max_size=5)),
        st.tuples(
            st.just("call"),
            st.sampled_from(KINDS),
            groups,
            size,
            st.booleans(),
        ),
        st.tuples(st.just("message"), rank, rank, size, st.booleans()),
        st.tuples(st.just("barrier")),
    )
    return ranks, draw(st.lists(step, max_size=8))


def follow(steps: list[tuple[Any, ...]]) -> Main:
    """Return the script as a function of a rank; it waits for asynchronous calls at the end."""

    def main(dist: Any) -> None:
        rank, works, groups = dist.get_rank(), [], {}
        for what, *rest in steps:
            if what == "compute":
                dist.compute(rest[0][rank])
            elif what == "barrier":
                dist.barrier()
            elif what == "call":
                kind, members, size, later = rest
                if members not in groups:
                    groups[members] = dist.new_group(list(members))
                if rank in members:
                    root = {"src": members[0]} if kind == "broadcast" else {}
                    root |= {"dst": members[0]} if kind == "reduce" else {}
                    works.append(getattr(dist, kind)(size, group=groups[members], async_op=later, **root))
            else:
                src, dst, size, later = rest
                if src != dst and rank in (src, dst):
                    call = (dist.isend if later else dist.send) if rank == src else dist.recv
                    works.append(call(size, dst if rank == src else src))
        for work in works:
            if work is not None:
                work.wait()

    return main


@settings(max_examples=60)
@given(scripts(), st.sampled_from(["gloo", "ideal", "nccl"]))
def test_proved_programs_end_and_nothing_is_quicker_than_its_parts(
    script: tuple[int, list[tuple[Any, ...]]], library: str
) -> None:
    ranks, steps = script
    members = [step[2] for step in steps if step[0] == "call"]
    assume(library != "nccl" or all(len(one) > 1 for one in members))
    libraries = on(library, ranks)
    program = record(follow(steps), ranks, libraries.rules)
    assume(check(program).verdict == "proved")
    timeline = simulate([PlacedProgram(program, tuple(range(ranks)))], libraries)[0]
    for rank in range(ranks):
        own = [one.action for one in program.operations(rank)]
        assert timeline.makespan_s >= sum(one.seconds for one in own if isinstance(one, Compute)) * (1 - 1e-9)
        times = timeline.times[rank]
        assert times.exposed_s <= times.communication_s * (1 + 1e-9)
        assert times.compute_s + times.exposed_s + times.waiting_s <= times.end_s * (1 + 1e-9)
        for one in own:
            if isinstance(one, Call) and one.name != "barrier" and len(one.group.ranks) > 1:
                bound = libraries.of(one.group.ranks)
                candidate = bound.choose(one.collective)
                assert timeline.makespan_s >= bound.time(one.collective, candidate).time_s * (1 - 1e-9)


def test_a_message_of_gloo_waits_until_its_sender_has_heard_of_the_receive() -> None:
    def main(dist: Any) -> None:
        if dist.get_rank():
            dist.compute(2e-3)
            dist.recv(MIB, 0)
        else:
            dist.send(MIB, 1)

    carried = MIB / 1e9 + 10e-6
    assert run(main, 2, "gloo").makespan_s == pytest.approx(2e-3 + 10e-6 + carried)
    assert run(main, 2, "ideal").makespan_s == pytest.approx(2e-3 + carried)


@pytest.mark.parametrize(
    ("library", "sends_first", "turns"), [("gloo", True, 2), ("gloo", False, 1), ("ideal", True, 1)]
)
def test_the_word_of_a_receive_stands_behind_what_its_rank_sends(
    library: str, sends_first: bool, turns: int
) -> None:
    def main(dist: Any) -> None:
        other = 1 - dist.get_rank()
        if other:
            dist.compute(1e-3)  # the other one's receive is heard of by then
        ways = [dist.isend, dist.irecv] if sends_first else [dist.irecv, dist.isend]
        for work in [way(MIB, other) for way in ways]:
            work.wait()

    one = MIB / 1e9
    late = 1e-3 + turns * one
    assert late <= run(main, 2, library).makespan_s < late + 1e-4


def test_messages_that_share_a_port_take_turns() -> None:
    def main(dist: Any) -> None:
        rank = dist.get_rank()
        if rank < 2:
            works = [dist.irecv(MIB, src) for src in (2, 3)] if rank == 0 else []
        else:
            works = [dist.isend(MIB, 0)]
        for work in works:
            work.wait()

    assert run(main, 4, "ideal").makespan_s == pytest.approx(2 * MIB / 1e9 + 10e-6)


@pytest.mark.parametrize("library", ["gloo", "nccl"])
def test_lanes_overlap(library: str) -> None:
    def main(dist: Any) -> None:
        work = dist.all_reduce(64 * MIB, async_op=True)
        dist.compute(1.0)
        work.wait()

    timeline = run(main, 8, library)
    assert timeline.makespan_s == 1.0
    assert all(times.exposed_s == 0 < times.communication_s for times in timeline.times.values())


def test_communication_is_exposed_where_nothing_is_computed() -> None:
    def main(dist: Any) -> None:
        dist.compute(1e-3 * (1 + dist.get_rank()))
        dist.all_reduce(MIB)

    timeline = run(main, 4, "nccl")
    call_s = run(lambda dist: dist.all_reduce(MIB), 4, "nccl").makespan_s
    assert timeline.makespan_s == pytest.approx(4e-3 + call_s)
    for rank, times in timeline.times.items():
        assert times.compute_s == pytest.approx(1e-3 * (1 + rank))
        assert times.waiting_s == pytest.approx(1e-3 * (3 - rank))
        assert times.exposed_s == pytest.approx(call_s)


def pairs(*members: list[int]) -> Main:
    """Let pairs of ranks reduce at the same time."""

    def main(dist: Any) -> None:
        groups = [dist.new_group(own) for own in members]
        for own, group in zip(members, groups, strict=True):
            if dist.get_rank() in own:
                dist.all_reduce(64 * MIB, group=group)

    return main


NARROW = {"hosts_per_leaf": "4", "oversubscription": "4", "bandwidth": "1GB/s", "latency": "1us"}


@pytest.mark.parametrize("library", ["gloo", "ideal"])
def test_groups_slow_each_other_on_a_shared_link_alone(library: str) -> None:
    def took(*members: list[int]) -> float:
        return run(pairs(*members), 8, library, cluster="leaf-spine:2", values=NARROW).makespan_s

    assert took([0, 1], [2, 3]) == pytest.approx(took([0, 1]), rel=1e-6)
    assert took([0, 4], [1, 5]) == pytest.approx(2 * took([0, 4]), rel=0.02)


def test_groups_of_nccl_share_what_a_machine_has() -> None:
    """A GPU of each machine has a card of its own; groups with the same GPUs share their NVLinks."""

    def took(*members: list[int]) -> float:
        return run(pairs(*members), 16, "nccl", cluster="dgx-h100:2").makespan_s

    assert took([0, 1, 2, 3], [4, 5, 6, 7]) == took([0, 1, 2, 3])
    assert took([0, 8], [1, 9]) == took([0, 8])

    def twice(dist: Any) -> None:
        groups = [dist.new_group(list(range(16))) for _ in range(2)]
        for work in [dist.all_reduce(64 * MIB, group=one, async_op=True) for one in groups]:
            work.wait()

    together, alone = run(twice, 16, "nccl", cluster="dgx-h100:2"), took(list(range(16)))
    assert 1.2 * alone < together.makespan_s <= 2 * alone


def test_two_jobs_on_one_uplink_are_twice_as_slow() -> None:
    libraries = on("gloo", 8, "leaf-spine:2", NARROW)
    jobs = [
        PlacedProgram(record(lambda dist: dist.all_reduce(64 * MIB), 2), hosts) for hosts in ((0, 4), (1, 5))
    ]
    alone = [simulate([job], libraries)[0].makespan_s for job in jobs]
    together = [one.makespan_s for one in simulate(jobs, libraries)]
    assert [both / single for both, single in zip(together, alone, strict=True)] == pytest.approx(
        [2, 2], rel=0.02
    )


@given(st.integers(2, 4), st.integers(2, 4), st.integers(1, 4))
@settings(max_examples=10)
def test_one_of_each_role_stands_for_all(stages: int, width: int, batches: int) -> None:
    ranks = stages * width

    def main(dist: Any) -> None:
        rank = dist.get_rank()
        stage = rank // width
        own = [dist.new_group(list(range(s * width, (s + 1) * width))) for s in range(stages)][stage]
        for _ in range(batches):
            if stage:
                dist.recv(MIB, rank - width)
            dist.compute(1e-3)
            if stage < stages - 1:
                dist.send(MIB, rank + width)
        dist.all_reduce(MIB, group=own)

    assume(ranks <= 8)
    libraries = on("nccl", ranks)
    program = record(main, ranks, "nccl", eager=True)
    hosts = tuple(range(ranks))
    whole = simulate([PlacedProgram(program, hosts)], libraries)[0]
    folded = simulate([PlacedProgram(program, hosts, tuple(r // width * width for r in hosts))], libraries)[0]
    assert folded.makespan_s == pytest.approx(whole.makespan_s)
    assert folded.times == {rank: pytest.approx(whole.times[rank]) for rank in folded.times}
    assert set(folded.stands_for.values()) == {width}
    assert (len(folded.assumes), len(whole.assumes)) == (1, 0)


def test_ranks_of_one_role_may_send_to_each_other() -> None:
    def main(dist: Any) -> None:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        dist.compute(1e-3)
        right, left = (rank + 1) % ranks, (rank - 1) % ranks
        dist.batch_isend_irecv([dist.P2POp(dist.isend, MIB, right), dist.P2POp(dist.irecv, MIB, left)])[
            0
        ].wait()
        dist.all_reduce(MIB)

    program, libraries, hosts = record(main, 8, "nccl", eager=True), on("nccl", 8), tuple(range(8))
    folded = simulate([PlacedProgram(program, hosts, (0,) * 8)], libraries)[0]
    whole = simulate([PlacedProgram(program, hosts)], libraries)[0]
    assert folded.makespan_s == pytest.approx(whole.makespan_s)


def test_collectives_take_compute_units_while_they_run() -> None:
    def main(dist: Any) -> None:
        work = dist.all_reduce(64 * MIB, async_op=True)
        dist.compute(1.0)
        work.wait()

    libraries = on("nccl", 8)
    job = PlacedProgram(record(main, 8, "nccl", eager=True), tuple(range(8)))
    plain, slowed = (simulate([job], libraries, share)[0] for share in (0.0, 0.25))
    assert slowed.makespan_s == pytest.approx(plain.makespan_s + 0.25 * plain.times[0].communication_s)


@pytest.mark.parametrize(
    ("words", "counts", "hosts"),
    [
        (["packed"], [2, 3], [(0, 1), (2, 3, 4)]),
        (["interleaved"], [2, 3], [(0, 2), (1, 3, 4)]),
        (["0-1,4", "3,2"], [3, 2], [(0, 1, 4), (3, 2)]),
    ],
)
def test_jobs_are_placed(words: list[str], counts: list[int], hosts: list[tuple[int, ...]]) -> None:
    assert placed(words, counts) == hosts


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["0-1"], "1 placements of 2 jobs"),
        (["0-1", "1-2"], "rank 1 of the cluster is used twice"),
        (["0-1", "2"], "a job of 2 ranks placed on 1"),
        (["0-1", "x"], "'x' is not a placement"),
        (["0-1", "3-2"], "'3-2' is not a range of ranks"),
        (["0-1", "2-99999999"], "is not a range of ranks"),
        (["0-1", ""], "'' is not a placement"),
    ],
)
def test_what_is_no_placement_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        placed(words, [2, 2])
