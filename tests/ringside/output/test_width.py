"""No printed line is wider than 80 columns without --all, which omits nothing."""

import re
import shlex
from pathlib import Path

import pytest

from ringside import console
from ringside.cli import COMMANDS
from tests.ringside.wrapping import unwrapped

TOP = Path(__file__).parents[3]
QUESTIONS = (
    "topo",
    "topo --example",
    "topo dgx-h100:64 --set fabric=rail_optimized",
    "topo dgx-h100:4 --schedule tree",
    "topo dgx-h100:4 --channels",
    "simulate all_reduce --cluster dgx-h100:4",
    "simulate all_reduce --cluster dgx-h100:2048 -b 1M -e 8G -f 64",
    "simulate all_reduce --cluster dgx-h100:2 --calibration none -b 1M -e 1G -f 32",
    "simulate all_to_all --cluster dgx-h100:1 --splits 4000000,1000,1000,1000,1000,1000,1000,1000",
    "simulate all_reduce --library mpi --cluster mare-nostrum:60 -b 1K -e 512M -f 64",
    "simulate all_reduce --cluster leaf-spine:2 --algorithm halving_doubling --size 64M --links",
    "simulate all_reduce --cluster star:64 --algorithm double_binary_tree -b 1K -e 1M -f 1024",
    "collectives --prove 1 --cluster dgx-h100:2",
    "experts --cluster dgx-h100:4 --tokens 1,16384",
    "pick all_reduce --cluster dgx-h100 --nodes 2,2048 -f 8",
    "pick all_reduce --library mpi --cluster mare-nostrum --nodes 8,512 -f 64",
    "train --model resnet50 --cluster dgx-a100:16",
    "train --model gpt2:256 --cluster dgx-a100:1 --batch 8 --strategy fsdp --tp 2 --pp 2 --schedule 1f1b",
    "train --model gpt2:256 --cluster dgx-a100:1 --search --global-batch 16 --tp 2 --pp 1 --top 1",
    "whatif all_reduce --cluster dgx-h100:4 --size 1G",
    "whatif all_reduce --cluster star:8 --size 1M --try bandwidth=2x --try nodes=2x,algorithm=tree",
    "goodput",
    "goodput rsc-1 --nodes 256 --checkpoint 10s --persist 2min --spares 0 --replica 8 --trials 10",
    f"compare {TOP}/validation/published/a100_thanos_g8_singleproc.json",
    "expect all_reduce --cluster dgx-h100 --nodes 1,2048",
    f"expect --gate {TOP}/validation/published/a100_thanos_g8_singleproc.json",
    f"explain {TOP}/validation/published/stas_h200_n1_r8_all_reduce_torch.json",
    "sweep --example",
    f"program {TOP}/examples/both_send_first.py -g 2 --library nccl",
    f"program {TOP}/examples/halo_exchange.py -g 8 --cluster star:8",
    f"trace {TOP}/tests/validation/data/kineto/dlrm",
    f"trace {TOP}/tests/validation/data/kineto/a100x2_sized.json.gz --each",
    f"record -g 2 {TOP}/tests/real/scripts/ddp.py",
    "scorecard training --table data_parallel",
)


@pytest.mark.slow
@pytest.mark.parametrize("line", QUESTIONS)
def test_no_line_is_wider_than_a_terminal_and_all_prints_every_column_that_was_left_out(
    on_screen, ringside, line
):
    _, out, _ = on_screen(*shlex.split(line))
    assert out
    # one word, such as a path, may be wider
    wide = [text for text in out.splitlines() if len(text) > console.WIDTH and len(text.split()) > 2]
    assert not wide
    left_out = re.findall(r"^# --all also prints (.*)$", unwrapped(out), re.M)
    # what follows a recorded script is the script's
    place = 1 if line.startswith("record") else len(line)
    words = shlex.split(line)
    code, every, err = ringside(*words[:place], "--all", *words[place:])
    assert code != 2, err
    assert "--all" not in every
    for names in left_out:
        assert any(all(name in head for name in names.split(", ")) for head in every.splitlines())


def test_nccls_choice_and_its_second_stand_on_one_line(on_screen):
    _, out, _ = on_screen(*"simulate all_reduce --cluster dgx-h100:2 --size 64M".split())
    (row,) = [line.split() for line in out.splitlines() if not line.startswith("#")]
    assert row[4:7] == ["nvls_tree", "simple", "16"]
    assert row[8:10] == ["ring/ll128", "48"]
    _, out, _ = on_screen(*"simulate all_reduce --cluster dgx-h100:2 --size 64M --all".split())
    (row,) = [line.split() for line in out.splitlines() if not line.startswith("#")]
    time, band, low, high = (float(row[place]) for place in (1, 7, 11, 12))
    assert time / band == pytest.approx(low, rel=0.01)
    assert time * band == pytest.approx(high, rel=0.01)


def test_a_path_stays_whole(capsys):
    path = "/".join(["folder"] * 20)
    console.print_comments([f"written to {path}"])
    assert capsys.readouterr().out == f"# written to\n#   {path}\n"


def test_columns_that_do_not_fit_are_named(capsys):
    heads = [(f"head{number}", "(us)") for number in range(12)]
    console.print_answer("said", console.TextTable(heads, [[1e6] * 12]))
    message, left, *lines = capsys.readouterr().out.splitlines()
    assert (message, left) == ("# said", "# --all also prints head9, head10, head11")
    assert [len(line.removeprefix("#").split()) for line in lines] == [9, 9, 9]


@pytest.mark.parametrize(
    ("figure", "text"),
    [(0.0, "0.00"), (999.99, "999.99"), (999.996, "1000.0"), (1234.56, "1234.6"), (99999.9, "100000")],
)
def test_a_large_number_has_fewer_decimals(capsys, figure, text):
    console.print_answer("time", console.TextTable([("time", "(us)")], [[figure]]))
    assert capsys.readouterr().out.split()[-1] == text


def test_there_is_a_question_for_every_command():
    elsewhere = {"measure", "calibrate", "validate", "demo", "pairs", "serve"}
    assert {line.split()[0] for line in QUESTIONS} == {name.split()[0] for name in COMMANDS} - elsewhere
