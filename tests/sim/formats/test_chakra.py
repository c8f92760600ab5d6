"""Chakra's traces: file to program to file keeps nodes, edges and sizes; malformed files are refused."""

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("google.protobuf.proto")

from ringside.sim.formats import FormatError, chakra
from ringside.sim.formats.chakra import (
    COLLECTIVE,
    COMPUTE,
    METADATA,
    RECV,
    SEND,
    ChakraNode,
    dumps,
    loads_json,
)
from ringside.sim.formats.chakra_program import losses, nodes_of, program_of
from ringside.sim.formats.program_files import GROUPS, read, write
from ringside.sim.program.check import check
from ringside.sim.program.record.distributed import record
from tests.sim.formats.files import DATA, anybody, complaint, makespan, programs


def loads(data, name):
    nodes, left = chakra.loads(data, name)
    assert not left
    return nodes


def told(nodes):
    """Return the properties of nodes that every conversion keeps."""
    return [(one.id, one.name, one.type, one.depends, one.duration_us, one.attributes) for one in nodes]


def again(ranks, groups, library="gloo"):
    """Write nodes to files, read these, and return the program."""
    files = [loads(dumps(nodes), f"x.{rank}.et") for rank, nodes in enumerate(ranks)]
    program, notes = program_of(files, groups, "x", library)
    assert not notes
    return program


def test_a_collective_of_astra_sims_is_read():
    for rank in (0, 1, 7):
        (node,) = loads((DATA / f"all_reduce.{rank}.et").read_bytes(), "x")
        assert (node.id, node.type, node.depends) == (rank, COLLECTIVE, [])
        assert node.attributes == {"is_cpu_op": False, "comm_type": 0, "comm_size": 2**20}


def test_the_all_reduce_of_eight_ranks_ends_on_a_cluster(tmp_path):
    one = (DATA / "all_reduce.1.et").read_bytes()
    for rank in range(8):
        (tmp_path / f"all_reduce.{rank}.et").write_bytes(one)
    found = read(tmp_path / "all_reduce.3.et")
    program = found.program("gloo")
    assert (found.ranks, found.notes, check(program).verdict) == (8, (), "proved")
    (call,) = (one.action for one in program.operations(5) if one.category == "all_reduce")
    assert (call.collective.kind, call.collective.nbytes, call.collective.ranks) == ("all_reduce", 2**20, 8)
    assert makespan(program) > 0


def test_a_collective_made_of_messages_is_read_and_written_again():
    data = (DATA / "astra_custom_allreduce.0.et").read_bytes()
    nodes = loads(data, "x")
    assert [one.type for one in nodes].count(SEND) == [one.type for one in nodes].count(RECV) == 14
    assert [one.type for one in nodes].count(COMPUTE) == 7
    assert told(loads(dumps(nodes), "x")) == told(nodes)
    # the others' files do the same, one rank further on
    ranks = []
    for rank in range(8):
        own = loads(data, "x")
        for node in own:
            for end in ("comm_src", "comm_dst"):
                if end in node.attributes:
                    node.attributes[end] = (node.attributes[end] + rank) % 8
        ranks.append(own)
    program, notes = program_of(ranks, {}, "x", "gloo")
    assert not notes
    assert check(program).verdict == "proved"
    written, groups = nodes_of(program)
    assert not groups
    for nodes in (*ranks, *written):
        for node in nodes:
            node.attributes.pop("is_cpu_op", None)
    assert [told(nodes) for nodes in written] == [told(nodes) for nodes in ranks]


def test_a_trace_in_json_is_read_and_what_is_not_in_it_is_said():
    found = read(DATA / "small_chakra.0.json")
    assert found.ranks == 1
    program = found.program("gloo")
    assert [one.name for one in program.operations(0)][:2] == [
        "aten::flatten_dense_tensors(0)", "aten::flatten_dense_tensors(1)",
    ]  # fmt: skip
    assert program.operations(0)[1].after == (0,)
    assert sum(
        one.action.seconds for one in program.operations(0) if one.category == "compute"
    ) == pytest.approx(695e-6)
    assert found.notes == (
        "2 collectives or messages of the host are treated as compute",
        "1 collectives of unknown type or size are treated as compute",
        "7 dependencies on nodes that are missing from the files are left out",
    )


