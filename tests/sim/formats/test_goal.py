"""GOAL: file to program to file keeps nodes, edges and sizes; programs and schedules become messages."""

import random
import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.collective import Collective
from ringside.sim.engine.events import simulate as engine
from ringside.sim.formats import FormatError
from ringside.sim.formats.goal import EAGER, RECV, SEND, WORK, GoalNode, dumps, loads, program_of
from ringside.sim.formats.goal_flatten import losses, of_program, of_schedule
from ringside.sim.libraries import gloo
from ringside.sim.predict import predict
from ringside.sim.program.check import check
from ringside.sim.program.operations import Recv, Send
from ringside.sim.program.record.distributed import record
from ringside.topologies import load
from tests.sim.formats.files import DATA, anybody, complaint, makespan, programs

SAMPLE = (DATA / "loggopsim_binary_tree_32.goal").read_text()


def of_gloo(call):
    return gloo.schedule(call.collective, "auto")


def read(text):
    return program_of(loads(text, "x.goal"), "x.goal", "gloo")


def lines(text):
    return [line for line in text.splitlines() if line]


def test_the_sample_is_a_tree_that_ends_and_is_written_as_it_was_read():
    program = read(SAMPLE)
    assert check(program).verdict == "proved"
    assert lines(dumps(of_program(program, of_gloo))) == lines(SAMPLE)
    messages = [one.action for rank in range(32) for one in program.operations(rank)]
    assert sum(isinstance(one, Send) for one in messages) == 31
    assert makespan(program) == pytest.approx(5 * 5e-6, rel=1e-4)  # as many latencies as the tree is deep


@st.composite
def graphs(draw):
    """Draw the nodes of one rank, each after some earlier ones."""
    nodes = []
    for place in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from((WORK, SEND, RECV)))
        before = st.lists(st.integers(0, place - 1), unique=True, max_size=3) if place else st.just([])
        peer = -1 if kind == WORK else draw(st.integers(-1 if kind == RECV else 0, 2))
        tag = 0 if kind == WORK else draw(st.integers(0, 9))
        nodes.append(GoalNode(kind, draw(st.integers(0, 10**9)), peer, tag, draw(before), draw(before)))
    return nodes


@settings(max_examples=50)
@given(st.lists(graphs(), min_size=3, max_size=3))
def test_file_program_file_keeps_nodes_edges_and_sizes(ranks):
    text = dumps(ranks)
    assert dumps(loads(text, "x").ranks) == text
    assert dumps(of_program(read(text), of_gloo)) == text


@settings(max_examples=30)
@given(programs())
def test_a_program_becomes_messages_that_end_too(program):
    text = dumps(of_program(program, of_gloo))
    again = read(text)
    assert check(again).verdict == "proved"
    assert dumps(of_program(again, of_gloo)) == text
    work = sum(
        one.action.seconds for rank in range(4) for one in program.operations(rank) if one.name == "compute"
    )
    nodes = [node for rank in loads(text, "x").ranks for node in rank]
    assert sum(node.size for node in nodes if node.kind == WORK) == round(work * 1e9)
    assert sum(node.size for node in nodes if node.kind == SEND) == sum(
        node.size for node in nodes if node.kind == RECV
    )


def test_the_bytes_of_a_collective_are_those_of_its_schedule():
    plan = of_gloo(record(lambda dist: dist.all_reduce(1000), 4).operations(0)[0].action)
    moved = sum(plan.traffic().values())
    nodes = of_program(record(lambda dist: dist.all_reduce(1000), 4), of_gloo)
    assert sum(node.size for rank in nodes for node in rank if node.kind == SEND) == moved


@pytest.mark.parametrize("algorithm", ["ring", "halving_doubling"])
@pytest.mark.parametrize("nbytes", [4096, 2**20, 2**24])
def test_a_schedule_takes_as_long_as_its_goal(algorithm, nbytes):
    collective = Collective("all_reduce", 8, nbytes, dtype="float32")
    goal = dumps(of_schedule(schedule(algorithm, collective)))
    alone = predict(collective, load("star:8"), library="ideal", algorithm=algorithm, engine="simpy")
    assert makespan(read(goal)) == pytest.approx(alone.time_s, rel=1e-9)


@pytest.mark.parametrize("seed", range(60))
def test_any_schedule_takes_as_long_as_its_goal_but_for_what_is_said_to_be_lost(seed):
    chance = random.Random(seed)
    algorithm = chance.choice([name for name in ALGORITHMS if name != "double_binary_tree"])
    ranks = chance.choice((2, 3, 4, 5, 8))
    kind = chance.choice(list(ALGORITHMS[algorithm]))
    nbytes = int(10 ** chance.uniform(0, 6)) * 4 * ranks
    plan = schedule(algorithm, Collective(kind, ranks, nbytes, itemsize=4))
    # neither credits nor ``after``, which GOAL has not; channels, which it has not either, are of the tree
    free = replace(plan, after={}, credits=10**6)
    found = makespan(read(dumps(of_schedule(plan))))
    assert found == pytest.approx(engine(free, load(f"star:{ranks}")).time_s, rel=1e-9)


