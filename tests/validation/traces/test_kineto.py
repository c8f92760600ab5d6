"""Reading traces of PyTorch's profiler: real ones against a plain count, and unusual ones."""

import gzip
import io
import json
import math
import tarfile
from collections import Counter
from pathlib import Path

import pytest

from ringside.validation.readers.kineto import TraceError, read_traces
from tests.validation.traces.kineto_jobs import Rank

DATA = Path(__file__).parents[1] / "data" / "kineto"
SAMPLES = sorted(DATA.rglob("*.json.gz"))
WIDTH = {
    "Float": 4, "Long": 8, "BFloat16": 2, "float": 4, "int": 4, "long int": 8, "long": 8,
    "c10::BFloat16": 2, "unsigned char": 1,
}  # fmt: skip


def plain_count(path):
    """Count collectives by input bytes in the plain JSON."""
    events = [e for e in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] if e["ph"] == "X"]
    kernels = [e["args"] for e in events if e["cat"] == "kernel" and "nccl" in e["name"]]
    if any("In msg nelems" in args for args in kernels):
        return Counter(
            args["In msg nelems"] * WIDTH[args["dtype"]] if "dtype" in args else None for args in kernels
        )
    calls = [e["args"] for e in events if e["name"].startswith(("nccl:", "gloo:"))]
    return Counter(math.prod(a["Input Dims"][0]) * WIDTH[a["Input type"][0]] for a in calls)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_counts_and_bytes_are_those_of_a_plain_count(path):
    (trace,) = read_traces([path])
    assert Counter(one.in_bytes for one in trace.collectives) == plain_count(path)


def test_the_samples_are_small_enough_to_carry():
    assert sum(path.stat().st_size for path in SAMPLES) < 300_000


def test_a_kernel_whose_operator_is_there_is_known_entirely():
    (trace,) = read_traces([DATA / "a100x2_sized.json.gz"])
    one = next(one for one in trace.collectives if one.kind == "all_reduce")
    assert (one.name, one.dtype, one.group.size, one.group.ranks) == ("allreduce", "float32", 2, (0, 1))
    assert (one.channels, one.stream, one.source, one.group.description) == (8, "40", "args", "default_pg")
    assert trace.library_version == "2.17.1"


def test_older_traces_have_the_sizes_on_operators():
    (trace,) = read_traces([DATA / "dlrm" / "worker3.json.gz"])
    uneven = [one for one in trace.collectives if one.kind == "all_to_all" and one.in_bytes != one.out_bytes]
    assert [(one.in_bytes, one.out_bytes, one.dtype) for one in uneven] == [(3392 * 4, 13312 * 4, "int32")]
    assert {one.group.size for one in trace.collectives} == {None}


def test_a_generic_kernel_launched_before_the_trace_has_neither_kind_nor_size():
    (trace,) = read_traces([DATA / "mi300x8_ddp.json.gz"])
    unknown = [one for one in trace.collectives if one.kind is None]
    assert len(unknown) == 5
    assert {(one.in_bytes, one.unknown) for one in unknown} == {(None, "launched outside of the trace")}


def test_gloos_collectives_are_annotations_of_the_host():
    (trace,) = read_traces([DATA / "gloo_rank34.json.gz"])
    assert (trace.rank, trace.ranks, trace.backend) == (34, 300, "gloo")
    assert all(one.kind == "all_reduce" and one.channels is None for one in trace.collectives)


def summing(number=0, ranks=2, dtype="Float", begin=100, lasts=50, in_args=True, **more):
    """Return a rank that sums seven elements."""
    rank = Rank(number, ranks, in_args=in_args)
    rank.collective("all_reduce", 7, 7, dtype, begin, lasts, **more)
    return rank


def read(rank, tmp_path, **head):
    (trace,) = read_traces([rank.write(tmp_path, **head)])
    return trace


def test_a_batch_of_messages_is_one_kernel_with_the_sizes_of_its_parts(tmp_path):
    rank = Rank(0, 2)
    for kind, nelems in (("send", 10), ("recv", 30)):
        args = {"Collective name": kind, "In msg nelems": nelems, "Out msg nelems": nelems, "dtype": "Float"}
        rank.event("cpu_op", "record_param_comms", 100 + nelems, 2, **args, **{f"{kind} Rank": 1})
    rank.launched("ncclDevKernel_SendRecv(x)", 200, 300, 50, 20)
    (one,) = read(rank, tmp_path).collectives
    assert (one.kind, one.in_bytes, one.out_bytes) == ("batch", 40, 120)


def test_a_group_call_that_ends_in_an_annotation_still_has_its_parts(tmp_path):
    rank = Rank(0, 2)
    for place in range(2):
        args = {"Collective name": "allreduce", "In msg nelems": 5, "Out msg nelems": 5, "dtype": "Float"}
        rank.event("cpu_op", "record_param_comms", 100 + 10 * place, 2, **args)
    rank.event("user_annotation", "nccl:coalesced", 190, 20)
    rank.launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 200, 300, 50, 20)
    (one,) = read(rank, tmp_path).collectives
    assert (one.kind, one.in_bytes, one.out_bytes) == ("all_reduce", 40, 40)


