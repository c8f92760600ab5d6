"""Forty mistakes of newcomers, and what each answer tells them to write."""

import shlex

import pytest

MISTAKES = [
    ("simulate all_reduce --cluster dgx-h100:2 --nic 2x", "ringside whatif with --try nic=2x"),
    ("simulate all_reduce --cluster dgx-h100:2 --nic 25GB/s", "--set nic=25GB/s"),
    ("simulate all_reduce --cluster star:4 --bandwidth 50GB/s", "--set bandwidth=50GB/s"),
    ("simulate all_reduce --cluster dgx-h100:2 --set nic=2x", "--try nic=2x"),
    ("simulate all_reduce --cluster dgx-h100:2 --set nic=400G", "400Gb/s"),
    ("simulate all_reduce --cluster dgx-h100:2 --set nic", "bandwidth=25GB/s"),
    ("whatif all_reduce --cluster dgx-h100:2 --nic 2x", "--try nic=2x"),
    ("whatif all_reduce --cluster dgx-h100:2 nic=2x", "--try nic=2x"),
    ("simulate all_reduce --cluster dgx-h100:2 --size 64 MB", "64M"),
    ("simulate all_reduce --cluster dgx-h100:2 --size 64Mb", "25MiB"),
    ("simulate all_reduce --cluster dgx-h100:2 -n 4", "-g 4"),
    ("simulate all_reduce --cluster dgx-h100:2 --gpus 8", "-g 8"),
    ("train --model llama3-70b --cluster dgx-h100:2 --gpus 16", "-g 16"),
    ("train --model resnet50 --cluster dgx-a100 --nodes 4", "--cluster NAME:4"),
    ("simulate all_reduce", "--cluster dgx-h100:2"),
    ("simulate --cluster dgx-h100:2", "all_reduce"),
    ("simulate all_reduce dgx-h100:2", "--cluster dgx-h100:2"),
    ("simulate all_reduce --cluster dgx-h100:two", "dgx-h100:4"),
    ("simulate all_reduce --cluster dgx-h10:2", "dgx-h100"),
    ("simulate all_reduce --cluster star:4 --size 1M --json out.json", "--json > out.json"),
    ("simulate all_reduce --cluster star:4 -b 1M -e 4M --plot out.jpg", ".png"),
    ("simulate all_reduce --cluster star:4 --size 1M --plot out.png", "several sizes"),
    ("simulate all_reduce --cluster dgx-h100:2 --dtype fp16", "float16"),
    ("simulate all_reduce --cluster dgx-h100:2 --library NCCL", "nccl"),
    ("simulate all_reduce --cluster star:4 --algo ring", "--algorithm"),
    ("pick all_reduce --cluster star:4 --algorithms ring,tree", "--algorithm"),
    ("train resnet50 --cluster dgx-a100:2", "--model resnet50"),
    ("train --model llama3-70b", "--cluster dgx-h100:2"),
    ("train --model meta-llama/Llama-3-70B --cluster dgx-h100:2", "llama3-70b"),
    ("train --model gpt2 --cluster dgx-h100:2 --strategy FSDP", "fsdp"),
    ("train --model gpt2 --cluster dgx-h100:2 --strategy zero", "zero3"),
    ("train --model resnet50 --cluster dgx-a100:2 --batch-size 32", "--batch"),
    ("train --model train.py --cluster dgx-h100:2", "FILE.py:NAME"),
    ("predict all_reduce --cluster dgx-h100:2", "ringside simulate"),
    ("hang trace.json", "ringside program"),
    ("help", "ringside -h"),
    ("topo dgx-h100 2", "NAME:2"),
    ("measure all_reduce -g 2", "-o"),
    ("explain", "nccl-tests.log"),
    ("compare empty.log", "nccl-tests"),
    ("goodput --nodes 16", "--mtbf 8h"),
    ("goodput --nodes 16 --mtbf 3", "1.5ms or 2s"),
    ("program notes.txt", "-g N"),
    ("expect all_reduce", "--cluster dgx-h100:2"),
    ("sweep", "--example"),
    ("scorecard nccl", "collectives"),
    ("simulate all_reduce --cluster dgx-h100:2 --bytes 64M", "write --size 64M"),
    ("train --model llama3-8b --cluster dgx-h100:2 --fsdp", "write --strategy fsdp"),
    ("plot x", "--plot times.svg"),
    ("whatif all_reduce --cluster dgx-h100:2 --try nic=half", "nic=0.5x"),
    ("whatif all_reduce --cluster dgx-h100:2 --try oversubscription=2", "--set fabric="),
    ("whatif all_reduce --cluster dgx-h100:2 --set fabric=fat_tree --try radix=many", "radix"),
    ("simulate all_reduce --cluster dgx-h100:2 --set oversubscription=2", "--set fabric="),
    ("train --model gpt2 --cluster dgx-h100:2 --set oversubscription=2", "--set fabric="),
    ("topo dgx-h100:2 --set radix=32", "--set fabric="),
    ("topo --cluster dgx-h100:2", "write dgx-h100:2 alone"),
    ("simulate --collective all_reduce --cluster dgx-h100:2", "write all_reduce alone"),
    ("simulate all_reduce --cluster star:4 --algorithm tree --algorithm ring", "write it once"),
    ("simulate all_reduce --cluster star:4 --size 1M --size 4M", "write it once, with commas"),
    ("simulate all_reduce --cluster b100:2", "write dgx-b200"),
    ("simulate all_reduce --cluster dgx-b100:2", "write dgx-b200"),
]
MOST_MISSED = 0