@settings(max_examples=25)
@given(programs(calls=False, least=EAGER + 1))
def test_large_messages_take_as_long_as_their_goal(program):
    again = read(dumps(of_program(program, of_gloo)))
    assert makespan(again) == pytest.approx(makespan(program), rel=1e-9)


@settings(max_examples=25)
@given(programs(calls=False))
def test_small_messages_leave_no_later_by_goal(program):
    again = read(dumps(of_program(program, of_gloo)))
    assert makespan(again) <= makespan(program) * (1 + 1e-9)


def test_every_schedule_ends_as_goal():
    for name in ("ring", "tree", "double_binary_tree", "direct", "halving_doubling"):
        for ranks in (1, 2, 5):
            plan = schedule(name, Collective("all_reduce", ranks, 4000, itemsize=4))
            text = dumps(of_schedule(plan))
            assert check(read(text)).verdict == "proved"
            sent = sum(node.size for rank in loads(text, "x").ranks for node in rank if node.kind == SEND)
            assert sent == sum(plan.traffic().values())


IREQUIRES = """\
num_ranks 1

rank 0 {
l1: calc 100
l2: calc 1000
l2 requires l1
l3: calc 10
l3 irequires l2
}
"""


def test_what_irequires_another_begins_with_it():
    program = read(IREQUIRES)
    assert makespan(program) == pytest.approx(1100e-9)
    later = IREQUIRES.replace("calc 10\n", "calc 1050\n")
    assert makespan(read(later)) == pytest.approx(1150e-9)
    assert makespan(read(later.replace("irequires", "requires"))) == pytest.approx(2150e-9)
    assert dumps(of_program(program, of_gloo)) == IREQUIRES


def test_comments_unlabelled_nodes_and_any_order_are_read():
    text = "// a job\nnum_ranks 1\n/* of\none rank */ rank 0 {\n calc 5 cpu 1\n"
    text += "b: calc 7\na: calc 9\nb requires a\n}"
    goal = loads(text, "x")
    assert goal.placed == 1
    found = [(node.size, node.requires, node.line) for node in goal.ranks[0]]
    assert found == [(5, [], 5), (9, [], 7), (7, [1], 6)]


def test_messages_of_two_groups_have_tags_of_their_own():
    def main(dist):
        groups = dist.new_group([0, 1]), dist.new_group([0, 1])
        works = [
            dist.isend(8, 1, group, 5) if dist.get_rank() == 0 else dist.irecv(8, 0, group, 5)
            for group in groups
        ]
        for work in works:
            work.wait()

    program = record(main, 2)
    tags = [node.tag for node in of_program(program, of_gloo)[0] if node.kind == SEND]
    assert tags == [5, 6]
    assert "2 groups are distinguished by tags alone" in losses(program)


def test_a_receive_from_anybody_is_one_from_minus_one():
    text = dumps(of_program(record(anybody, 2), of_gloo))
    assert "recv 8b from -1 tag 0" in text
    assert check(read(text)).verdict == "proved"


def test_what_was_lost_is_said():
    def main(dist):
        dist.compute(1e-9 / 3)
        dist.all_reduce(8, async_op=True).wait()
        dist.new_group([0, 1])

    assert losses(record(main, 2)) == [
        "collectives (all_reduce) are written as their transfers, without type, reduction and time to add",
        "messages of up to 65,535 bytes leave before their receive is posted, as in LogGOPSim",
        "a collective of a group waits for the last but one before it: the format has no queues",
        "creating groups takes no time and does not wait for other ranks",
        "compute is rounded to nanoseconds",
    ]
    assert not losses(read(SAMPLE))


def test_a_rank_that_fails_cannot_be_written():
    program = record(lambda dist: dist.broadcast(8, src=7), 2)
    with pytest.raises(FormatError, match="rank 0 fails at"):
        of_program(program, of_gloo)


def test_who_waits_for_ever_is_told_by_the_line():
    verdict = check(read("num_ranks 2\nrank 0 {\nl1: send 8b to 1 tag 3\n}\nrank 1 {\n}\n"))
    assert verdict.verdict == "hangs"
    assert "x.goal:3" in verdict.story[0]


BOTH_SEND_FIRST = """\
num_ranks 2
rank 0 {
l1: send 65535b to 1
l2: recv 65535b from 1
l2 requires l1
}
rank 1 {
l1: send 65535b to 0
l2: recv 65535b from 0
l2 requires l1
}
"""