def test_moments_in_nanoseconds_are_known_by_their_size(tmp_path):
    (one,) = read(summing(begin=17 * 10**17, lasts=50_000), tmp_path).collectives
    assert one.duration_s == pytest.approx(50e-6, abs=1e-6)


def test_traces_that_do_not_say_how_many_ranks_there_were(tmp_path):
    for number in range(3):
        summing(number, 3, in_args=False).write(tmp_path, distributedInfo={})
    traces = read_traces([tmp_path])
    assert [trace.ranks for trace in traces] == [3, 3, 3]
    assert "assumed to be these 3" in traces[0].notes[-1]


@pytest.mark.parametrize(("kind", "key"), [("send", "Dst Rank"), ("recv", "Src Rank")])
def test_a_message_names_its_other_end(tmp_path, kind, key):
    rank = Rank(0, 8)
    rank.collective(kind, 5, 5, "Long", 100, 10, group=[0, 4], **{key: 4, "Rank": 1})
    trace = read(rank, tmp_path, distributedInfo={})
    (one,) = trace.collectives
    assert (one.kind, one.peer, one.in_bytes) == (kind, 4, 40)


def test_a_send_recv_kernel_without_operator_may_be_many_things(tmp_path):
    rank = Rank(0, 2)
    rank.launched("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(x)", 90, 100, 10, 20)
    (one,) = read(rank, tmp_path).collectives
    assert one.kind == "sendrecv kernel"
    assert one.unknown == "its operator is not in the trace"


def test_a_kernel_of_a_cuda_graph_says_so(tmp_path):
    rank = Rank(0, 2)
    rank.launched("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 90, 100, 10, 20)
    rank.events[0]["name"] = "cudaGraphLaunch"
    (one,) = read(rank, tmp_path).collectives
    assert one.kind == "all_reduce"
    assert "graph" in one.unknown


def test_of_calls_alone_no_duration_is_invented(tmp_path):
    rank = Rank(1, 2)
    rank.collective("all_gather", 10, 20, "Float", 100, 50)
    rank.events = [event for event in rank.events if event["cat"] == "cpu_op"]
    trace = read(rank, tmp_path)
    (one,) = trace.collectives
    assert (one.kind, one.in_bytes, one.out_bytes, one.duration_s) == ("all_gather", 40, 80, None)
    assert "has calls, but no kernels" in trace.notes[0]


def test_a_cut_list_of_ranks_is_completed_by_its_stride_or_the_head(tmp_path):
    rank = Rank(0, 64)
    ranks = list(range(0, 64, 2))
    cut = {"Process Group Ranks": "[0, 2, 4, ...]"}
    stride, name = {"Global rank start": 0, "Global rank stride": 2}, {"Process Group Name": "7"}
    rank.collective("all_reduce", 1, 1, "Float", 100, 5, group=ranks, **cut, **stride)
    rank.collective("all_reduce", 1, 1, "Float", 200, 5, group=ranks, **cut, **name)
    config = [{"pg_name": "7", "pg_desc": "dp", "pg_size": 32, "ranks": ranks}]
    head = {"backend": "nccl", "rank": 0, "world_size": 64, "pg_config": config}
    found = read(rank, tmp_path, distributedInfo=head).collectives
    assert [one.group.ranks for one in found] == [tuple(ranks)] * 2


def test_text_for_processes_and_correlations_and_no_head_at_all(written):
    rank = summing(dtype="BFloat16")
    for event in rank.events:
        event.update(pid=str(event["pid"]), tid=f"thread {event['tid']}")
        if "correlation" in event["args"]:
            event["args"]["correlation"] = str(event["args"]["correlation"])
    path = written(json.dumps(rank.events), "worker_5.json")
    (trace,) = read_traces([path])
    (one,) = trace.collectives
    assert (trace.rank, one.in_bytes, one.called_s) == (5, 14, pytest.approx(2e-6))


def test_categories_of_pytorch_1_8(tmp_path):
    rank = summing(in_args=False)
    old = {"kernel": "Kernel", "cuda_runtime": "Runtime", "cpu_op": "Operator"}
    for event in rank.events:
        event["cat"] = old.get(event["cat"], event["cat"])
        if event["cat"] == "Kernel":
            event["name"] = "ncclAllReduceRingLLKernel_sum_f32(ncclColl)"
    (one,) = read(rank, tmp_path).collectives
    assert (one.kind, one.in_bytes, one.source) == ("all_reduce", 28, "operator")


def test_gpus_of_one_process_are_ranks(tmp_path):
    rank = Rank(0, 2)
    for device in (0, 1):
        rank.collective("all_reduce", 7, 7, "Float", 100, 50)
        rank.events[-1]["args"]["device"] = device
    traces = read_traces([rank.write(tmp_path)])
    assert [(trace.rank, len(trace.collectives)) for trace in traces] == [(0, 1), (1, 1)]


def test_folders_and_archives_are_gone_through(tmp_path):
    for number in (0, 1):
        summing(number).write(tmp_path)
    archive = tmp_path / "both.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for number in (0, 1):
            content = gzip.compress((tmp_path / f"rank{number}.json").read_bytes())
            info = tarfile.TarInfo(f"run/rank{number}.json.gz")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    inside = [trace.rank for trace in read_traces([archive])]
    archive.unlink()
    assert inside == [trace.rank for trace in read_traces([tmp_path])] == [0, 1]


EVENT = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 0, "ts": 1, "dur": 1}'
HEAD = f'{{"traceEvents": [{EVENT},\n'
REFUSED = [
    ("", "empty"),
    ("hello", "not a JSON object"),
    ("3", "not a JSON object"),
    ('"text"', "not a JSON object"),
    ("{}", "no 'traceEvents'"),
    ('{"traceEvents": []}', "without any event of the PyTorch profiler"),
    ('{"traceEvents": [{"ph": "X", "cat": "mine", "name": "a", "ts": 1}]}', "without any event"),
    ('{"traceEvents": {}}', "line 1, character 17: 'traceEvents' is not an array"),
    (f"{HEAD}{EVENT}", "line 2, character 180, event 2: broken or cut off JSON"),
    (f"{HEAD}{EVENT[:30]}", "line 2, .*event 2: broken or cut off JSON"),
    (f"{HEAD}]}}", "line 2.*a comma before the end"),
    (f"{HEAD}{EVENT}]}} {{}}", "something after the end"),
    (f"{HEAD}3]}}", "event 2: an event that is not an object"),
    (HEAD + EVENT.replace('"ts": 1', '"ts": "soon"') + "]}", "event 2: 'ts' is 'soon'"),
    (HEAD + EVENT.replace('"ts": 1', '"ts": NaN') + "]}", "'ts' is 'nan'"),
    (HEAD + EVENT.replace('"ts": 1,', "") + "]}", "'ts' is 'None'"),
    (HEAD + EVENT.replace('"dur": 1', '"dur": -1') + "]}", "'dur' is '-1'"),
    (HEAD + EVENT.replace('"name": "k"', '"name": 3') + "]}", "an event without a name"),
    (HEAD + EVENT.replace('"dur": 1', '"args": [1]') + "]}", "'args' that are not an object"),
    ("[" * 100_000, "nested too deep"),
]


