"""Whatever a command writes: links stay links, devices stay devices."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sim.record import Record, read_lines, to_line

RECORD = Record(
    source="t", cluster="c", library="ideal", collective="all_reduce", algorithm="ring", num_nodes=1, ranks=4,
    nbytes=1024, time_s=1e-4, statistic="median",
)  # fmt: skip

OUTPUTS = [
    "topo star:4 -o out.yaml",
    "topo star:4 --plot out.svg",
    "topo star:4 --schedule ring --plot out.png",
    "simulate all_reduce --cluster star:4 --size 64K --trace out.json",
    "simulate all_reduce --cluster dgx-a100 --algorithm ring --engine simpy --size 1M --trace o.json",
    "pick all_reduce --cluster dgx-h100 --nodes 1 -b 1K -e 1M --tuner-csv out.csv",
    "pick all_reduce --cluster dgx-h100 --nodes 1 -b 1K -e 1M --plot out.pdf",
    "train --model resnet50 --cluster star:4 --trace out.json",
    "train --model resnet50 --cluster star:4 --plot out.svg",
    "calibrate fit.jsonl --cluster star -o out.yaml",
    "compare fit.jsonl --cluster star --plot out.svg",
    "measure all_reduce -o out.jsonl --size 1K",
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Measurements in it, and a measure that does not measure."""
    lines = [to_line(RECORD)] * 4
    (tmp_path / "fit.jsonl").write_text("\n".join(lines).replace('"nbytes": 1024', '"nbytes": 4096', 2))

    def measure(what, keep):
        keep(RECORD)
        keep(RECORD)

    monkeypatch.setattr("ringside.commands.measure.measure", measure)
    return tmp_path


@pytest.mark.parametrize("words", OUTPUTS)
def test_a_link_stays_one_and_what_it_leads_to_is_written(ringside, folder, words):
    *rest, name = words.split(" -o ", 1) if " -o " in words else words.rsplit(" ", 1)
    name, *more = name.split()
    (folder / "far").mkdir()
    target = folder / "far" / f"target{Path(name).suffix}"
    (folder / name).symlink_to(target)
    flag = ["-o"] if " -o " in words else []
    code, _, err = ringside(*rest[0].split(), *flag, name, *more)
    assert code == 0, err
    assert (folder / name).is_symlink()
    assert target.stat().st_size > 50
    assert os.listdir(folder / "far") == [target.name]


@pytest.mark.parametrize(
    "words", [words for words in OUTPUTS if "--plot" not in words and not words.startswith("measure")]
)
def test_a_full_device_stays_one_and_is_complained_of(ringside, folder, words):
    name = next(word for word in words.split() if word.startswith(("out.", "o.")))
    code, _, err = ringside(*words.replace(name, "/dev/full").split())
    assert code == 2
    assert "/dev/full: cannot be written: No space left on device; write another path" in err
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_records_are_added_to_a_file_and_poured_into_a_device_once(ringside, folder):
    for count in (2, 4):
        assert ringside(*"measure all_reduce -o out.jsonl --size 1K".split())[0] == 0
        assert len(read_lines((folder / "out.jsonl").read_text(), "out")) == count
    code, _, err = ringside(*"measure all_reduce -o /dev/full --size 1K".split())
    assert (code, "No space left" in err) == (2, True)
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert ringside(*"measure all_reduce -o pipe --size 1K".split())[0] == 0
    assert len(read_lines(os.read(reader, 1 << 16).decode(), "pipe")) == 2
    os.close(reader)


def test_a_full_standard_output_is_complained_of():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "ringside", "topo"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "ringside: [Errno 28] No space left on device\n"


def test_a_separator_of_unicode_breaks_no_record_in_two(ringside, folder):
    line = json.dumps({**json.loads(to_line(RECORD)), "site": "a\u2028b\x85c"}, ensure_ascii=False)
    (folder / "mine.jsonl").write_text(f"{line}\r\n{line}\n", encoding="utf-8", newline="")
    code, out, err = ringside(*"compare mine.jsonl --cluster star --json".split())
    assert code == 0, err
    assert len(json.loads(out)["rows"]) == 2
    assert [record.site for record in read_lines(f"{line}\r\n{line}\n", "m")] == ["a\u2028b\x85c"] * 2