def test_only_a_large_message_waits_until_it_is_received():
    program = read(BOTH_SEND_FIRST)
    assert check(program).verdict == "proved"
    assert lines(dumps(of_program(program, of_gloo))) == lines(
        BOTH_SEND_FIRST.replace("to 1", "to 1 tag 0").replace("to 0", "to 0 tag 0")
        .replace("from 1", "from 1 tag 0").replace("from 0", "from 0 tag 0")
    )  # fmt: skip
    assert check(read(BOTH_SEND_FIRST.replace("65535", "65536"))).verdict == "hangs"


ONE = "num_ranks 2\nrank 0 {\nl1: send 8b to 1 tag 3\n}\nrank 1 {\nl1: recv 8b from 0 tag 3\n}\n"

MALFORMED = [
    ("", "line 1: no num_ranks"),
    ("rank 0 {\n}", "line 1: 'rank 0 {' where 'num_ranks N' is expected"),
    ("num_ranks 0", "line 1: num_ranks is 0"),
    ("num_ranks -1", "'-1' for ranks"),
    ("num_ranks 99999999999999999999999", "for ranks"),
    ("num_ranks 2\nrank 0 {\n}\n", "rank 1 is missing"),
    (ONE[:-3], "the file ends inside a rank"),
    (ONE.replace("rank 1 {", "rank 0 {"), "line 5: rank 0 is defined a second time"),
    (ONE.replace("rank 1 {", "rank 2 {"), "line 5: rank 2 of 2; allowed: 0 to 1"),
    (ONE.replace("to 1", "to 2"), "line 3: send to rank 2; allowed: 0 to 1"),
    (ONE.replace("to 1", "to -1"), "line 3: send to rank -1"),
    (ONE.replace("to 1", "to 99999999999999"), "line 3: send to rank 99999999999999"),
    (ONE.replace("to 1", "from 1"), "line 3: send from; write send ... to"),
    (ONE.replace("8b to", "-8b to"), "line 3: 'l1: send -8b to 1 tag 3' is not a send, recv, calc"),
    (ONE.replace("8b to", f"{2**62 + 1}b to"), "for bytes"),
    (ONE.replace("tag 3", f"tag {2**32}"), "for a tag"),
    (ONE.replace("from 0 tag 3", "from 0 tag -1"), "line 6: a receive of any tag"),
    (ONE.replace("tag 3\n", "tag 3\nl1: calc 5\n", 1), "line 4: label l1 is defined a second time"),
    (ONE.replace("tag 3\n", "tag 3\nl1 requires l9\n", 1), "line 4: no label l9 above"),
    (ONE.replace("tag 3\n", "tag 3\nl1 requires l1\n", 1), "line 3: this node waits for itself"),
    (
        ONE.replace("tag 3\n", "tag 3\nl2: calc 1\nl1 requires l2\nl2 irequires l1\n", 1),
        "waits for itself through its requirements",
    ),
    ("num_ranks 1\nrank 0 {\ncalc 99999999999999999999\n}", "for nanoseconds"),
    ("num_ranks 1\nrank 0 {\ncalc 1000000001000000000\n}", "for nanoseconds"),
    ("num_ranks 1\nrank 0 {\nl1: calc \u0665\n}", "is not a send, recv, calc"),
    (f"num_ranks 1\nrank 0{{\ncalc 1 cpu {'9' * 5000}\nx\n}}", "line 4: 'x' is not a send, recv, calc"),
    (f"num_ranks 1\nrank 0 {{\nsend 1b to {'9' * 5000}\n}}", "allowed: 0 to 0"),
    ("num_ranks 1\n" + "/* " * 100_000, "rank 0 is missing"),
    ("num_ranks 1\nrank 0 {\n}\ncalc 3", "line 4: 'calc 3' where 'rank N {' is expected"),
]


@pytest.mark.parametrize(("text", "message"), MALFORMED, ids=[message for _, message in MALFORMED])
def test_a_malformed_file_is_refused_with_the_line(text, message):
    with pytest.raises(FormatError, match=rf"^x\.goal, (?=line ).*{re.escape(message)}"):
        loads(text, "x.goal")


@settings(max_examples=100)
@given(st.randoms(use_true_random=False))
def test_a_damaged_file_is_read_or_refused(chance: random.Random):
    text = SAMPLE[:600] + "}\n"
    for _ in range(chance.randrange(1, 5)):
        place = chance.randrange(len(text))
        damage = chance.choice(("", "-", "9", "{", "}", "l1", " requires ", "\n", "//", "/*", "\0", "é"))
        text = text[:place] + damage + text[place + chance.randrange(3) :]
    text = text.replace("num_ranks 32", f"num_ranks {chance.choice((1, 6, 32))}")
    said = complaint(lambda: check(read(text)))
    assert not said or said.startswith("x.goal, line ")


def test_actions_say_where_they_are_from():
    program = read(ONE)
    (send, _), (recv, _) = program.operations(0), program.operations(1)
    assert (send.where, recv.where) == ("x.goal:3", "x.goal:6")
    assert isinstance(send.action, Send)
    assert isinstance(recv.action, Recv)
