"""Command lines whose answers are golden: `answers.json` has them.

A changed answer is a decision: ``python -m tests.golden.questions`` rewrites the file, and the commit says
why.
"""

import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

ROOT = Path(__file__).parents[2]
ANSWERS = Path(__file__).with_name("answers.json")
PUBLISHED = ROOT / "validation/published"
LOGS = ROOT / "tests/validation/data"

SIMULATE = """
all_reduce --cluster star:64 --algorithm ring --size 1G
all_reduce --cluster star:64 --algorithm ring -b 1K -e 64M -f 64
all_reduce --cluster star:64 --algorithm double_binary_tree -b 1K -e 16M -f 128
all_reduce --cluster star:64 --algorithm tree -b 1K -e 16M -f 128
all_reduce --cluster star:12 --algorithm halving_doubling --size 16M
all_reduce --cluster star:16 --algorithm direct --size 1M
all_reduce --cluster star:8 -b 8 -e 128M -f 64
all_reduce --cluster star:256 --algorithm ring --size 64M --engine model
all_gather --cluster star:16 --size 16M
reduce_scatter --cluster star:16 --size 16M
broadcast --cluster star:16 --size 16M
reduce --cluster star:9 --size 1M
all_to_all --cluster star:16 --size 16M
gather --cluster star:5 --size 1M
scatter --cluster star:5 --size 1M
sendrecv --cluster star:4 --size 1M
all_reduce --cluster leaf-spine:4 --algorithm ring --size 16M
all_reduce --cluster leaf-spine:4 --algorithm halving_doubling --size 16M
all_reduce --cluster leaf-spine:4 --set oversubscription=4 --algorithm halving_doubling --size 16M
all_to_all --cluster leaf-spine:2 --set oversubscription=2 --size 16M
all_reduce --cluster fat-tree:16 --set radix=4 --algorithm halving_doubling --size 16M
all_to_all --cluster fat-tree:16 --set radix=4 --set ecmp=hash --size 16M
all_reduce --cluster torus:16 --algorithm ring --size 16M
all_to_all --cluster dragonfly:24 --set hosts_per_router=2 --set routers=3 --set global_links=1 --size 16M
all_to_all --cluster rail-optimized:16 --set rails=4 --set radix=8 --size 16M
all_to_all --cluster dgx-a100:3 --set fabric=fat_tree --set radix=8 --library ideal --size 16M
all_reduce --cluster dgx-h100:64 --set fabric=rail_optimized --set oversubscription=7 --size 1G
all_reduce --cluster dgx-h100:8 --set fabric=leaf_spine --times pipeline --algorithm ring --size 1G
all_reduce --cluster leaf-spine:4 --set oversubscription=4 --algorithm ring --size 16M --links --top 3
all_reduce --cluster dgx-h100:2 --library ideal --size 16M
all_reduce --cluster dgx-a100:2 --library ideal --algorithm ring -b 1K -e 16M -f 128
all_reduce --cluster dgx1-v100:1 --library ideal --algorithm direct --size 16M
all_reduce --cluster star:4 --library gloo -b 1K -e 16M -f 128
all_gather --cluster star:4 --library gloo --size 4M
all_to_all --cluster star:4 --library gloo --size 4M
broadcast --cluster star:5 --library gloo --size 4M
all_reduce --cluster star:4 --library gloo --size 4M --dtype float64
all_reduce --cluster dgx-h100:2 -b 1K -e 1G -f 32
all_reduce --cluster dgx-h100:2 --size 1M
all_reduce --cluster dgx-h100:1 -b 1K -e 1G -f 32
all_reduce --cluster dgx-a100:16 -b 1K -e 1G -f 32
all_reduce --cluster dgx-a100:2 --nccl-version 2.18 -b 1K -e 1G -f 32
all_reduce --cluster dgx1-v100:1 -b 1K -e 1G -f 32
all_reduce --cluster dgx2-v100:2 -b 1K -e 1G -f 32
all_reduce --cluster a100-pcie4:2 -b 1K -e 1G -f 32
all_reduce --cluster dgx-h100:2 --algorithm ring --protocol simple --size 256M
all_reduce --cluster dgx-h100:2 --algorithm ring --protocol simple --size 16M --engine simpy
all_reduce --cluster dgx-h100:2 --algorithm tree --protocol ll128 --size 1M --engine simpy
all_gather --cluster dgx-h100:4 -b 1K -e 1G -f 32
reduce_scatter --cluster dgx-a100:4 -b 1K -e 1G -f 32
broadcast --cluster dgx-h100:2 --size 16M
all_to_all --cluster dgx-h100:2 --size 16M
sendrecv --cluster dgx-h100:2 --size 1M
all_reduce --cluster dgx-h100:1 --algorithm nvls --size 256M --engine simpy
all_reduce --cluster dgx-h100:2 --size 64M --engine simpy
all_gather --cluster h100-1gpu:16 --algorithm pat --size 1M --engine simpy
all_to_all --cluster dgx-h100:2 --size 16M --engine simpy
sendrecv --cluster dgx1-v100:1 --size 16M --engine simpy
all_reduce --cluster dgx-h100:1 -g 4 --size 16M
all_reduce --cluster star:64 --algorithm double_binary_tree -b 1K -e 16M -f 128 --network fair
all_reduce --cluster leaf-spine:2 --set oversubscription=4 --algorithm tree --size 4M --network fair
all_to_all --cluster star:4 --library gloo --size 4M --network fair
all_reduce --cluster dgx-h100:2 --size 16M --network fair
all_reduce --cluster dgx-h100:2 --size 16M --network fair --engine simpy
"""

