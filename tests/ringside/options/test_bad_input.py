"""Invalid files and places: one clear message on stderr, exit code 2, nothing written."""

import socket

import pytest

from ringside.sim.record import to_line
from tests.made_up import record

MEASURE = "measure all_reduce -o out.jsonl --size 4K"


RECORD = to_line(record(cluster="a", ranks=2, time_s=1e-3))

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
def test_files(refused, tmp_path, name):
    words, content, messages = FILES[name]
    file = tmp_path / next(word for word in words.split() if word.startswith("f."))
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = file.read_bytes()
    err = refused(words)
    for message in messages:
        assert message in err
    assert [entry for entry in tmp_path.iterdir() if entry != file] == []
    assert file.read_bytes() == before


def test_busy_port(refused):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        err = refused(f"{MEASURE} --rdzv-endpoint 127.0.0.1:{port}")
        assert f"port {port} of 127.0.0.1 is busy" in err


@pytest.mark.slow
def test_port_busy_with_a_stranger_where_a_second_node_should_be(refused):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        err = refused(f"{MEASURE} --nnodes 2 --rdzv-endpoint 127.0.0.1:{port}")
        assert "busy" in err


def test_unwritable_output(refused, tmp_path):
    (tmp_path / "out.jsonl").mkdir()
    assert "is a folder" in refused(MEASURE)


def test_demo_leaves_a_folder_of_somebody_else_alone(refused, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    assert "contains other files" in refused("demo", "-o", "mine")
    assert [entry.name for entry in (tmp_path / "mine").iterdir()] == ["thesis.tex"]
