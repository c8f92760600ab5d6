"""Pipelines as programs: they end, take the textbook's time, and broken ones give clear errors."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.program import Program, Recv, Send, Together
from ringside.sim.program.check import HANGS, PROVED, check
from ringside.sim.program.groups import simulate_given
from ringside.sim.training.layers import Kernels, RankLayer
from ringside.sim.training.mesh import Communicators, Mesh
from ringside.sim.training.pipeline.actions import Action, Kind, Placement, lower, read_tables, write_tables
from ringside.sim.training.pipeline.program import RUNTIMES, Pipeline, find_runtime, pipeline
from ringside.sim.training.pipeline.runtimes import Messages
from ringside.sim.training.pipeline.schedules import SCHEDULES, placement, tables
from ringside.sim.training.sharing import Unshared
from ringside.sim.training.stage import RankList, Stage

MAKESPANS = json.loads(Path(__file__).with_name("makespans.json").read_text(encoding="utf-8"))["rows"]
NBYTES = 1 << 20


def layer(stages_a_rank=1, forward=1.0, input_gradient=1.0, weight_gradient=1.0):
    """Return a layer of a stage's share of a rank's seconds."""
    times = [one / stages_a_rank for one in (forward, input_gradient, weight_gradient)]
    return RankLayer(
        name="layers",
        forward=(Kernels(times[0]),),
        backward=(Kernels(times[1] + times[2]),),
        input_gradient=(Kernels(times[1]),),
        weight_gradient=(Kernels(times[2]),),
        kept=(("activations", 1),),
    )


def program(schedule, ranks, stages_a_rank, micro_batches, whose="decoupled", *, library="nccl", group=None):
    return pipeline(
        schedule,
        tables(schedule, ranks, stages_a_rank, micro_batches, group=group),
        placement(schedule, ranks, stages_a_rank),
        lambda _: (layer(stages_a_rank),),
        find_runtime(whose, schedule),
        nbytes=NBYTES,
        library=library,
    )


def peak(made: Program, rank: int, pool: str = "activations") -> int:
    """Return a rank's peak, of activations in micro-batches of a stage, after checking that all are freed."""
    kept = most = 0
    for operation in made.operations(rank):
        for of, nbytes in sorted(operation.memory, key=lambda one: -one[1]):
            if of == pool:
                kept += nbytes
                most = max(most, kept)
    assert kept == 0
    return most


def rank_ends(made, message_s):
    done = simulate_given(made, {}, message_s=message_s)
    return [
        max(span.end for span in done.spans[rank] if span.kind != "message") for rank in range(made.ranks)
    ]


@pytest.mark.parametrize("row", MAKESPANS, ids=lambda row: "-".join(str(row[name]) for name in list(row)[:4]))
def test_makespan_and_peaks_are_those_of_an_event_simulation(row):
    made = program(row["schedule"], row["ranks"], row["stages_a_rank"], row["micro_batches"])
    for message_s, suffix in ((0.0, ""), (0.25, "_with_messages")):
        ends = rank_ends(made, message_s)
        assert max(ends) == pytest.approx(row["makespan" + suffix], abs=1e-9)
        assert ends == pytest.approx(row["rank_ends" + suffix], abs=1e-3)
    assert [peak(made, rank) for rank in range(row["ranks"])] == row["peaks"]


def test_all_makespans_are_there():
    assert len(MAKESPANS) == 70


@pytest.mark.parametrize(("whose", "makespan"), [("decoupled", 37.0), ("torch", 37.75), ("megatron", 37.75)])
def test_exchanges_that_are_waited_for_at_once_cost_a_little(whose, makespan):
    done = simulate_given(program("1f1b", 4, 1, 8, whose), {}, message_s=0.25)
    assert done.makespan_s == makespan


def carried_out():
    """Return every schedule with each of its runtimes."""
    for schedule, one in SCHEDULES.items():
        for whose in RUNTIMES:
            if schedule in RUNTIMES[whose] or "" in RUNTIMES[whose]:
                yield schedule, whose, one.stages_a_rank or 2