PICK = """
all_reduce --cluster dgx-h100 --nodes 1,2,4,16 -b 1K -e 1G -f 16
all_gather --cluster dgx-a100 --nodes 2,8 -b 1K -e 1G -f 32
all_reduce --cluster dgx-a100 --nodes 2 -b 64K -e 16M -f 16 --times pipeline --algorithm ring,tree
all_reduce --cluster star --nodes 4,16 -b 1K -e 16M -f 16
all_reduce --cluster leaf-spine --set oversubscription=4 --nodes 2,4 -b 1K -e 16M -f 128 --network fair
"""

TRAIN = """
--model resnet50 --cluster dgx-a100:16
--model bert-large --batch 4 --cluster dgx-a100:16 --precision bfloat16 --sweep bucket-cap-mb=5,25,100
--model resnet50 --cluster dgx-h100:2
--model resnet50 --cluster star:8
--model resnet50 --cluster star:8 --samples 1.2B
--model gpt2 --cluster dgx-a100:2 --strategy fsdp --batch 4 --micro-batch 2 --tokens 300B --price 2.5
--model resnet50 --cluster star:4 --library gloo
--model resnet50 --cluster star:4 --library gloo --network fair
--model gpt2 --batch 2 --cluster leaf-spine:2 --library ideal
--model vgg16 --cluster dgx-a100 --sweep nodes=1,2,4
--model gpt2 --cluster dgx-a100:2 --micro-batch 2 --batch 4 --clip
--model bert-base --cluster dgx-a100:2 --strategy fsdp --batch 16 --micro-batch 8
--model gpt2 --cluster dgx-a100:2 --strategy fsdp --batch 4 --micro-batch 2
--model gpt2 --cluster dgx-a100:2 --strategy fsdp1 --batch 4 --micro-batch 2 --no-sync
--model llama3-8b:512 --cluster dgx-h100:1 --strategy fsdp --batch 4 --micro-batch 2 --wrap-ends
--model gpt2 --cluster dgx-a100:2 --strategy hsdp --batch 4 --micro-batch 4 --checkpointing full
--model gpt2:512 --cluster dgx-h100:2 --tp 4 --pp 2 --batch 4 --sequence-parallel --checkpointing selective
--model gpt2:512 --cluster dgx-h100:2 --tp 2 --pp 2 --schedule interleaved1f1b --strategy fsdp --batch 4
--model gpt2:512 --cluster dgx-h100:2 --pp 4 --schedule zbv --batch 8
--model resnet50 --cluster star:8 --pp 2 --schedule gpipe --batch 32 --micro-batch 8
--model gpt2:512 --cluster star:4 --library gloo --strategy fsdp --tp 2 --batch 2
--model mixtral-8x7b:1024 --cluster dgx-h100:2 --strategy fsdp --ep 8 --ep-imbalance 1.25 --batch 2
--model mixtral-8x7b:1024 --cluster dgx-h100:2 --tp 2 --sequence-parallel --pp 2 --ep 4 --batch 2 --clip
--model gpt2:512 --cluster dgx-a100:2 --strategy fsdp --cp 4 --batch 2
--model gpt2:512 --cluster dgx-a100:2 --cp 4 --cp-method ulysses --batch 2
--model llama3-8b:512 --cluster dgx-h100:1 --tp 2 --cp 4 --sequence-parallel --async-tp --batch 2
"""