def test_control_dependencies_on_nodes_that_are_not_there_are_left_out_and_counted(tmp_path):
    from ringside.sim.formats import chakra_schema as schema

    data = dumps(
        [
            ChakraNode(1, "n", COMPUTE, [], 5),
            ChakraNode(2, "n", COMPUTE, [], 7),
            ChakraNode(3, "n", COMPUTE, [], 11),
        ]
    )
    # behind the first two: control dependencies of the last on 1 and on two of another file
    extra = schema.Node(ctrl_deps=[1, 90, 91]).SerializeToString()
    last = schema.Node(id=3, name="n", type=COMPUTE, duration_micros=11).SerializeToString()
    assert data.endswith(last)
    data = data[: -len(last) - 1] + bytes([len(last) + len(extra)]) + last + extra
    nodes, left = chakra.loads(data, "x")
    assert [node.depends for node in nodes] == [[], [], [1]]
    assert left == 2
    (tmp_path / "x.0.et").write_bytes(data)
    assert read(tmp_path).notes == ("2 dependencies on nodes that are missing from the files are left out",)


@st.composite
def graphs(draw, rank):
    """Draw the nodes of one of three ranks, each after some earlier ones."""
    nodes = []
    for place in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from((METADATA, COMPUTE, SEND, RECV, COLLECTIVE)))
        before = st.lists(st.integers(0, place - 1), unique=True, max_size=3) if place else st.just([])
        held = {} if kind == METADATA else {"is_cpu_op": False}
        if kind in (SEND, RECV):
            end = "comm_dst" if kind == SEND else "comm_src"
            size, peer, tag = draw(st.integers(0, 2**50)), draw(st.integers(0, 2)), draw(st.integers(-5, 5))
            held |= {"comm_type": kind, "comm_size": size, end: peer, "comm_tag": tag}
        if kind == COLLECTIVE:
            group = draw(st.sampled_from(["", "1"] if rank else [""]))
            comm_type = draw(st.integers(0, 7))
            held |= {"comm_type": comm_type, "comm_size": draw(st.integers(0, 2**40)) * 6}
            held |= {"pg_name": "1"} if group else {}
            if comm_type in (1, 3, 4, 5):
                held["root"] = 1
        duration = draw(st.integers(0, 10**9)) if kind == COMPUTE else 0
        nodes.append(ChakraNode(place, draw(st.text(max_size=5)), kind, draw(before), duration, held))
    return nodes


@settings(max_examples=40)
@given(st.tuples(graphs(0), graphs(1), graphs(2)))
def test_file_program_file_keeps_nodes_edges_and_sizes(ranks):
    groups = {"1": [1, 2]}
    program = again(ranks, groups)
    written, found = nodes_of(program)
    assert [told(nodes) for nodes in written] == [told(nodes) for nodes in ranks]
    assert found in ({}, groups)


def read_again(program):
    """Return the program of a program's traces, after checking that it ends and keeps its nodes."""
    ranks, groups = nodes_of(program)
    found = again(ranks, groups)
    assert check(found).verdict == check(program).verdict == "proved"
    assert [told(nodes) for nodes in nodes_of(found)[0]] == [told(nodes) for nodes in ranks]
    return found


@pytest.mark.parametrize("library", ["ideal", "gloo"])
@settings(max_examples=25)
@given(st.one_of(programs(asynchronous=False, messages=False), programs(calls=False)))
def test_a_program_takes_as_long_as_its_traces(library, program):
    assert makespan(read_again(program), library) == pytest.approx(makespan(program, library), rel=1e-9)


@settings(max_examples=25)
@given(programs())
def test_a_program_with_messages_ends_as_its_traces_and_keeps_its_nodes(program):
    read_again(program)


def test_a_message_does_not_wait_until_it_is_received():
    sent = [send(comm_size=10**6)]
    late = [
        ChakraNode(0, "work", COMPUTE, [], 10**6),
        ChakraNode(1, "recv", RECV, [0], 0, {"comm_size": 10**6, "comm_src": 0}),
    ]
    assert makespan(again([sent, late], {})) == 1.0


@settings(max_examples=15)
@given(programs(library="nccl"))
def test_what_nccls_streams_order_the_traces_order(program):
    ranks, groups = nodes_of(program)
    assert check(again(ranks, groups, "nccl")).verdict == check(program).verdict


def job(dist):
    pair = dist.new_group([0, 1])
    dist.compute(2.4e-6)
    if dist.get_rank() < 2:
        dist.all_gather(100, group=pair)
    dist.barrier()
    dist.reduce(50, dst=2, op="max")


