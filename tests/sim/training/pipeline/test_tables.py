"""Tables of actions: torch's, and clear errors for invalid ones."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.pipelining import schedules as of_torch

from ringside.sim.training.pipeline.actions import (
    Action,
    Kind,
    Placement,
    check_tables,
    deal_layers,
    find_placement,
    lower,
    read_tables,
    write_tables,
)
from ringside.sim.training.pipeline.schedules import SCHEDULES, PassTimes, orders, placement, tables, zb_2p

GOLDEN = json.loads(Path(__file__).with_name("torch_tables.json").read_text(encoding="utf-8"))["rows"]
CLASSES = {
    "looped_bfs": of_torch.ScheduleLoopedBFS,
    "interleaved1f1b": of_torch.ScheduleInterleaved1F1B,
    "interleaved_zero_bubble": of_torch.ScheduleInterleavedZeroBubble,
    "zbv": of_torch.ScheduleZBVZeroBubble,
    "dualpipev": of_torch.ScheduleDualPipeV,
}


def named(row):
    return row["schedule"], row["ranks"], row["stages_a_rank"], row["micro_batches"]


def words(table):
    return " ".join("." if action is None else str(action) for action in table)


def without_idle(text):
    return " ".join(word for word in text.split() if word != ".")


def made_or_refused(schedule, ranks, stages_a_rank, micro_batches, group=None):
    """Return the tables, or None if they are refused with advice."""
    try:
        return tables(schedule, ranks, stages_a_rank, micro_batches, group=group)
    except ValueError as refused:
        told = str(refused)
    assert "write" in told
    return None


def test_every_table_is_torchs():
    assert len(GOLDEN) == 72
    for row in GOLDEN:
        if "refused" in row and row["schedule"] != "1f1b":
            with pytest.raises(ValueError, match="needs"):
                tables(*named(row))
        if "refused" in row:
            continue
        if row["schedule"] not in ("gpipe", "1f1b"):
            assert [words(order) for order in orders(*named(row))] == row["tables"]
        own = tables(*named(row))
        assert [words(table) for table in own] == [without_idle(text) for text in row["tables"]]
        if "lowered" in row:
            lowered = lower(own, placement(*named(row)[:3]))
            assert [words(table) for table in lowered] == row["lowered"]


@pytest.mark.parametrize("schedule", CLASSES)
@pytest.mark.parametrize(
    ("ranks", "stages_a_rank", "micro_batches"),
    [(1, 2, 3), (2, 2, 6), (3, 2, 7), (5, 2, 12), (4, 3, 9), (4, 2, 3), (5, 3, 1), (8, 2, 5)],
)
def test_the_installed_torch_has_the_same_tables(schedule, ranks, stages_a_rank, micro_batches):
    stages = [
        SimpleNamespace(
            num_stages=ranks * stages_a_rank, group_size=ranks, group_rank=0, stage_index=number, submod=None
        )
        for number in range(stages_a_rank)
    ]
    try:
        theirs = CLASSES[schedule](stages, micro_batches)
    except ValueError:
        with pytest.raises(ValueError, match="write"):
            tables(schedule, ranks, stages_a_rank, micro_batches)
        return
    own = tables(schedule, ranks, stages_a_rank, micro_batches)
    assert [words(table) for table in own] == [
        without_idle(words(theirs.pipeline_order[rank])) for rank in range(ranks)
    ]
    lowered = lower(own, placement(schedule, ranks, stages_a_rank))
    assert [words(table) for table in lowered] == [
        words(theirs.pipeline_order_with_comms[rank]) for rank in range(ranks)
    ]


@pytest.mark.parametrize("micro_batches", [5, 3, 2, 1])
@pytest.mark.parametrize(("name", "schedule"), [("ScheduleGPipe", "gpipe"), ("Schedule1F1B", "1f1b")])
def test_the_installed_torch_computes_in_the_same_order_with_one_stage(
    name, schedule, micro_batches, monkeypatch
):
    """1F1B's class refuses fewer micro-batches than stages at first; the rules of its steps know them."""
    ranks = 3
    for rank, table in enumerate(tables(schedule, ranks, 1, micro_batches)):
        done = []
        stage = SimpleNamespace(
            num_stages=ranks, stage_index=rank, is_last=rank == ranks - 1,
            get_fwd_recv_ops=lambda _: [], get_fwd_send_ops=lambda _: [], get_bwd_recv_ops=lambda _: [],
            get_bwd_send_ops=lambda _: [], perform_reduce_grad=lambda _: None,
            forward_one_chunk=lambda number, *_, done=done, rank=rank, **__: done.append(f"{rank}F{number}"),
            backward_one_chunk=lambda number, *_, done=done, rank=rank, **__: done.append(f"{rank}B{number}"),
        )  # fmt: skip
        theirs = getattr(of_torch, name)(stage, max(ranks, micro_batches))
        monkeypatch.setattr(theirs, "_n_microbatches", micro_batches)
        monkeypatch.setattr(theirs, "_initialize_stage", lambda *_: None)
        theirs._step_microbatches([()] * micro_batches, [{}] * micro_batches)
        assert done == words(table).split()