@pytest.mark.parametrize("library", ["nccl", "gloo"])
@pytest.mark.parametrize(("schedule", "whose", "stages_a_rank"), [*carried_out()])
def test_every_program_of_every_schedule_ends(schedule, whose, stages_a_rank, library):
    for ranks, micro_batches in ((1, 2), (2, 4), (3, 6), (4, 8), (4, 12)):
        made = program(schedule, ranks, stages_a_rank, micro_batches, whose, library=library)
        assert check(made).verdict == PROVED, (ranks, micro_batches)


@pytest.mark.proof
@pytest.mark.parametrize("library", ["nccl", "gloo"])
@pytest.mark.parametrize(("schedule", "whose", "stages_a_rank"), [*carried_out()])
def test_every_program_of_every_schedule_ends_at_length(schedule, whose, stages_a_rank, library):
    for ranks in (1, 2, 3, 4, 5, 8):
        for count in (1, 2, 3) if SCHEDULES[schedule].stages_a_rank is None else (stages_a_rank,):
            for micro_batches in (*range(1, 13), 16, 24):
                if whose.startswith("megatron") and micro_batches < ranks:
                    continue
                try:
                    made = program(schedule, ranks, count, micro_batches, whose, library=library)
                except ValueError:
                    continue
                assert check(made).verdict == PROVED, (ranks, count, micro_batches)


@settings(max_examples=30)
@given(st.integers(2, 4), st.integers(2, 3), st.integers(2, 12), st.integers(2, 8), st.booleans())
def test_megatrons_short_last_group_ends_too(ranks, stages_a_rank, micro_batches, group, overlap):
    whose = "megatron-overlap" if overlap else "megatron"
    try:
        made = program("interleaved1f1b", ranks, stages_a_rank, micro_batches, whose, group=group)
    except ValueError:
        return
    assert check(made).verdict == PROVED


@settings(max_examples=40)
@given(
    st.sampled_from(sorted(SCHEDULES)),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 8),
    st.floats(0, 1),
)
def test_no_step_is_shorter_than_its_work(schedule, ranks, stages_a_rank, micro_batches, message_s):
    try:
        made = program(schedule, ranks, stages_a_rank, micro_batches)
    except ValueError:
        return
    makespan = max(rank_ends(made, message_s))
    assert makespan >= 3 * micro_batches - 1e-9
    if schedule in ("gpipe", "1f1b"):
        assert makespan >= 3 * (micro_batches + ranks - 1) + 2 * (ranks - 1) * message_s - 1e-9


@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 4), (4, 8), (4, 16)])
@pytest.mark.parametrize("stages_a_rank", [1, 2, 4])
def test_interleaving_divides_the_bubble(ranks, micro_batches, stages_a_rank):
    made = program("interleaved1f1b", ranks, stages_a_rank, micro_batches)
    bubble = max(rank_ends(made, 0.0)) - 3 * micro_batches
    assert bubble == pytest.approx(3 * (ranks - 1) / stages_a_rank)


@pytest.mark.parametrize(("ranks", "micro_batches"), [(2, 5), (4, 8), (5, 11)])
def test_ranks_keep_what_the_formulas_say(ranks, micro_batches):
    def peaks(schedule, stages_a_rank=1, count=micro_batches):
        made = program(schedule, ranks, stages_a_rank, count)
        return [peak(made, rank) for rank in range(ranks)]

    assert peaks("gpipe") == [micro_batches] * ranks
    assert peaks("1f1b") == [ranks - rank for rank in range(ranks)]
    assert peaks("zb-h2", count=4 * ranks) == [2 * ranks - 1] * ranks
    # a stage keeps 1/v of what a rank does
    v = 3
    ahead = peaks("interleaved1f1b", v, 2 * ranks)[0]
    assert ahead / v == pytest.approx(ranks * (1 + (ranks - 1) / (ranks * v)))


