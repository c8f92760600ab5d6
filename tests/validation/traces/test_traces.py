"""Traces of all ranks: matching, skew and transfer, and the replayed job."""

import json
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.program.check import PROVED, check
from ringside.validation.readers.kineto import TraceError, read_traces
from ringside.validation.traces.analysis import analyse
from ringside.validation.traces.program import program_of
from ringside.validation.traces.replay import as_recorded, own_cluster, predicted, replay, what_if
from tests.validation.traces.kineto_jobs import WIDTHS, Rank

DATA = Path(__file__).parents[1] / "data" / "kineto"
DLRM = DATA / "dlrm"
START = 1_000_000


@pytest.fixture(scope="module")
def dlrm():
    return analyse(read_traces([DLRM]))


def test_transfer_times_of_the_dlrm_agree_over_ranks(dlrm):
    assert dlrm.disagreement < 0.15
    assert len(dlrm.meetings) == 8
    assert not dlrm.matched.mismatches
    assert dlrm.clocks.moved_s < 5e-6  # one machine, one clock
    for meeting in dlrm.meetings:
        middle = median(meeting.transfers.values())
        assert all(abs(one - middle) <= max(0.25 * middle, 3e-6) for one in meeting.transfers.values())


def test_skew_of_the_dlrm_is_as_a_plain_look_at_its_kernels_finds(dlrm):
    kernels = {}
    for trace in dlrm.traces:
        origin = trace.origin_ns / 1e9
        kernels[trace.rank] = [(one.begin_s + origin, one.end_s + origin) for one in trace.collectives]
    for number, meeting in enumerate(sorted(dlrm.meetings, key=lambda one: max(one.ends.values()))):
        begins = {rank: own[number][0] for rank, own in kernels.items()}
        assert meeting.skew_s == pytest.approx(max(begins.values()) - min(begins.values()), abs=3e-6)
        if meeting.lead_s > 1e-5:
            assert meeting.last == max(begins, key=begins.get)
    assert max(dlrm.ranks, key=lambda row: row.last).rank == 7


def test_the_dlrm_played_again_takes_what_was_recorded(dlrm):
    traced = program_of(dlrm)
    assert traced.kept == 0
    assert check(traced.program).verdict == PROVED
    recorded = as_recorded(traced)
    assert recorded.makespan_s == pytest.approx(traced.recorded_s, rel=1e-3)
    for row in dlrm.ranks:
        spent = sum(max(0.0, one.transfers[row.rank]) for one in dlrm.meetings)
        assert recorded.times[row.rank].communication_s == pytest.approx(spent, rel=0.05)


def test_the_dlrm_on_another_network(dlrm):
    found = what_if(dlrm, "star:8", "ideal", {"bandwidth": "1Mb/s"})
    assert own_cluster(dlrm.traces[0])[0] == "dgx1-v100:1"
    assert found.own is not None
    assert found.own.timeline.makespan_s == pytest.approx(found.traced.recorded_s, rel=0.05)
    assert found.other.timeline.makespan_s > 10 * found.traced.recorded_s
    assert found.step_on(found.other) > found.step_s


@pytest.mark.parametrize("name", ["a100x2_sized", "a100x8_rank3", "mi300x8_ddp", "gloo_rank34"])
def test_one_rank_played_again_takes_what_was_recorded(name):
    analysis = analyse(read_traces([DATA / f"{name}.json.gz"]))
    assert analysis.clocks is None
    assert all(row.skew_s is None and row.last is None for row in analysis.rows)
    traced = program_of(analysis)
    assert traced.is_alike
    assert as_recorded(traced).makespan_s == pytest.approx(traced.recorded_s, rel=1e-3)


def test_of_one_rank_a_network_cannot_take_away_the_waiting():
    analysis = analyse(read_traces([DATA / "a100x8_rank3.json.gz"]))
    traced = program_of(analysis)
    timed = sum(traced.seconds.values())
    (trace,) = analysis.traces
    assert timed < sum(one.duration_s for one in trace.collectives)
    quick = replay(traced, "dgx-h100:1", "nccl").timeline.makespan_s
    assert traced.recorded_s - timed < quick < traced.recorded_s


KINDS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