@pytest.mark.parametrize(
    ("schedule", "ranks", "stages_a_rank", "micro_batches", "fits"),
    [
        ("dualpipev", 4, 2, 7, "8"),
        ("interleaved1f1b", 4, 2, 9, "10"),
        ("zb-h1", 4, 1, 11, "10 or 12"),
        ("zbv", 4, 3, 8, "write 2"),
        ("1f1b", 4, 2, 8, "interleaved1f1b"),
        ("gpipe", 4, 1, 0, "needs 1 or more"),
        ("gpipe", 0, 1, 4, "write 1 or more"),
        ("looped_bfs", 2, -1, 4, "write 1 or more"),
        ("chimera", 4, 1, 4, "dualpipev"),
    ],
)
def test_what_a_schedule_cannot_do_is_refused_with_what_fits(
    schedule, ranks, stages_a_rank, micro_batches, fits
):
    with pytest.raises(ValueError, match=fits):
        tables(schedule, ranks, stages_a_rank, micro_batches)


@given(st.sampled_from(sorted(SCHEDULES)), st.integers(1, 6), st.integers(1, 3), st.integers(1, 14))
def test_what_is_not_refused_is_whole_and_ends(schedule, ranks, stages_a_rank, micro_batches):
    own = made_or_refused(schedule, ranks, stages_a_rank, micro_batches)
    if own:
        assert check_tables(own, placement(schedule, ranks, stages_a_rank)) == micro_batches


@given(st.integers(1, 5), st.integers(1, 3), st.integers(1, 20), st.integers(1, 8))
def test_groups_of_megatron_are_whole_or_refused(ranks, stages_a_rank, micro_batches, group):
    own = made_or_refused("interleaved1f1b", ranks, stages_a_rank, micro_batches, group)
    if own:
        assert check_tables(own, placement("interleaved1f1b", ranks, stages_a_rank)) == micro_batches


def test_groups_as_torch_makes_them_are_megatrons_order_too():
    assert tables("interleaved1f1b", 4, 2, 10) == tables("interleaved1f1b", 4, 2, 10, group=5)
    short_last = tables("interleaved1f1b", 4, 2, 10, group=6)
    assert words(short_last[0]).startswith("0F0 0F1 0F2 0F3 0F4 0F5 4F0 4F1 4F2 4F3 4F4 4F5 0F6 4B0 0F7")
    with pytest.raises(ValueError, match="last group of 2"):
        tables("interleaved1f1b", 4, 2, 10, group=4)
    with pytest.raises(ValueError, match="no groups"):
        tables("gpipe", 4, 1, 8, group=4)


@pytest.mark.parametrize(
    ("text", "changed", "story"),
    [
        ("1F0 1B0 1F1 1B1", "1F0 1B0 1F1", "lacks 1B1"),
        ("1F0 1B0 1F1 1B1", "1F0 1B0 1B1", "lacks 1F1"),
        ("1F0 1B0 1F1 1B1", "1F0 1B0 1F1 1B1 1B1", "1B1 twice"),
        ("1F0 1B0 1F1 1B1", "1F0 1B0 1F1 1B1 0B1", "has stages 1"),
        ("1F0 1B0 1F1 1B1", "1F0 1B0 1F1 1B1 7F0", "has stages 1"),
        ("1F0 1B0 1F1 1B1", "1F0 1I0 1F1 1B1", "lacks 1W0"),
        ("1F0 1B0 1F1 1B1", "1F0 1B0 1W0 1F1 1B1", "both 1B0 and a part"),
        ("1F0 1B0 1F1 1B1", "1F0 1F1 1RESHARD 1B0 1B1", "does not compute"),
        ("1F0 1B0 1F1 1B1", "1F0 1B0 1F1 1B1 1F999999999", "no micro-batch 2"),
        ("1F0 1B0 1F1 1B1", "1B0 1F0 1F1 1B1", "rank 1 cannot do 1B0 before rank 1 has done 1F0"),
        ("0F0 0F1 0B0 0B1", "0F0 0B0 0F1 0B1", None),
        ("0F0 0F1 0B0 0B1", "0F1 0B0 0F0 0B1", "rank 0 cannot do 0B0 before rank 1 has done 1B0"),
    ],
)
def test_a_mutated_table_is_refused_in_words(text, changed, story):
    own = list(tables("1f1b", 2, 1, 2))
    rank = int(text[0])
    assert words(own[rank]) == text
    own[rank] = tuple(map(Action.parse, changed.split()))
    if story is None:
        assert check_tables(own, Placement(2)) == 2
        return
    with pytest.raises(ValueError, match=story):
        check_tables(own, Placement(2))


