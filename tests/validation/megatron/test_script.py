"""Command lines of launch scripts, of which nothing is executed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from ringside.validation.megatron.arguments import read_arguments
from ringside.validation.megatron.script import command_line

LAUNCH = "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2 "

SCRIPTS = {
    "an array with comments": "A=(\n  --a 1 # one\n  # --b 2\n  --c\n)\n" + LAUNCH + "${A[@]}",
    "continuations": LAUNCH + "--a 1 \\\n  --b 2 \\\n  --c 3",
    "a comment behind a continuation": "A=(--a 1 \\\n  #--b 2 \\\n  --c 3)\n" + LAUNCH + '"${A[@]}"',
    "defaults": "X=${X:-4}\nY=${1:-${Z:-5}}\n" + LAUNCH + "--x $X --y ${Y}",
    "arithmetic": "N=2\nW=$(($N*8))\n" + LAUNCH + "--w $W --v $((N * (W - 1)))",
    "what is appended": "A=(--a 1)\nA+=(--b 2)\nB='--c 3'\nB+=' --d'\n" + LAUNCH + "${A[@]} $B",
    "a quoted argument with its value": 'A=("--a 1" "--b 2")\n' + LAUNCH + "${A[@]}",
    "a condition that holds": 'T=fp8\nif [[ "$T" == "fp8" ]]; then\n A=--f\nelse\n A=--g\nfi\n'
    + LAUNCH
    + "$A",
    "a condition that does not": 'if [ -n "${NO_SUCH}" ]; then A=(--f); fi\n' + LAUNCH + "${A[@]} --h",
    "branches": "N=3\nif [ $N -eq 2 ]; then A=--two\nelif [ $N -gt 2 ]; then A=--more\nelse A=--less; fi\n"
    + LAUNCH
    + "$A",
    "joined conditions": "N=3\nif [[ $N == 1 ]] || [[ -z $M ]] && [[ $N != 4 ]]; then A=--a; fi\n"
    + LAUNCH
    + "--b $A",
    "a check of files": "if [ ! -f x.py ]; then\n  true 'no; x'\n  true\nfi\n" + LAUNCH + "--a",
    "a redirection": LAUNCH + "--a 1 2>&1 | tee log",
    "several statements in a line": "X=1; Y=2; " + LAUNCH + "--x $X --y $Y",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_arguments_are_those_that_bash_would_pass(name: str, tmp_path: Path) -> None:
    if not shutil.which("bash"):
        pytest.skip("bash is not installed")
    launcher = tmp_path / "torchrun"
    launcher.write_text('#!/bin/sh\nshift 3\necho "$@"\n')
    launcher.chmod(0o755)
    ran = subprocess.run(
        ["bash", "-c", SCRIPTS[name]], capture_output=True, text=True, cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True,
    )  # fmt: skip
    program, words = command_line(SCRIPTS[name])
    assert (program, words) == ("pretrain_gpt.py", ran.stdout.split())


def test_the_program_may_be_a_variable_and_the_command_a_text() -> None:
    text = 'P=examples/run.py\nRUN="python -u $P --num-layers 3"\nsrun -l sh -c "$RUN"'
    assert command_line(text) == ("examples/run.py", ["--num-layers", "3"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo hello", "no command with --num-layers; write a script that starts pretrain_gpt.py"),
        (f"A=$(nproc)\n{LAUNCH} --a $A", "the arguments use the command nproc; nothing of a script is run"),
        (f"if grep x y; then A=(--a); fi\n{LAUNCH} $A", "use A, which line 1 sets if a condition holds"),
        (f"for i in 1 2; do\n A=$i\ndone\n{LAUNCH} --a $A", "use A, which line 2 sets"),
        (f"A=$((x ** 2))\n{LAUNCH} --a $A", "use the arithmetic"),
    ],
)
def test_what_only_a_run_would_tell_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        command_line(text)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.yaml", "a: 1", "a.yaml: no arguments; write MODEL_ARGS:"),
        ("a.yaml", "a: [", "a.yaml: not YAML"),
        (
            "a.sh",
            LAUNCH.replace("--num-layers 2", "4 --num-layers 2"),
            "'4' stands before the first",
        ),
    ],
)
def test_a_file_without_arguments_says_what_to_write(
    tmp_path: Path, name: str, text: str, message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        read_arguments(tmp_path / name)
    with pytest.raises(ValueError, match="cannot be read"):
        read_arguments(tmp_path / "missing.sh")


def test_a_test_of_megatron_has_its_arguments_in_yaml(tmp_path: Path) -> None:
    path = tmp_path / "case" / "model_config.yaml"
    path.parent.mkdir()
    path.write_text(
        "ENV_VARS:\n  CUBLAS_WORKSPACE_CONFIG: ':4096:8'\n"
        "MODEL_ARGS:\n  --num-layers: 12\n  --bf16: true\n  --fp16: false\n"
        "  --recompute-modules: '[mlp moe]'\n"
        "  --moe-layer-freq: ([0]*3+[1]*9)\n  --overlap-grad-reduce: 1\n"
    )
    found = read_arguments(path)
    assert found.name == "case"
    assert found.environment == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    assert found.values == {
        "--num-layers": "12", "--bf16": "", "--recompute-modules": "mlp moe",
        "--moe-layer-freq": "([0]*3+[1]*9)", "--overlap-grad-reduce": "1",
    }  # fmt: skip
