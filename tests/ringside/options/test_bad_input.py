"""Any invalid input: one clear message on stderr, exit code 2, nothing written."""

import socket

import pytest

from ringside.sim.record import Record, to_line

SIMULATE = "simulate all_reduce --cluster star:4 --size 1M"
MEASURE = "measure all_reduce -o out.jsonl --size 4K"
LAID_OUT = "train --model gpt2 --cluster dgx-h100:2"

WORDS = [
    # clusters and their settings
    ("simulate all_reduce --cluster stern:4", "unknown cluster 'stern'"),
    ("simulate all_reduce --cluster star:0", "'0'"),
    ("simulate all_reduce --cluster star:-4", "'-4' is not a count"),
    ("simulate all_reduce --cluster star:4x", "'4x' is not a count"),
    ("simulate all_reduce --cluster star:9999999999", "allowed: 1 to"),
    ("simulate all_reduce --cluster star", "ranks: is missing"),
    ("simulate all_reduce --cluster nowhere.yaml", "no such file"),
    (f"{SIMULATE} --set bandwidth=400G", "'400G' is not a rate; write for example 400Gb/s or 50GB/s"),
    (f"{SIMULATE} --set bandwidth=25", "'25' is not a rate"),
    (f"{SIMULATE} --set bandwidth=0GB/s", "above 0"),
    (f"{SIMULATE} --set bandwidth=-1GB/s", "negative"),
    (f"{SIMULATE} --set latency=5", "'5' is not a duration"),
    (f"{SIMULATE} --set latency=-5us", "negative"),
    (f"{SIMULATE} --set speed=1GB/s", "speed: is not known; allowed: ranks, bandwidth, latency"),
    (f"{SIMULATE} --set bandwidth", "is not a setting"),
    (f"{SIMULATE} --set =5us", "is not a setting"),
    # what to simulate
    ("simulate all_reduces --cluster star:4", "unknown collective 'all_reduces'"),
    (f"{SIMULATE} --algorithm rings", "unknown algorithm 'rings'"),
    ("simulate all_gather --cluster star:4 --algorithm tree", "tree does not do all_gather"),
    (f"{SIMULATE} --library mpich", "unknown library 'mpich'"),
    (f"{SIMULATE} --engine quick", "unknown engine 'quick'"),
    (f"{SIMULATE} --dtype float31", "unknown dtype 'float31'"),
    (f"{SIMULATE} --algorithm tree --engine model", "no closed form"),
    (f"{SIMULATE} -g 0", "-g 0"),
    (f"{SIMULATE} -g 5", "5 ranks, but star has 4"),
    (f"{SIMULATE} -g -1", "-1"),
    # studies
    ("sweep", "no study; write its file, or --example for one"),
    ("sweep no.yaml -o out", "cannot be read: No such file or directory; ringside sweep --example"),
    # sizes
    ("simulate all_reduce --cluster star:4 --size -1", "negative"),
    ("simulate all_reduce --cluster star:4 --size 1Q", "'1Q' is not a size"),
    ("simulate all_reduce --cluster star:4 --size 1e99", "is too large"),
    ("simulate all_reduce --cluster star:4 --size 2048T", "allowed: up to 1 PiB"),
    ("simulate all_reduce --cluster star:4 --size 0.3", "whole number of bytes"),
    ("simulate all_reduce --cluster star:4 -b 2M -e 1M", "more than --end"),
    ("simulate all_reduce --cluster star:4 -b 0 -e 1M", "--begin 0"),
    ("simulate all_reduce --cluster star:4 -f 1", "'-f'"),
    ("simulate all_reduce --cluster star:4 -f two", "'-f'"),
    # files that are not there or cannot be written
    (f"{SIMULATE} --trace no/such/folder/t.json", "write another path"),
    (f"{SIMULATE} --calibration no.yaml", "no.yaml: no such file; write one of auto, none, family:NAME"),
    ("simulate all_reduce --cluster star:4 --trace t.json", "a trace shows one size"),
    # other tools' formats
    (f"{SIMULATE} --export x.et", "not a format of schedules; write a name that ends in .xml, .goal"),
    (f"{SIMULATE} --export no/such/folder/x.xml", "write another path"),
    ("simulate all_reduce --cluster star:4 --export x.xml", "--export shows one size"),
    ("simulate sendrecv --cluster star:4 --size 4K --export x.xml", "MSCCL has no sendrecv"),
    ("simulate no.xml --cluster star:4", "no.xml: no such file"),
    ("program no.goal", "no.goal: no such file"),
    ("program no.0.et --cluster star:4", "no.0.et: no such file"),
    ("program .", "a folder without Chakra traces"),
    ("topo star:4 --plot t.bmp", "write a name that ends in"),
    ("topo star:4 --plot no/such/folder/t.svg", "write another path"),
    ("topo nothing", "unknown cluster"),
    ("topo --channels", "the cluster is missing; write its name first"),
    ("topo star:4 --channels", "NCCL's choices on star depend on its GPUs"),
    ("simulate all_reduce --cluster mi300x --library nccl", "RCCL runs on AMD's GPUs"),
    ("topo h100-1gpu:1 --channels", "one rank without peers"),
    ("topo dgx-h100:2 --channels --plot t.svg", "--channels only prints"),
    ("topo dgx-h100 --set ranks_per_gpu=0 --channels", "write a count of 1 to 64"),
    ("compare no.jsonl --cluster star", "no.jsonl"),
    ("calibrate no.jsonl --cluster star -o c.yaml", "no.jsonl"),
    ("compare no.jsonl --cluster star --max-error 10", "invalid percentage '10'"),
    # what cannot be measured
    (f"{MEASURE} -g 0", "0 ranks"),
    (f"{MEASURE} -n 0", "at least 1"),
    (f"{MEASURE} --backend mpich", "unknown backend 'mpich'"),
    (f"{MEASURE} --backend nccl -g 99", "99 ranks need 99 GPUs|needs a CUDA GPU"),
    (f"{MEASURE} --algorithm rings", "unknown algorithm 'rings'"),
    (f"{MEASURE} --nnodes 2", "--rdzv-endpoint"),
    (f"{MEASURE} --rdzv-endpoint nowhere", "not a rendezvous endpoint"),
    (f"{MEASURE} --rdzv-endpoint localhost:99999", "not a rendezvous endpoint"),
    (f"{MEASURE} --dtype float31", "unknown dtype 'float31'"),
    ("measure all_gather -o out.jsonl --size 4 -g 2", "less than one float32 per part"),
    ("measure all_reduce -o no/such/folder/out.jsonl", "write another path"),
    ("measure all_reduce", "'-o'"),
    (
        f"{MEASURE} --model m.py:f",
        "--model is not an option of ringside measure, but of ringside measure ddp",
    ),
    (
        "measure ddp -o out.json --nnodes 2",
        "--nnodes is not an option of ringside measure ddp, but of ringside measure;",
    ),
    ("measure ddp -o out.json -g 1", "1 ranks share no gradients"),
    ("measure ddp -o out.json --workers 0", "0 workers; write 1"),
    ("measure ddp -o out.json --model m.py:f", "m.py: no such file; write FILE.py:NAME"),
    ("measure ddp -o out.json --bucket-cap-mb -1", "a bucket cap of -1"),
    ("compare none.jsonl", "none.jsonl: no such file"),
    ("train --model m.py:f --cluster star:2", "m.py: no such file; write FILE.py:NAME"),
    # layouts that cannot be, each with what would fit
    (f"{LAID_OUT} --tp 3", "write degrees whose product is one of 1, 2, 4, 8, 16"),
    (f"{LAID_OUT} --cp 5", "do not divide by --tp 1 times --cp 5 times --pp 1; write degrees"),
    (f"{LAID_OUT} --cp 2 --cp-method rings", "unknown context-parallel method 'rings'; write one of ring,"),
    (
        f"{LAID_OUT} --strategy zero3 --cp 2 --cp-method ring",
        "write --cp-method ulysses and leave --tp and --pp out",
    ),
    (f"{LAID_OUT} --strategy hybrid_zero --cp 2", "--cp 2 is not modelled with --strategy hybrid_zero"),
    (f"{LAID_OUT} --cp-method ring", "needs context-parallel ranks; add --cp 2, or leave it out"),
    (f"{LAID_OUT} --cp 8 --cp-method ulysses", "12 key-value heads of a rank do not divide by 8"),
    (
        f"{LAID_OUT} --cp 2 --seq 1022",
        "does not divide into 4 pieces for 2 context-parallel ranks; write",
    ),
    (
        f"{LAID_OUT} --tp 2 --async-tp",
        "gathers and scatters of sequence parallelism; add --sequence-parallel",
    ),
    (f"{LAID_OUT} --model resnet50 --cp 2", "--cp 2 needs a decoder"),
    (f"{LAID_OUT} --tp 16", "12 heads do not divide by 16 tensor-parallel ranks; write one of"),
    (f"{LAID_OUT} -g 6 --cluster dgx-h100:1 --tp 4", "write degrees whose product is one of 1, 2, 3, 6"),
    (
        f"{LAID_OUT} --cluster dgx-h100:3 --tp 6",
        "straddle machines of 8 unevenly; write one of 1",
    ),
    (f"{LAID_OUT} --batch 99999999 --strategy fsdp", "the maximum is 5,000,000; write a smaller --batch"),
    (f"{LAID_OUT} --pp 16 --batch 64 --schedule looped_bfs", "leave a stage without layers"),
    (f"{LAID_OUT} --pp 2 --schedule dualpipev --batch 2", "dualpipev on 2 ranks needs 4 or more; write a"),
    (f"{LAID_OUT} --pp 4 --micro-batch 3", "write --micro-batch 1, 2, 4, 8, 16, 32"),
    (f"{LAID_OUT} --pp 2 --schedule 1f1b --virtual 2", "with 2 one of interleaved1f1b"),
    (f"{LAID_OUT} --pp 2 --schedule fast", "unknown pipeline schedule 'fast'; write one of gpipe"),
    (f"{LAID_OUT} --schedule zbv", "--schedule needs a pipeline; add --pp 2"),
    (f"{LAID_OUT} --strategy fsdp --bucket-cap-mb 5", "--bucket-cap-mb applies to plain Distributed"),
    (
        f"{LAID_OUT} --strategy fsdp --sweep nodes=1,2",
        "--sweep applies to plain DistributedDataParallel",
    ),
    (f"{LAID_OUT} --strategy fsdp --tp 8 --pp 2", "leave one of 16; write smaller degrees"),
    (f"{LAID_OUT} --strategy fsdp --straggler 99=2", "rank 99 is slow; allowed: ranks 0 to"),
    (f"{LAID_OUT} --strategy fsdp --accumulation 2", "write --batch for all samples and --micro-batch"),
    (f"{LAID_OUT} --strategy fsdp --shard 2", "--shard applies to hsdp and hybrid_zero, and --strategy"),
    (f"{LAID_OUT} --strategy hybrid_zero --shard 3", "write one of 1, 2, 4, 8, 16"),
    (f"{LAID_OUT} --strategy zero2 --pp 2", "DeepSpeed has no pipeline under zero2"),
    (f"{LAID_OUT} --strategy zero1 --pp 2 --schedule zbv", "has no zbv pipeline; write --schedule 1f1b"),
    (f"{LAID_OUT} --strategy zero_redundancy --tp 2", "broadcasts whole tensors and cannot handle cut ones"),
    (
        f"{LAID_OUT} --strategy zero_offload",
        "to the host, which is not simulated; write --strategy zero3",
    ),
    (f"{LAID_OUT} --strategy zero3 --bucket-cap-mb 5", "--bucket-cap-mb applies to plain Distributed"),
    (f"{LAID_OUT} --strategy hsdp --shard 3", "write one of --shard 2, 4, 8"),
    (f"{LAID_OUT} --strategy hsdp --tp 4 --pp 4", "and --tp 4; write --strategy ddp"),
    (f"{LAID_OUT} --strategy hsdp --tp 4 --pp 2", "and --tp 4; write --strategy fsdp"),
    (f"{LAID_OUT} --tp 2 --sequence-parallel --async-tp", "or leave --async-tp out: Megatron's"),
    (f"{LAID_OUT} --strategy fsdp1 --pp 2 --schedule zbv", "or --schedule 1f1b or gpipe"),
    (f"{LAID_OUT} --strategy fsdp1 --library gloo", "FSDP1 does not run on CPUs"),
    (
        f"{LAID_OUT} --overlap-grad-reduce",
        "needs --strategy distributed_optimizer, not ddp; leave it out",
    ),
    (
        f"{LAID_OUT} --strategy distributed_optimizer --overlap-param-gather",
        "only with --overlap-grad-reduce; a",
    ),
    (f"{LAID_OUT} --strategy zero2 --no-sync", "and FSDP, and --strategy is zero2; leave it out"),
    (
        f"{LAID_OUT} --strategy fsdp1 --pp 2 --no-sync",
        "FSDP1 reduce gradients in every backward; leave --no-sy",
    ),
    (f"{LAID_OUT} --sequence-parallel", "and there is one; add --tp 2"),
    (f"{LAID_OUT} --tp 4 --seq 1023 --sequence-parallel", "1023 tokens of a sequence do not divide by 4"),
    (f"{LAID_OUT} --model resnet50 --tp 2", "needs a decoder, and resnet50 is none; leave it out"),
    (
        f"{LAID_OUT} --ep 2",
        "--ep needs a mixture of experts, and gpt2 is none; leave it out, or write --model",
    ),
    (f"{LAID_OUT} --model resnet50 --ep 2", "leave it out, or write --model mixtral-8x7b"),
    (f"{LAID_OUT} --model mixtral-8x7b --ep 3", "--ep 3 does not divide the 16 data-parallel ranks"),
    (f"{LAID_OUT} --model mixtral-8x7b --ep 16", "8 experts do not divide by 16 expert-parallel ranks"),
    (f"{LAID_OUT} --model mixtral-8x7b --ep 8 --tp 2", "to the experts of mixtral-8x7b; add --sequence-par"),
    (f"{LAID_OUT} --model mixtral-8x7b --ep 2 --ep-imbalance 3", "has 3 times the mean; write 1 to 2"),
    (f"{LAID_OUT} --model mixtral-8x7b --ep 2 --capacity-factor 0", "write for example 1.25"),
    (f"{LAID_OUT} --model mixtral-8x7b --strategy hsdp --ep 2", "--ep 2 is not modelled with --strategy"),
    (f"{LAID_OUT} --strategy fsdp --measured 1e9@16", "collectives alone allow"),
    ("scorecard weather", "unknown scorecard 'weather'; write one of collectives, training, mpi"),
    ("scorecard --table mlperf", "--table needs training; write training, or leave it out"),
    ("scorecard training --table glue", "unknown table 'glue'; write one of"),
    ("scorecard training --plot out.txt", "not a picture format"),
    ("validate weather", "write one of collectives, ddp, training, disturbances"),
    ("trace", "Missing argument"),
    ("trace none.json", "none.json: no such file; expected a trace of the PyTorch profiler"),
    ("trace .", "a folder without a trace"),
    ("trace none.json --library ideal", "--library has no effect without a cluster; add --cluster NAME"),
    ("trace none.json --set bandwidth=1Gb/s --network fair", "--settings, --network has no effect"),
    ("trace none.json --plot t.bmp", "write a name that ends in"),
    ("trace none.json --trace no/such/folder/t.json", "write another path"),
    ("mesure", "No such command"),
]


