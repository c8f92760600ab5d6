"""Outputs of all commands: links remain links, devices remain devices."""

import json
import os
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from typer.models import OptionInfo

from ringside.cli import COMMANDS, command_of
from ringside.sim.goodput.elastic import ElasticRun
from ringside.sim.record import add, read_lines, to_line
from ringside.topologies.disk import held
from tests.made_up import RECORD

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
    """Make a folder of measurements, and replace the measurement."""
    lines = [to_line(RECORD)] * 4
    (tmp_path / "fit.jsonl").write_text("\n".join(lines).replace('"nbytes": 1024', '"nbytes": 4096', 2))

    def measure(what, keep, *_):
        keep(RECORD)
        keep(RECORD)

    monkeypatch.setattr("ringside.real.questions.collective_measurement.measure", measure)
    return tmp_path


@pytest.mark.parametrize("words", OUTPUTS)
def test_a_link_stays_one_and_what_it_leads_to_is_written(printed, folder, words):
    *rest, name = words.split(" -o ", 1) if " -o " in words else words.rsplit(" ", 1)
    name, *more = name.split()
    (folder / "far").mkdir()
    target = folder / "far" / f"target{Path(name).suffix}"
    (folder / name).symlink_to(target)
    flag = ["-o"] if " -o " in words else []
    printed(*rest[0].split(), *flag, name, *more)
    assert (folder / name).is_symlink()
    assert target.stat().st_size > 50
    assert os.listdir(folder / "far") == [target.name]


@pytest.mark.parametrize(
    "words", [words for words in OUTPUTS if "--plot" not in words and not words.startswith("measure")]
)
def test_a_full_device_stays_one_and_is_complained_of(refused, folder, words):
    name = next(word for word in words.split() if word.startswith(("out.", "o.")))
    message = refused(words.replace(name, "/dev/full"))
    assert "/dev/full: cannot be written: No space left on device; write another path" in message
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


def test_what_another_process_adds_meanwhile_stays(ringside, folder, monkeypatch):
    def measure(what, keep, *_):
        for _ in range(3):
            keep(RECORD)
            add(replace(RECORD, site="elsewhere"), folder / "out.jsonl")

    monkeypatch.setattr("ringside.real.questions.collective_measurement.measure", measure)
    assert ringside(*"measure all_reduce -o out.jsonl --size 1K".split())[0] == 0
    sites = [record.site for record in read_lines((folder / "out.jsonl").read_text(), "out")]
    assert sites == ["", "elsewhere"] * 3


def test_runs_that_another_process_adds_meanwhile_stay(ringside, folder, monkeypatch):
    run = ElasticRun(
        ranks=2, interval=1, steps=2, checkpoint_bytes=8, kills=(), wall_s=3.0, steps_s=(1.0, 1.0),
        kept_s=2.0, saves_s=(0.1, 0.1), first_start_s=0.5, restarts=(), fingerprint={},
    )  # fmt: skip
    output = folder / "out.jsonl"

    def measure(job, *_):
        with output.open("a") as other:
            other.write(replace(run, interval=7).line())
        return replace(run, interval=job.interval)

    monkeypatch.setattr("ringside.real.questions.elastic_measurement.measure_elastic", measure)
    words = "measure elastic -o out.jsonl --steps 2 --interval 1,2 --kills 0 --checkpoint 1K"
    assert ringside(*words.split())[0] == 0
    assert [json.loads(line)["interval"] for line in output.read_text().splitlines()] == [7, 1, 7, 2]


@pytest.mark.parametrize("command", ["measure ddp", "measure train"])
def test_steps_that_another_process_is_writing_are_left_to_it(refused, folder, command):
    with held(folder / "out.json"):
        message = refused(f"{command} -o out.json")
    assert "out.json: cannot be written: another process is writing it; write another path" in message
    assert sorted(os.listdir(folder)) == ["fit.jsonl"]