@pytest.mark.slow
@given(st.integers(2, 12), st.integers(0, 30), st.floats(0.0, 0.5))
@settings(max_examples=25)
def test_1f1b_has_a_closed_form(ranks, more, message_s):
    micro_batches = ranks * (1 + more % 4)
    hops = 2 * (ranks - 1) * micro_batches / ranks + 2 * (ranks - 2)
    expected = 3 * (micro_batches + ranks - 1) + hops * message_s
    assert max(rank_ends(program("1f1b", ranks, 1, micro_batches), message_s)) == pytest.approx(expected)


@pytest.mark.parametrize(("whose", "schedule"), [("torch", "1f1b"), ("torch", "zbv"), ("megatron", "1f1b")])
def test_every_hop_but_a_local_one_is_sent_once(whose, schedule):
    stages_a_rank = SCHEDULES[schedule].stages_a_rank
    made = program(schedule, 4, stages_a_rank, 8, whose)
    messages = []
    for rank in range(4):
        for operation in made.operations(rank):
            action = operation.action
            parts = action.parts if isinstance(action, Together) else (action,)
            messages += [part for part in parts if isinstance(part, Send | Recv)]
    hops = 4 * stages_a_rank - 1 - (schedule == "zbv")
    assert len(messages) == 2 * 2 * hops * 8
    assert {message.nbytes for message in messages} == {NBYTES}


def test_torch_fuses_a_send_with_the_receive_of_the_other_direction():
    names = [
        operation.name
        for operation in program("1f1b", 2, 1, 3, "torch").operations(0)
        if operation.category == "message"
    ]
    assert names == ["0SEND_F0", "0SEND_F1 0RECV_B0", "0SEND_F2 0RECV_B1", "0RECV_B2"]


@pytest.mark.parametrize("whose", ["megatron", "megatron-overlap"])
def test_megatron_refuses_fewer_micro_batches_than_ranks(whose):
    with pytest.raises(ValueError, match="write 4 micro-batches or more"):
        program("interleaved1f1b", 4, 2, 3, whose).operations(0)
    assert check(program("interleaved1f1b", 4, 1, 3, whose)).verdict == PROVED


@pytest.mark.parametrize("library", ["nccl", "gloo"])
@pytest.mark.parametrize("whose", ["torch", "megatron"])
@given(ranks=st.integers(2, 9), micro_batches=st.integers(1, 9), message_s=st.floats(0.0, 0.5))
@settings(max_examples=25)
def test_1f1b_ends_with_any_number_of_micro_batches(whose, library, ranks, micro_batches, message_s):
    """It ends, in no less than the micro-batches need to pass all ranks there and back, and keeps no more."""
    made = program("1f1b", ranks, 1, micro_batches, whose, library=library)
    assert check(made).verdict == PROVED
    assert [peak(made, rank) for rank in range(ranks)] == [
        min(ranks - rank, micro_batches) for rank in range(ranks)
    ]
    took = max(rank_ends(made, message_s))
    least = 3 * (micro_batches + ranks - 1) + 2 * (ranks - 1) * message_s
    assert took >= least - 1e-9
    if not message_s:
        assert took == pytest.approx(least)


# outputs in flight, and the gradient in the list of sends; or all that nothing has waited for
@pytest.mark.parametrize(
    ("schedule", "stages", "library", "first", "last"),
    [
        ("gpipe", 1, "nccl", 4, 1),
        ("gpipe", 1, "gloo", 4, 4),
        ("1f1b", 1, "nccl", 2, 1),
        ("1f1b", 1, "gloo", 2, 1),
        ("interleaved1f1b", 2, "gloo", 4 + 4 + 4, 4 + 4 + 4),
        ("looped_bfs", 2, "gloo", 4 + 4 + 4, 4 + 4 + 4),
    ],
)
def test_what_stages_send_is_held_as_torch_holds_it(schedule, stages, library, first, last):
    made = program(schedule, 2, stages, 4, "torch", library=library)
    assert [peak(made, rank, "messages") / NBYTES for rank in range(2)] == [first, last]


@settings(max_examples=30)
@given(
    st.sampled_from(sorted(SCHEDULES)),
    st.integers(2, 4),
    st.integers(1, 2),
    st.sampled_from(["nccl", "gloo"]),
)
def test_all_that_stages_send_is_freed(schedule, ranks, rounds, library):
    stages = SCHEDULES[schedule].stages_a_rank or 2
    made = program(schedule, ranks, stages, 2 * rounds * ranks, "torch", library=library)
    for rank in range(ranks):
        assert peak(made, rank, "messages") >= NBYTES