COMPARE = f"""
{PUBLISHED}/oke_a100_n2_r16.json --cluster dgx-a100:2
{PUBLISHED}/abci2_a100_all_reduce_n2_r16.json --cluster abci-a100:2
{PUBLISHED}/azure_h100_n1_r8_all_reduce.json --cluster dgx-h100:1
{LOGS}/v2.0_all_reduce.log --cluster dgx-a100:1
"""

CALIBRATE = f"""
{PUBLISHED}/abci2_a100_all_reduce_n2_r16.json --cluster abci-a100
"""

GOODPUT = f"""
llama3-405b --trials 10
bloom-176b --interval 3h --step 100s --trials 10
rsc-1 --nodes 256 --spares 0 --replica 8 --checkpoint 10s --persist 2min --trials 10
--nodes 16 --mtbf 3h --checkpoint 30s --work 10d --trials 10 --seed 5
--nodes 4 --failures 0/day --checkpoint 3s --trials 10
--nodes 16 --mtbf 3h --checkpoint 30s --tokens 1T --step 2s --step-tokens 4M --price 2.5 --trials 10
--faults {PUBLISHED}/faults/infinitehbd.json --checkpoint 30s --nodes 300 --work 10d --trials 10
"""

SCORECARD = """
training --table data_parallel
"""

SWEEP = f"""
{ROOT}/examples/study.yaml -o study --workers 1
"""


EXPERTS = """
--cluster dgx-h100:4 --tokens 1,4096
--cluster dgx-b200:1 --tokens 512 --caller vllm --imbalance 1.5
--cluster gb200-nvl72:1 -g 16 --tokens 64 --routing spread --dispatch-dtype nvfp4 --by nvlink
"""


def questions() -> list[str]:
    """Return every question as a command line."""
    found = []
    for command, lines in (
        ("simulate", SIMULATE),
        ("experts", EXPERTS),
        ("pick", PICK),
        ("train", TRAIN),
        ("compare", COMPARE),
        ("calibrate", CALIBRATE),
        ("goodput", GOODPUT),
        ("scorecard", SCORECARD),
        ("sweep", SWEEP),
    ):
        end = " -o calibration.yaml" if command == "calibrate" else " --json"
        found += [f"{command} {line}{end}" for line in lines.strip().splitlines()]
    return found


def ask(question: str) -> Any:
    """Return the output of a command line, parsed if JSON, the calibration that it writes, or its error."""
    from ringside.__main__ import main

    before = sys.argv
    out, err = io.StringIO(), io.StringIO()
    try:
        sys.argv = ["ringside", *question.split()]
        # on every machine as where the event loop is yet to be compiled
        with (
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            patch("ringside.sim.engine.fast.is_compiled", return_value=False),
        ):
            main()
        code: Any = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = before
    if code:
        return {"exit": code, "error": " ".join(err.getvalue().split()).replace(str(ROOT) + "/", "")}
    if question.startswith("calibrate"):
        import yaml

        return yaml.safe_load(Path("calibration.yaml").read_text(encoding="utf-8"))["fits"]
    answer = json.loads(out.getvalue())
    answer.pop("inputs", None)
    return answer


def main() -> None:
    """Write the current answers."""
    import tempfile

    found = {}
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for question in questions():
            found[question.replace(str(ROOT) + "/", "")] = ask(question)
    ANSWERS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