def test_what_a_job_looks_like():
    ranks, groups = nodes_of(record(job, 3))
    assert groups == {"1": [0, 1]}
    assert [(one.name, one.type, one.depends, one.duration_us) for one in ranks[0]] == [
        ("compute", COMPUTE, [], 2),
        ("all_gather", COLLECTIVE, [0], 0),
        ("barrier", COLLECTIVE, [1], 0),
        ("reduce", COLLECTIVE, [2], 0),
    ]
    assert [one.attributes for one in ranks[0][1:]] == [
        {"is_cpu_op": False, "comm_type": 2, "comm_size": 100, "pg_name": "1"},
        {"is_cpu_op": False, "comm_type": 9, "comm_size": 0},
        {"is_cpu_op": False, "comm_type": 1, "comm_size": 50, "root": 2},
    ]
    assert losses(record(job, 3)) == [
        "reductions other than sum are lost",
        "compute is rounded to microseconds",
    ]


def test_a_folder_is_written_whole_and_read_again(tmp_path):
    program = record(job, 3, name="job.py")
    write(program, tmp_path / "out", lambda call: None)
    names = sorted(file.name for file in (tmp_path / "out").iterdir())
    assert names == [GROUPS, "job.0.et", "job.1.et", "job.2.et"]
    assert json.loads((tmp_path / "out" / GROUPS).read_text()) == {"1": [0, 1]}
    found = read(tmp_path / "out").program("gloo")
    assert [told(nodes) for nodes in nodes_of(found)[0]] == [told(nodes) for nodes in nodes_of(program)[0]]
    with pytest.raises(ValueError, match="it exists"):
        write(program, tmp_path / "out", lambda call: None)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == names
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_what_a_trace_has_no_words_for_is_refused():
    with pytest.raises(FormatError, match="rank 0 receives from any source"):
        nodes_of(record(anybody, 2))
    with pytest.raises(FormatError, match="rank 0 fails at"):
        nodes_of(record(lambda dist: dist.broadcast(8, src=7), 2))


def test_who_waits_for_ever_is_told_by_the_node():
    held = {"comm_size": 8, "comm_dst": 1}
    program = again([[ChakraNode(41, "lonely", SEND, [], 0, held)], []], {})
    verdict = check(program)
    assert verdict.verdict == "hangs"
    assert "x.0.et, byte 8, node 41" in verdict.story[0]


def send(**changes):
    return ChakraNode(3, "n", SEND, [], 0, {"comm_size": 8, "comm_dst": 1, "comm_tag": 0} | changes)


def call(**changes):
    return ChakraNode(3, "n", COLLECTIVE, [], 0, {"comm_size": 8, "comm_type": 0} | changes)


WRONG = [
    ([ChakraNode(3, "n", 9, [])], "node 3: node type 9; allowed: 1 to 7"),
    ([ChakraNode(3, "n", 0, [])], "node type 0"),
    ([ChakraNode(3, "n", COMPUTE, [4])], "it depends on node 4, which the file does not have"),
    ([ChakraNode(3, "n", COMPUTE, [3])], "it waits for itself"),
    ([ChakraNode(3, "n", COMPUTE, [4]), ChakraNode(4, "m", COMPUTE, [3])], "it waits for itself"),
    (
        [ChakraNode(3, "n", COMPUTE, []), ChakraNode(3, "m", COMPUTE, [])],
        "a second node 3; the first is at x.0.et, byte 8",
    ),
    ([ChakraNode(3, "n", COMPUTE, [], 2**62)], "a duration of"),
    ([send(comm_size=-1)], "comm_size is -1; allowed: 0 to"),
    ([send(comm_size=2**62 + 1)], "comm_size is"),
    ([send(comm_dst=2)], "comm_dst is 2; allowed: 0 to 1"),
    ([send(comm_dst=-1)], "comm_dst is -1"),
    ([ChakraNode(3, "n", SEND, [], 0, {"comm_dst": 1})], "no comm_size"),
    ([send(comm_size="many")], "comm_size is many"),
    ([send(comm_size=True)], "comm_size is True"),
    ([call(comm_type=10)], "comm_type is 10; allowed: 0 to 9"),
    ([call(comm_size=2**62, comm_type=6)], "more than 4 EiB in all"),
    ([call(comm_type=5, root=2)], "root is 2; allowed: 0 to 1"),
    ([call(pg_name="7")], "rank 0 is not in group 7, which has [1]"),
    ([send(pg_name="7")], "rank 0 is not in group 7"),
]


