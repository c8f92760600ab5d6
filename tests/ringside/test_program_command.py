"""``ringside program`` as people meet it."""

import json
import re
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]


def test_a_program_that_ends_is_proved(ringside):
    code, out, err = ringside("program", TOP / "examples/halo_exchange.py", "-g", "8")
    assert (code, err) == (0, "")
    assert re.fullmatch(r".*halo_exchange\.py on 8 ranks of gloo: proved, 648 operations\n", out)


@pytest.mark.parametrize("library", ["gloo", "nccl"])
def test_one_that_does_not_is_told_of_and_exits_1(ringside, library):
    code, out, _ = ringside("program", TOP / "examples/both_send_first.py", "-g", "2", "--library", library)
    assert code == 1
    assert "they wait for one another: rank 0 for rank 1 for rank 0" in out


def test_json_has_the_verdict_and_its_story(ringside):
    code, out, _ = ringside("program", TOP / "examples/both_send_first.py", "-g", "2", "--json")
    content = json.loads(out)
    assert code == 1
    assert (content["schema"], content["verdict"], len(content["story"])) == (
        "ringside.program/1",
        "hangs",
        4,
    )


def test_the_page_shows_what_the_command_says(ringside, monkeypatch):
    monkeypatch.chdir(TOP)
    shown = re.search(r"```text\n(.*?)```", Path("docs/programs.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    code, out, _ = ringside("program", "examples/both_send_first.py", "-g", "2")
    assert (code, out) == (1, shown[1])


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("def main(dist", "script.py:1: SyntaxError: '(' was never closed"),
        ("x = 1", "script.py has no function main; write def main(dist): ..."),
        ("def main(dist):\n    dist.all_reduce('x')", "script.py:2: a size of 'x'; write bytes"),
        ("def main(dist):\n    dist.foo(1)", "script.py:2: AttributeError"),
        ("def main(dist):\n    1 / 0", "script.py:2: ZeroDivisionError"),
        ("def main(dist):\n    dist.compute(-1)", "script.py:2: compute(-1); write seconds"),
        (
            "def main(dist):\n    dist.all_reduce(4, op='xor')",
            "script.py:2: ValueError: 'xor' is no known reduction",
        ),
        ("def main(dist):\n    dist.all_reduce(4, group=7)", "script.py:2: 7 is no group"),
        ("def main(dist):\n    dist.new_subgroups(3)", "fails at script.py:2: new_subgroups of 3 of 2 ranks"),
        ("def main(dist):\n    while True: dist.compute(0)", "script.py:2: more than 2,000,000 operations"),
        ("def main():\n    pass", "TypeError"),
        ("raise SystemExit(3)", "script.py:1: SystemExit: 3"),
    ],
)
def test_a_script_that_cannot_be_run_is_refused_with_its_line(ringside, tmp_path, script, told):
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    code, out, err = ringside("program", "script.py", "-g", "2")
    assert told in out + err
    assert code == (1 if "fails" in told else 2)


def test_what_is_no_script_is_refused(ringside, tmp_path):
    assert ringside("program", "none.py", "-g", "2")[0] == 2
    assert ringside("program", tmp_path, "-g", "2")[0] == 2
    code, _, err = ringside("program", TOP / "examples/both_send_first.py", "-g", "2", "--library", "mpi")
    assert (code, "write gloo or nccl" in err) == (2, True)
