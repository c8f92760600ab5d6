"""Suggestions of the command line for common mistakes."""

import re
import shlex

from ringside.topologies import MAKERS
from ringside.topologies.names import nearest, suggestions

MISTAKES = [
    ("simulat all_reduce --cluster star:4", "simulate"),
    ("simulate allreduce --cluster star:4 --library none", "nccl"),
    ("simulate all_redcue --cluster star:4", "all_reduce"),
    ("simulate reduce_scatter --cluster star:4 --algorithm bruk", "bruck"),
    ("simulate all_reduce --clustr star:4", "--cluster"),
    ("simulate all_reduce --cluster dgxh100:4", "dgx-h100"),
    ("simulate all_reduce --cluster DGX-A100:4", "dgx-a100"),
    ("simulate all_reduce --cluster dgx_h200:4", "dgx-h200"),
    ("simulate all_reduce --cluster leafspine:4", "leaf-spine"),
    ("simulate all_reduce --cluster dragonfli:24", "dragonfly"),
    ("simulate all_reduce --cluster fattree:16", "fat-tree"),
    ("simulate all_reduce --cluster awsp5:2", "aws-p5"),
    ("simulate all_reduce --cluster a3:2", "gcp-a3mega"),
    ("train --model resnet --cluster dgx-a100:2", "resnet50"),
    ("train --model meta-llama/Llama-3.1-8B --cluster dgx-a100:2", "llama3-8b"),
    ("simulate all_reduce --cluster star:4 --algorithm rign", "ring"),
    ("simulate all_reduce --cluster star:4 --algorithm double-binary-tree", "double_binary_tree"),
    ("simulate all_reduce --cluster star:4 --algorithm halving", "halving_doubling"),
    ("simulate all_reduce --cluster star:4 --set bandwith=3GB/s", "bandwidth"),
    ("simulate all_reduce --cluster dgx-h100:2 --set nics=3GB/s", "nic"),
    ("simulate all_reduce --cluster star:4 --library idael", "ideal"),
    ("simulate all_reduce --cluster star:4 --engine simpi", "simpy"),
    ("simulate all_reduce --cluster star:4 --dtype flaot16", "float16"),
    ("simulate all_reduce --cluster star:4 --network fiar", "fair"),
    ("simulate all_reduce --cluster star:4 --redop summ", "sum"),
    ("train --model resnet-50 --cluster dgx-a100:2", "resnet50"),
    ("train --model bert_large --cluster dgx-a100:2", "bert-large"),
    ("train --model llama3-8B --cluster dgx-a100:2 --tp 2 --schedle 1f1b", "--schedule"),
    ("train --model llama38b --cluster dgx-a100:2", "llama3-8b"),
    ("train --model gpt2 --cluster dgx-a100:2 --strategy fdsp", "fsdp"),
    ("train --model gpt2 --cluster dgx-a100:2 --pp 2 --schedule 1b1f --batch 4", "1f1b"),
    ("train --model gpt2 --cluster dgx-a100:2 --optimizer adm", "adam"),
    ("train --model gpt2 --cluster dgx-a100:2 --device H10", "h100"),
    ("train --model gpt2 --cluster dgx-a100:2 --precision bfloat61", "bfloat16"),
    ("simulate all_reduce --cluster dgx-h100:2 --algorithm rign", "Ring"),
    ("simulate all_reduce --cluster dgx-h100:2 --protocol sipmle", "Simple"),
    ("simulate all_reduce --cluster dgx-h100:2 --calibration auot", "auto"),
    ("goodput llama-405b", "llama3-405b"),
    ("collectives --library ncll", "nccl"),
    ("measur all_reduce -o o.jsonl", "measure"),
    ("measure all_redcue -o o.jsonl", "all_reduce"),
    ("measure dpp -o o.json", "ddp"),
    ("measure training -o o.json", "train"),
    ("measure elastik -o o.jsonl", "elastic"),
    ("measure ddp --modle sleeping -o o.json", "--model"),
    ("measure train --stratgy fsdp -o o.json", "--strategy"),
    ("validate train", "training"),
    ("validate disturbance", "disturbances"),
    ("scorecard trainings", "training"),
    ("pick all_reduce --cluster dgx-h100:2 --sizes 64M", "--size"),
]


def suggested(ringside, line):
    """Return the suggested names."""
    code, out, err = ringside(*shlex.split(line))
    assert code == 2, (line, out, err)
    found = re.search(r"write (.*) \(known: |did you mean(.*)|possible options(.*)", err, re.IGNORECASE)
    return "".join(filter(None, found.groups())) if found else ""


def test_most_plausible_mistakes_get_the_right_suggestion(ringside):
    missed = [(line, meant) for line, meant in MISTAKES if meant not in suggested(ringside, line)]
    assert len(MISTAKES) >= 30
    assert len(MISTAKES) - len(missed) >= 46, missed


def test_a_gpu_and_an_instance_name_the_machines_that_have_them():
    assert nearest("h100", MAKERS) == "dgx-h100"
    assert suggestions("gb200", MAKERS) == ["gb200-nvl72"]
    assert suggestions("p5", MAKERS) == ["aws-p5"]
    for name in MAKERS:
        for part in name.split("-"):
            assert len(part) < 2 or nearest(part, MAKERS) is not None
            assert all(part in one for one in suggestions(part, MAKERS)) or part in MAKERS
        assert suggestions(name, MAKERS)[0] == name


def test_a_model_that_is_none_is_told_what_else_may_stand_there(ringside):
    _, _, err = ringside(*shlex.split("train --model nothing --cluster star:2"))
    for source in ("resnet50", "FILE.py:NAME", ".yaml", ".json"):
        assert source in err


def test_nothing_is_suggested_for_what_is_like_nothing(ringside):
    _, _, err = ringside("simulate", "all_reduce", "--cluster", "qqqq:4")
    assert "write one of star, " in err