def test_a_full_standard_output_is_complained_of():
    with open("/dev/full", "w") as full:
        words = [sys.executable, "-m", "ringside", "topo"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "ringside: [Errno 28] No space left on device\n"


def test_a_separator_of_unicode_breaks_no_record_in_two(json_of, folder):
    line = json.dumps({**json.loads(to_line(RECORD)), "site": "a\u2028b\x85c"}, ensure_ascii=False)
    (folder / "mine.jsonl").write_text(f"{line}\r\n{line}\n", encoding="utf-8", newline="")
    assert len(json_of("compare mine.jsonl --cluster star")["rows"]) == 2
    assert [record.site for record in read_lines(f"{line}\r\n{line}\n", "m")] == ["a\u2028b\x85c"] * 2


ASKED = {
    "topo": "star:4",
    "simulate": "all_reduce --cluster star:4 --size 1M",
    "pick": "all_reduce --cluster dgx-h100:2",
    "train": "--model resnet50 --cluster star:2",
    "goodput": "llama3-405b",
    "measure": "all_reduce --size 1K",
    "measure ddp": "",
    "measure train": "",
    "measure compute": "",
    "measure elastic": "",
    "record": "job.py",
    "calibrate": "fit.jsonl --cluster star",
    "compare": "fit.jsonl --cluster star",
    "pairs": "fit.jsonl",
    "sweep": "study.yaml",
    "program": "job.py -g 2 --cluster star:2",
    "trace": "fit.jsonl",
}
"""What each command is asked, beside where its answer is to go."""

ENDINGS = {
    "plot": ".svg", "plot_memory": ".svg", "timeline": ".svg", "html": ".html", "trace": ".json",
    "animate": ".html", "tuner_csv": ".csv", "output": ".yaml", "export": ".goal",
}  # fmt: skip
"""Options that name what is written, with an ending that they take."""

READ = {"nccl_graph", "anchor", "megatron"}
"""Options that name a file that is read."""


def outputs() -> list[tuple[str, str]]:
    """Return every option of every command that names an output."""
    found = []
    for command in COMMANDS:
        hints = get_type_hints(command_of(command), include_extras=True)
        for name, hint in hints.items():
            kind, *about = get_args(hint) or (hint,)
            is_option = any(isinstance(one, OptionInfo) for one in about)
            if is_option and Path in (kind, *get_args(kind)) and name not in READ:
                found.append((command, name))
    return found


@pytest.mark.parametrize(("command", "option"), outputs())
def test_what_cannot_be_written_is_refused_before_any_work(refused, folder, monkeypatch, command, option):
    """Rights alone promise root that /proc takes files; that is found out before, not after half an hour."""

    def begun(*_):
        raise AssertionError("work began")

    for name in ("progress", "simulating"):
        monkeypatch.setattr(f"ringside.console.{name}", begun)
    monkeypatch.setattr("subprocess.Popen", begun)
    (folder / "study.yaml").write_text(
        "ask: simulate\noptions: {collective: all_reduce}\ngrid: {cluster: [star:2]}\n"
    )
    (folder / "job.py").write_text("def main(dist):\n    dist.all_reduce(8)\n")
    flag = {"output": "-o"}.get(option, f"--{option.replace('_', '-')}")
    asked = ASKED.get(command, "").split()
    words = [*command.split(), flag, f"/proc/ringside{ENDINGS[option]}", *asked]
    if command == "program" and option == "output":
        words = ["program", "job.py", "-g", "2", "--real", flag, "/proc/ringside.jsonl"]
    elif command.startswith("measure") and option != "output":
        words += ["-o", "out.json"]
    elif command == "sweep" and option == "html":
        words += ["-o", "rows"]
    message = refused(*words)
    assert any(word in message for word in ("written", "writable", "cannot create")), message
    assert sorted(os.listdir(folder)) == ["fit.jsonl", "job.py", "study.yaml"]