def complaint(result):
    code, out, err = result
    assert code == 2, (code, out, err)
    assert err.strip()
    assert "Traceback" not in out + err
    return err


@pytest.mark.parametrize(("words", "message"), WORDS, ids=[words for words, _ in WORDS])
def test_words(ringside, tmp_path, words, message):
    err = complaint(ringside(*words.split()))
    flat = " ".join(err.replace("│", " ").split())
    assert any(part in flat for part in message.split("|"))
    assert not list(tmp_path.iterdir())


RECORD = to_line(
    Record(source="t", cluster="a", library="ideal", collective="all_reduce", algorithm="ring", num_nodes=1,
           ranks=2, nbytes=1024, time_s=1e-3, statistic="median")
)  # fmt: skip

FILES = {
    "three mistakes": (
        "topo f.yaml",
        "nodes:\n  a: {kind: gpu, rank: zero}\n  b: {kind: toaster}\n"
        "cables:\n  - {ends: [a, b], kind: ethernet, bandwidth: 400G}\n",
        ("nodes.a.rank", "nodes.b.kind", "'400G' is not a rate"),
    ),
    "broken contract": (
        "topo f.yaml",
        "nodes:\n  a: {kind: gpu, rank: 0}\n  b: {kind: gpu, rank: 0}\ncables: []\n",
        ("both have rank 0",),
    ),
    "not YAML": ("topo f.yaml", "nodes: [", ("not YAML",)),
    "no mapping": ("topo f.yaml", "- 1\n", ("holds no mapping",)),
    "unknown maker": ("topo f.yaml", "maker: stern\nranks: 4\n", ("unknown cluster",)),
    "binary": ("compare f.log --cluster star", b"\x7fELF\x00\xff\xfe" * 40, ("f.log",)),
    "empty": ("compare f.log --cluster star", "", ("f.log",)),
    "record cut off": ("compare f.jsonl --cluster star", RECORD[:80], ("f.jsonl",)),
    "record of another version": (
        "compare f.jsonl --cluster star", RECORD.replace('"record": 1', '"record": 9'), ("version 9",)
    ),
    "record without time": (
        "compare f.jsonl --cluster star", RECORD.replace('"time_s": 0.001, ', ""), ("time_s",)
    ),
    "two clusters": (
        "compare f.jsonl --cluster star",
        RECORD + "\n" + RECORD.replace('"cluster": "a"', '"cluster": "b"'),
        ("several clusters cannot be mixed: a, b",),
    ),
    "too few rows": ("calibrate f.jsonl --cluster star -o c.yaml", RECORD, ("too few records",)),
    "no calibration": (
        "simulate all_reduce --cluster star:4 --calibration f.yaml", "a: 1\n", ("not a calibration",)
    ),
    "output is no record file": (
        "measure all_reduce --size 4K -o f.txt", "my thesis\n", ("f.txt, line 1: not a record",)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_files(ringside, tmp_path, name):
    words, content, messages = FILES[name]
    file = tmp_path / next(word for word in words.split() if word.startswith("f."))
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = file.read_bytes()
    err = complaint(ringside(*words.split()))
    for message in messages:
        assert message in err
    assert [entry for entry in tmp_path.iterdir() if entry != file] == []
    assert file.read_bytes() == before


def test_busy_port(ringside):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        err = complaint(ringside(*f"{MEASURE} --rdzv-endpoint 127.0.0.1:{port}".split()))
        assert f"port {port} of 127.0.0.1 is busy" in err


@pytest.mark.slow
def test_port_busy_with_a_stranger_where_a_second_node_should_be(ringside):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        err = complaint(ringside(*f"{MEASURE} --nnodes 2 --rdzv-endpoint 127.0.0.1:{port}".split()))
        assert "busy" in err


def test_unwritable_output(ringside, tmp_path):
    (tmp_path / "out.jsonl").mkdir()
    assert "is a folder" in complaint(ringside(*MEASURE.split()))


def test_demo_leaves_a_folder_of_somebody_else_alone(ringside, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    assert "contains other files" in complaint(ringside("demo", "-o", "mine"))
    assert [entry.name for entry in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