@pytest.mark.parametrize(("text", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_is_no_trace_is_refused_with_its_place(written, text, words):
    path = written(text, "rank0.json")
    with pytest.raises(TraceError, match=words):
        read_traces([path])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("In msg nelems", -3),
        ("In msg nelems", "many"),
        ("Group size", 2.5),
        ("Seq", True),
        ("Out msg nelems", 2**70),
    ],
)
def test_a_figure_that_cannot_be_is_refused_with_its_place(tmp_path, key, value):
    with pytest.raises(TraceError, match=f"event 3: '{key}' is"):
        read(summing(**{key: value}), tmp_path)


def test_a_shape_that_no_tensor_has_is_refused(tmp_path):
    rank = Rank(0, 2, in_args=False)
    rank.collective("all_reduce", -7, -7, "Float", 100, 50)
    with pytest.raises(TraceError, match="is not a tensor's shape"):
        read_traces([rank.write(tmp_path)])


def test_files_that_are_cut_off_or_not_there(tmp_path):
    (tmp_path / "rank0.json.gz").write_bytes(SAMPLES[0].read_bytes()[:-500])
    (tmp_path / "empty").mkdir()
    (tmp_path / "rank2.json").write_bytes(b'{"a": "\xff"}')
    (tmp_path / "a.tar.gz").write_bytes(b"no archive")
    for name, words in {
        "rank0.json.gz": "cut off", "rank1.json": "no such file", "empty": "a folder without a trace",
        "rank2.json": "line 1: binary", "a.tar.gz": "cannot be read",
    }.items():  # fmt: skip
        with pytest.raises(TraceError, match=words):
            read_traces([tmp_path / name])


@pytest.mark.parametrize(
    ("worker", "other", "words"),
    [(0, "mi300x8_ddp", "both of rank 0"), (1, "a100x2_sized", "several jobs"), (1, "mi250", "unknown rank")],
)
def test_traces_of_several_jobs_are_not_mixed(worker, other, words):
    with pytest.raises(TraceError, match=words):
        read_traces([DATA / "dlrm" / f"worker{worker}.json.gz", DATA / f"{other}.json.gz"])