@st.composite
def jobs(draw):
    ranks = draw(st.integers(2, 4))
    count = draw(st.integers(1, 6))
    late = st.lists(st.integers(0, 900), min_size=ranks, max_size=ranks)
    calls = [
        (
            draw(st.sampled_from(KINDS)) if number else "all_reduce",
            draw(st.integers(1, 1000)) * ranks,
            draw(st.sampled_from(sorted(WIDTHS))),
            draw(late),
            draw(st.integers(1, 400)),
        )
        for number in range(count)
    ]
    clocks = draw(st.lists(st.integers(-(10**7), 10**7), min_size=ranks, max_size=ranks))
    return ranks, calls, clocks, draw(st.booleans()), draw(st.booleans())


def written(folder, ranks, calls, clocks, in_args, numbered):
    """Write a job whose ranks compute, arrive at each collective with delays, and leave it together."""
    for number in range(ranks):
        rank = Rank(number, ranks, clocks[number], in_args)
        for place, (kind, nelems, dtype, late, transfer) in enumerate(calls):
            begin = START + 3000 * place
            rank.work(begin - 1500, 1000 + late[number])
            at = begin + late[number]
            given = nelems // ranks if kind == "all_gather" else nelems
            got = {"reduce_scatter": nelems // ranks}.get(kind, nelems)
            rank.collective(
                kind, given, got, dtype, at, begin + max(late) + transfer - at,
                **({"Seq": 40 + place} if numbered and in_args else {}),
            )  # fmt: skip
            rank.wait(at + 1)
        rank.work(START + 3000 * len(calls), 100)
        rank.write(folder)


@settings(max_examples=40)
@given(jobs())
def test_what_is_written_is_read_back(job):
    _, calls, *_ = job
    with TemporaryDirectory() as folder:
        written(Path(folder), *job)
        analysis = analyse(read_traces([Path(folder)]))
    assert analysis.matched.mismatches == []
    assert len(analysis.meetings) == len(calls)
    for meeting, (kind, nelems, dtype, late, transfer) in zip(analysis.meetings, calls, strict=True):
        assert (meeting.match.kind, meeting.match.nbytes) == (kind, nelems * WIDTHS[dtype])
        assert meeting.skew_s == pytest.approx((max(late) - min(late)) * 1e-6, abs=1e-8)
        assert meeting.transfer_s == pytest.approx(transfer * 1e-6, abs=1e-8)
        assert late[meeting.last] == max(late)
    traced = program_of(analysis)
    assert check(traced.program).verdict == PROVED
    assert as_recorded(traced).makespan_s == pytest.approx(traced.recorded_s, abs=1e-7)


@settings(max_examples=40)
@given(
    st.lists(
        st.tuples(st.integers(0, 5000), st.integers(0, 800), st.integers(0, 600), st.integers(0, 3)),
        min_size=1,
        max_size=20,
    ),
    st.lists(st.integers(0, 5000), max_size=6),
)
def test_whatever_ran_beside_whatever_the_replay_takes_what_was_recorded(spans, waits):
    rank = Rank(0, 2)
    free = [0] * 4
    for begin, dur, early, stream in sorted(spans):
        begin = max(begin + 1000, free[stream])  # a stream does one thing at a time
        free[stream] = begin + dur
        if stream < 2:
            rank.work(begin, dur, called=begin - early)
        else:
            rank.collective("all_reduce", 8, 8, "Float", begin, dur, called=begin - early)
            rank.events[-1]["args"]["stream"] = stream
    for at in waits:
        rank.wait(at + 900)
    with TemporaryDirectory() as folder:
        traced = program_of(analyse(read_traces([rank.write(Path(folder))])))
    assert as_recorded(traced).makespan_s == pytest.approx(traced.recorded_s, abs=1e-7)


def pair(tmp_path, *both, **head):
    for rank in both:
        rank.write(tmp_path, **head)
    return analyse(read_traces([tmp_path]))


def test_a_mismatch_is_named_and_left_out(tmp_path):
    both = [Rank(0, 2), Rank(1, 2)]
    for rank in both:
        rank.collective("all_reduce", 1024, 1024, "Float", 100, 50)
    both[0].collective("all_reduce", 4096, 4096, "Float", 200, 50)
    both[1].collective("all_gather", 512, 1024, "Float", 200, 50)
    found = pair(tmp_path, *both)
    (text,) = found.matched.mismatches
    assert "rank 0 has all_reduce of 16384 B, rank 1 all_gather of 4096 B" in text
    assert len(found.meetings) == 1
    assert sum(row.count for row in found.rows) == 3  # the one that met, and two that did not


def test_windows_that_begin_at_other_collectives_meet_by_steps(tmp_path):
    both = [Rank(0, 2, in_args=False), Rank(1, 2, in_args=False)]
    both[0].collective("all_reduce", 99, 99, "Float", 100, 50)
    for rank in both:
        rank.step(5, 1000, 1000)
        rank.collective("all_reduce", 7, 7, "Float", 1100, 50)
    found = pair(tmp_path, *both)
    assert [one.match.nbytes for one in found.meetings] == [28]
    assert found.matched.alone == 1
    assert found.matched.mismatches == []


def test_windows_of_other_lengths_without_steps_are_not_matched(tmp_path):
    both = [Rank(0, 2, in_args=False), Rank(1, 2, in_args=False)]
    both[0].collective("all_reduce", 7, 7, "Float", 50, 20)
    for rank in both:
        rank.collective("all_reduce", 7, 7, "Float", 100, 50)
    found = pair(tmp_path, *both)
    assert found.meetings == ()
    assert "2 on rank 0, 1 on rank 1, without numbers or common steps" in found.matched.mismatches[0]


@pytest.mark.parametrize("key", ["Seq", "Comms Id"])
def test_numbers_of_their_own_match_whatever_the_order(tmp_path, key):
    both = [Rank(0, 2), Rank(1, 2)]
    for place in (1, 2, 3):
        both[0].collective("all_reduce", place, place, "Float", 100 * place, 50, **{key: place + 40})
    for place in (2, 3, 4):
        both[1].collective("all_reduce", place, place, "Float", 100 * place, 50, **{key: place + 40})
    found = pair(tmp_path, *both)
    assert [one.match.nbytes for one in found.meetings] == [8, 12]
    assert found.matched.alone == 2


def test_groups_of_one_size_apart_by_other_strides_are_rows_of_their_own(tmp_path):
    rank = Rank(0, 16)
    for group in ([0, 1], [0, 8]):
        rank.collective("all_reduce", 10**6, 10**6, "Float", 100, 50, group=group)
    found = analyse(read_traces([rank.write(tmp_path)]))
    assert sorted(row.stride for row in found.rows) == [1, 8]
    traced = program_of(found)
    libraries = replay(traced, "dgx-h100:2", "nccl").libraries
    near, far = (predicted(row, libraries) for row in sorted(found.rows, key=lambda row: row.stride))
    assert far > 1.5 * near


def test_uneven_all_to_alls_meet_by_their_mean(tmp_path):
    both = [Rank(0, 2), Rank(1, 2)]
    splits = {"In split size": "[10, 30]", "Out split size": "[10, 50]"}
    both[0].collective("all_to_all", 40, 60, "Byte", 100, 50, **splits)
    both[1].collective("all_to_all", 80, 60, "Byte", 100, 50, **splits)
    found = pair(tmp_path, *both)
    assert [(one.match.kind, one.match.nbytes) for one in found.meetings] == [("all_to_all", 60)]


def test_groups_of_some_ranks_meet_apart(tmp_path):
    ranks = [Rank(number, 4) for number in range(4)]
    for rank in ranks:
        own = [0, 1] if rank.rank < 2 else [2, 3]
        rank.collective("all_gather", 8, 16, "Float", 100 + rank.rank, 50, group=own)
        rank.collective("all_reduce", 8, 8, "Float", 300, 50)
    found = pair(tmp_path, *ranks)
    assert sorted(tuple(one.arrivals) for one in found.meetings) == [(0, 1), (0, 1, 2, 3), (2, 3)]
    traced = program_of(found)
    assert check(traced.program).verdict == PROVED
    assert replay(traced, "dgx-h100:1", "nccl").timeline.makespan_s > 0


@settings(max_examples=40)
@given(
    st.sampled_from(("all_gather", "reduce_scatter")), st.integers(1, 8), st.integers(1, 4),
    st.integers(1, 1000), st.booleans(),
)  # fmt: skip
def test_a_group_that_is_not_named_has_as_many_ranks_as_its_sizes_say(kind, size, times, nelems, in_args):
    rank = Rank(0, size * times, in_args=in_args)
    unnamed = {"Group size": -1, "Process Group Name": "", "Process Group Ranks": "[...]"}
    sizes = (nelems, nelems * size) if kind == "all_gather" else (nelems * size, nelems)
    rank.collective(kind, *sizes, "Float", 100, 50, **unnamed)
    rank.collective("all_reduce", nelems, nelems, "Float", 300, 50, **unnamed)
    with TemporaryDirectory() as folder:
        analysis = analyse(read_traces([rank.write(Path(folder))]))
    found = {row.kind: (row.ranks, row.nbytes) for row in analysis.rows}
    assert found == {kind: (size, nelems * size * 4), "all_reduce": (size * times, nelems * 4)}


def test_groups_of_some_ranks_that_are_not_named_meet_by_their_comms_id_alone(tmp_path):
    for told in (True, False):
        ranks = [Rank(number, 4) for number in range(4)]
        for rank in ranks:
            unnamed = {"Group size": -1, "Process Group Name": "", "Process Group Ranks": "[...]"}
            own = {"Comms Id": rank.rank // 2} if told else {}
            rank.collective("all_gather", 8, 16, "Float", 100 + rank.rank, 50, **unnamed, **own)
        found = pair(tmp_path, *ranks)
        met = sorted(tuple(one.arrivals) for one in found.meetings)
        assert met == ([(0, 1), (2, 3)] if told else [])
        assert found.matched.alone == (0 if told else 4)
        assert {row.ranks for row in found.rows} == {2}


def test_ranks_without_a_trace_are_taken_alike(tmp_path):
    ranks = [Rank(number, 8) for number in (2, 5)]
    for rank in ranks:
        rank.work(50, 40)
        rank.collective("all_reduce", 8, 8, "Float", 100 + rank.rank, 50)
    found = pair(tmp_path, *ranks)
    traced = program_of(found)
    assert traced.roles == (2, 2, 2, 2, 2, 5, 2, 2)
    assert as_recorded(traced).makespan_s == pytest.approx(traced.recorded_s, rel=0.05)
    assert replay(traced, "dgx-a100:1", "nccl").timeline.stands_for == {2: 7, 5: 1}


def test_work_waits_only_for_what_the_host_waited_for(tmp_path):
    rank = Rank(0, 2)
    rank.work(100, 100)
    rank.collective("all_reduce", 10**6, 10**6, "Float", 200, 100)
    rank.work(210, 300, called=206)  # asked for before the wait: beside the collective
    rank.wait(208)
    rank.work(520, 80, called=209)
    found = analyse(read_traces([rank.write(tmp_path)]))
    traced = program_of(found)
    slow = replay(traced, "star:2", "ideal", {"bandwidth": "1GB/s"}).timeline
    (span,) = [one for one in slow.spans[0] if one.kind == "all_reduce"]
    last = max(slow.spans[0], key=lambda one: one.end)
    assert span.end > 3e-3
    assert last.kind == "compute"
    assert last.begin >= span.end
    assert any(one.kind == "compute" and span.begin < one.begin < span.end for one in slow.spans[0])


def test_of_calls_alone_no_time_is_told(tmp_path):
    ranks = [Rank(number, 2) for number in range(2)]
    for rank in ranks:
        rank.collective("all_reduce", 10, 10, "Float", 150, 100)
        rank.events = [event for event in rank.events if event["cat"] == "cpu_op"]
    found = pair(tmp_path, *ranks)
    assert found.meetings == ()
    assert [(row.communication_s, row.share, row.exposed_share) for row in found.ranks] == [(None,) * 3] * 2
    assert [(row.count, row.nbytes, row.transfer_s) for row in found.rows] == [(2, 40, None)]


def test_exposed_is_what_no_kernel_hides(tmp_path):
    rank = Rank(0, 2)
    rank.work(100, 100)
    rank.collective("all_reduce", 10, 10, "Float", 150, 100)
    rank.work(300, 100)
    (row,) = analyse(read_traces([rank.write(tmp_path)])).ranks
    assert row.communication_s == pytest.approx(100e-6)
    assert row.exposed_s == pytest.approx(50e-6)
    assert row.share == pytest.approx(1 / 3)


def test_what_no_library_is_asked_for_stays_as_it_was(tmp_path):
    rank = Rank(0, 2)
    rank.collective("send", 10, 10, "Float", 100, 100, **{"Dst Rank": 1})
    rank.launched("ncclDevKernel_Generic(x)", 250, 300, 50, 20)
    rank.collective("all_reduce", 10, 10, "Float", 400, 100)
    traced = program_of(analyse(read_traces([rank.write(tmp_path)])))
    assert (traced.calls, traced.kept) == (1, 2)


def test_a_trace_of_nothing_is_not_played(tmp_path):
    path = tmp_path / "rank0.json"
    event = {"ph": "X", "cat": "cuda_runtime", "name": "cudaMalloc", "ts": 1, "dur": 1}
    path.write_text(json.dumps({"traceEvents": [event]}))
    with pytest.raises(TraceError, match="collectives to replay"):
        what_if(analyse(read_traces([path])), "star:2")