class Told(Unshared):
    """A sharing that a pipeline says when, and that writes down what it is told."""

    def __init__(self):
        self.heard = []

    def unshard(self):
        self.heard.append("UNSHARD")

    def reshard(self):
        self.heard.append("RESHARD")

    def reduce(self):
        self.heard.append("REDUCE_GRAD")

    def after_backward(self, layer, *, last):
        self.heard.append("last" if last else "backward")


@pytest.mark.parametrize("schedule", ["interleaved1f1b", "zbv", "looped_bfs"])
def test_who_shares_a_stages_parameters_is_told_when(schedule):
    place = placement(schedule, 2, 2)
    table = lower(tables(schedule, 2, 2, 4), place)[0]
    made = RankList(0, Communicators(Mesh(pipeline=2)))
    told = {number: Told() for number in place.of(0)}
    stages = {number: Stage(made, (layer(2),), sharing) for number, sharing in told.items()}
    find_runtime("torch")(Messages(made, place, NBYTES), stages, table)
    for sharing in told.values():
        assert sharing.heard == ["UNSHARD", *["backward"] * 3, "last", "REDUCE_GRAD", "RESHARD"]


def test_more_stages_than_are_held_at_once_are_let_go_and_gathered_again():
    place = placement("looped_bfs", 2, 5)
    kinds = [
        str(action) for action in lower(tables("looped_bfs", 2, 5, 2), place)[0] if action.micro_batch is None
    ]
    assert kinds[:5] == ["0UNSHARD", "2UNSHARD", "4UNSHARD", "0RESHARD", "6UNSHARD"]


def test_a_mesh_with_another_pipeline_is_refused():
    made = RankList(0, Communicators(Mesh(pipeline=3)))
    with pytest.raises(ValueError, match="mesh has 3"):
        Messages(made, Placement(2), NBYTES)
    with pytest.raises(ValueError, match="write 0 or more"):
        Messages(made, Placement(3), -1)


def lowered_program(own, place):
    return pipeline("broken", own, place, lambda _: (layer(),), find_runtime("torch"), nbytes=NBYTES)


def test_a_lost_message_is_refused_or_hangs():
    place = Placement(2)
    own = lower(tables("1f1b", 2, 1, 2), place)
    no_receive = [table if rank == 0 else tuple(a for a in table if a.kind is not Kind.RECV_FORWARD)
                  for rank, table in enumerate(own)]  # fmt: skip
    with pytest.raises(ValueError, match="1F0 precedes 1RECV_F0"):
        lowered_program(no_receive, place).operations(1)
    no_send = [tuple(a for a in table if str(a) != "0SEND_F1") for table in own]
    verdict = check(lowered_program(no_send, place))
    assert verdict.verdict == HANGS
    assert any("1RECV_F1" in line for line in verdict.story)
    twice = [(*own[0], Action.parse("0RECV_B1")), own[1]]
    with pytest.raises(ValueError, match="nothing in the table needs 0RECV_B1"):
        lowered_program(twice, place).operations(0)


def test_a_file_with_messages_is_carried_out_as_it_is(tmp_path):
    place = placement("zbv", 3, 2)
    file = tmp_path / "tables.csv"
    write_tables(lower(tables("zbv", 3, 2, 6), place), file)
    assert Pipeline(read_tables(file), place, find_runtime("torch")).tables == read_tables(file)
    assert check(lowered_program(read_tables(file), place)).verdict == PROVED


@pytest.mark.parametrize(
    ("whose", "schedule"), [("megatron", "zbv"), ("megatron-overlap", "1f1b"), ("unknown", "1f1b")]
)
def test_who_does_not_carry_a_schedule_out_is_refused(whose, schedule):
    with pytest.raises(ValueError, match=r"runs|unknown pipeline runtime"):
        find_runtime(whose, schedule)