def test_forty_mistakes_are_answered_with_what_to_write(ringside, tmp_path):
    (tmp_path / "empty.log").touch()
    (tmp_path / "notes.txt").write_text("hello\n", encoding="utf-8")
    missed = {}
    for line, written in MISTAKES:
        code, out, err = ringside(*shlex.split(line))
        if (code, out) != (2, "") or written not in err:
            missed[line] = err
    assert len(MISTAKES) >= 40
    assert len(missed) <= MOST_MISSED, missed


INSTANCES = {
    "p5": "aws-p5", "p5.48xlarge": "aws-p5", "p4d.24xlarge": "aws-p4d", "a3-megagpu-8g": "gcp-a3mega",
    "ND96isr_H100_v5": "azure-ndv5", "h100": "dgx-h100", "gb200": "gb200-nvl72", "H100": "dgx-h100",
}  # fmt: skip


@pytest.mark.parametrize("name", INSTANCES)
def test_a_clouds_instance_is_a_cluster(rows_of, name):
    line = "simulate all_reduce --size 64M --cluster"
    assert rows_of(f"{line} {name}:1") == rows_of(f"{line} {INSTANCES[name]}:1")


@pytest.fixture
def rows_of(json_of):
    """Return the rows of an answer."""
    return lambda line: json_of(line)["rows"]


def test_no_alias_names_two_machines():
    from ringside.topologies.machine import called, machine, machines
    from ringside.topologies.names import plain

    aliases = [plain(str(one)) for name in machines() for one in machine(name).aliases]
    assert len(aliases) == len(set(aliases)) > 40
    assert not set(aliases) & set(map(plain, machines()))
    assert all(called(str(one)) == name for name in machines() for one in machine(name).aliases)


@pytest.mark.parametrize("gpu", ["A10", "L40S", "RTX 4090", "RTX PRO 6000", "MI300X"])
def test_ten_lines_know_the_slots_of_common_cards(ringside, written, gpu):
    written(f"machine: pcie-server\ngpu: {gpu}\ngpus: 4\nnics: 1\nnic: 100Gb/s\nnodes: 2\n", "mine.yaml")
    code, out, err = ringside("topo", "mine.yaml")
    assert code == 0, err
    assert "pcie" in out