@given(st.data())
def test_a_table_that_lacks_any_action_is_refused(data):
    schedule = data.draw(st.sampled_from(["gpipe", "zb-h1", "zbv", "interleaved1f1b"]))
    stages_a_rank = 1 if schedule in ("gpipe", "zb-h1") else 2
    own = list(tables(schedule, 3, stages_a_rank, 6))
    rank = data.draw(st.integers(0, 2))
    place = data.draw(st.integers(0, len(own[rank]) - 1))
    own[rank] = own[rank][:place] + own[rank][place + 1 :]
    with pytest.raises(ValueError, match=r"lacks|hang"):
        check_tables(own, placement(schedule, 3, stages_a_rank))


@pytest.mark.parametrize(
    ("own", "ranks", "told"),
    [(tables("gpipe", 2, 1, 2), 3, "2 tables for 3 ranks"), ([(), ()], 2, "no micro-batch 0")],
)
def test_a_table_for_other_ranks_or_no_micro_batch_is_refused(own, ranks, told):
    with pytest.raises(ValueError, match=told):
        check_tables(own, Placement(ranks))


def test_tables_are_read_as_they_were_written(tmp_path):
    file = tmp_path / "tables.csv"
    for own in (tables("dualpipev", 3, 2, 7), lower(tables("zbv", 3, 2, 7), placement("zbv", 3, 2))):
        write_tables(own, file)
        assert read_tables(file) == own


def test_torchs_own_file_is_read_and_ours_by_torch(tmp_path):
    stage = SimpleNamespace(num_stages=4, group_size=2, group_rank=0, stage_index=0, submod=None)
    theirs = of_torch.ScheduleInterleaved1F1B([stage, stage], 4)
    file = tmp_path / "tables.csv"
    for form in ("compute_only", "compute_comms"):
        theirs._dump_csv(str(file), form)
        own = read_tables(file)
        if form == "compute_only":
            assert own == tables("interleaved1f1b", 2, 2, 4)
    write_tables(own, file)
    other = of_torch._PipelineScheduleRuntime([stage, stage], 4)
    other._load_csv(str(file), format="compute_comms")
    assert other.pipeline_order_with_comms == theirs.pipeline_order_with_comms


@pytest.mark.parametrize(
    "text", ["", "\n", "0F0,F1", "0F", "0UNSHARD3", "(0F1;1F2)OVERLAP_F_B", "0X1", "-1F0", "٣F0"]
)
def test_a_file_that_is_no_table_is_refused(text, written):
    file = written(text, "tables.csv")
    with pytest.raises(ValueError, match=r"tables\.csv"):
        read_tables(file)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    (tmp_path / "bytes.csv").write_bytes(b"\xff\xfe0F0")
    for name in ("none.csv", "bytes.csv", ""):
        with pytest.raises(ValueError, match="cannot be read"):
            read_tables(tmp_path / name)


@pytest.mark.parametrize(
    ("layers", "stages", "dealt"), [(78, 12, (7,) * 6 + (6,) * 6), (3, 3, (1, 1, 1)), (4, 1, (4,))]
)
def test_layers_are_dealt_evenly(layers, stages, dealt):
    assert deal_layers(layers, stages) == dealt


@pytest.mark.parametrize(("layers", "stages"), [(3, 4), (0, 1), (4, 0)])
def test_no_stage_is_without_a_layer(layers, stages):
    with pytest.raises(ValueError, match="write"):
        deal_layers(layers, stages)


def test_a_v_goes_back_and_a_loop_goes_round():
    assert [Placement(3, 2, v=True).of(rank) for rank in range(3)] == [(0, 5), (1, 4), (2, 3)]
    assert [Placement(3, 2).of(rank) for rank in range(3)] == [(0, 3), (1, 4), (2, 5)]
    assert not Placement(3, 2, v=True).receives_forward(3)
    assert Placement(3, 2).receives_forward(3)


@pytest.mark.parametrize("place", [Placement(3, 2), Placement(1, 2), Placement(4), Placement(2, 3)])
def test_a_files_tables_say_where_stages_stand(place):
    assert find_placement(tables("looped_bfs", place.ranks, place.stages_a_rank, 2)) == place
    assert find_placement(tables("dualpipev", 3, 2, 6)) == Placement(3, 2, v=True)


@pytest.mark.parametrize("text", ["", "0F0|2F0", "0F0|1F0 0F1", "1F0|0F0", "|0F0"])
def test_stages_that_stand_elsewhere_are_refused(text):
    own = [tuple(map(Action.parse, table.split())) for table in text.split("|")]
    with pytest.raises(ValueError, match="loop"):
        find_placement(own)


def test_zb_2p_refuses_times_that_are_none():
    with pytest.raises(ValueError, match="above 0"):
        zb_2p(4, 8, PassTimes(0, 1, 1, 0))
    assert check_tables(zb_2p(1, 3, PassTimes(1, 1, 1, 0)), Placement(1)) == 3


def test_an_action_is_written_as_torch_writes_it():
    both = Action(-1, Kind.OVERLAP, None, (Action(0, Kind.FORWARD, 7), Action(5, Kind.BACKWARD, 12)))
    for action in (both, Action(11, Kind.UNSHARD), Action(2, Kind.SEND_BACKWARD, 3)):
        assert str(of_torch._Action.from_str(str(action))) == str(action)
        assert Action.parse(str(action)) == action