@pytest.mark.parametrize(("nodes", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_nodes_are_refused_with_their_place(nodes, message):
    with pytest.raises(FormatError, match=rf"^x\.0\.et, byte \d+, (?=node \d+: ).*{re.escape(message)}"):
        again([nodes, []], {"7": [1]})


def test_a_file_that_ends_inside_of_a_message_is_refused_at_its_byte():
    data = (DATA / "all_reduce.0.et").read_bytes()
    assert len(loads(data, "x")) == 1
    for stop in range(len(data)):
        if stop == 8:  # whole, but without nodes
            assert loads(data[:8], "x") == []
            continue
        with pytest.raises(FormatError, match=r"^x(, byte [08])?: "):
            loads(data[:stop], "x")


@pytest.mark.parametrize("data", [b"\xff" * 20, b"\xff" * 8 + b"\x7f"])
def test_a_length_beyond_all_measure_is_refused(data):
    with pytest.raises(FormatError, match="byte 0: not a message"):
        loads(data, "x")


@settings(max_examples=100)
@given(st.randoms(use_true_random=False))
def test_a_damaged_file_is_read_or_refused(chance: random.Random):
    data = bytearray((DATA / "astra_custom_allreduce.0.et").read_bytes()[26_700:])
    data = (
        bytearray((DATA / "all_reduce.0.et").read_bytes()[:8]) + data[-800:]
        if chance.random() < 0.3
        else data
    )
    for _ in range(chance.randrange(1, 6)):
        place = chance.randrange(len(data))
        if chance.random() < 0.7:
            data[place] = chance.randrange(256)
        else:
            del data[place : place + chance.randrange(1, 20)]
    said = complaint(lambda: check(program_of([loads(bytes(data), "x"), *[[]] * 7], {}, "x", "gloo")[0]))
    assert not said or said.startswith(("x,", "x:"))


JSON = [
    ("", "not JSON"),
    ("[" * 100_000, "nested too deeply|not JSON"),
    ("[]", "no list workload_graph"),
    ('{"workload_graph": 3}', "no list workload_graph"),
    ('{"workload_graph": [3]}', "node 0 of workload_graph: not a JSON object"),
    ('{"workload_graph": [{"Id": -1, "NodeType": 4}]}', "id is -1, not a whole number"),
    ('{"workload_graph": [{"Id": 1.5, "NodeType": 4}]}', "id is 1.5"),
    ('{"workload_graph": [{"Id": 1}]}', "type is None"),
    ('{"workload_graph": [{"Id": 1, "NodeType": 4, "data_deps": 3}]}', "data_deps is not a list"),
    ('{"workload_graph": [{"Id": 1, "NodeType": 4, "data_deps": [true]}]}', "data_deps is True"),
    ('{"workload_graph": [{"Id": 1, "NodeType": 4, "runtime": -3}]}', "runtime is -3"),
    ('{"workload_graph": [{"Id": 1, "NodeType": 4, "runtime": 1e400}]}', "runtime is inf"),
    ('{"workload_graph": [{"Id": 1, "NodeType": 4}, {"Id": 1, "NodeType": 4}]}', "a second node 1"),
]


@pytest.mark.parametrize(("text", "message"), JSON, ids=[message for _, message in JSON])
def test_wrong_json_is_refused(text, message):
    with pytest.raises(FormatError, match=message):
        loads_json(text, "x.json")


FOLDERS = [
    ({}, "a folder without Chakra traces"),
    ({"a.0.et": b"", "b.0.et": b""}, r"traces of several jobs \(a.RANK.et, b.RANK.et\)"),
    ({"a.0.et": b"", "a.2.et": b"", "a.7.et": b""}, "3 traces, but none of rank 1, 3, 4, 5, ..."),
    ({"a.0.et": b""}, "a.0.et: an empty file"),
    ({"a.0.et": b"\0", GROUPS: b"{"}, f"{GROUPS}: not JSON"),
    ({"a.0.et": b"\0", GROUPS: b"[]"}, f"{GROUPS}: not a JSON object"),
    (
        {"a.0.et": b"\0", GROUPS: b'{"1": [0, 0]}'},
        "group 1 is not a list of ranks; allowed: each of 0 to 0 once",
    ),
    ({"a.0.et": b"\0", GROUPS: b'{"1": [1]}'}, "group 1 is not a list of ranks"),
    ({"a.0.et": b"\0", GROUPS: b'{"1": [true]}'}, "group 1 is not a list of ranks"),
    ({"a.0.et": b"\0", GROUPS: b"\xff"}, f"{GROUPS}, byte 0: not text in UTF-8"),
]


@pytest.mark.parametrize(("files", "message"), FOLDERS, ids=[message for _, message in FOLDERS])
def test_a_folder_that_is_no_job_is_refused(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FormatError, match=message):
        read(tmp_path)
