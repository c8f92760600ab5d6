"""The number of doors of a question: functions of one folder called from a file of another.

With fewer of them an answer is easier to follow. A figure may fall; if it rises, folders call more functions
of each other than before. No question converts the same settings, cluster, calibration, layout or records
twice.
"""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import ringside
from tests.processes import python

HOUSE = str(Path(ringside.__file__).parent) + os.sep
LOG = Path(__file__).parents[1] / "validation/data/v2.19_nccl_debug.log"
SCRIPT = Path(__file__).parents[2] / "examples/halo_exchange.py"

QUESTIONS = {
    "simulate all_reduce --cluster dgx-h100:2 --size 64M": 29,
    f"compare {LOG} --cluster dgx-h100:1 --plot comparison.png": 45,
    "train --model resnet50 --cluster dgx-h100:2": 70,
    "train --model llama3-8b --cluster dgx-h100:2 --strategy fsdp --pp 2 --batch 4": 138,
    f"program {SCRIPT} -g 4": 19,
}


CONVERSIONS = {
    "topologies/catalogue.py parse_settings",
    "topologies/load.py load",
    "topologies/making.py made",
    "topologies/machine.py Machine.__call__",
    "sim/calibration.py find_calibration",
    "sim/calibration.py read_own",
    "sim/libraries/find.py find_library",
    "validation/questions/layout.py ByLayout.layout",
    "validation/readers/__init__.py read_all",
}
"""Functions that parse settings, load clusters, calibrations and records, and resolve a layout."""


class Watch:
    """What a call passes below a folder: its doors, and conversions that ran twice on equal arguments.

    What runs while a module is imported does not count, nor a class's body.
    """

    def __init__(self, house: str) -> None:
        self.doors: set[tuple[str, str]] = set()
        self.repeated: list[str] = []
        self._house = house
        self._converted: list[tuple[str, dict[str, Any]]] = []

    def run(self, question: Callable[[], object]) -> None:
        """Call a function and count its doors."""
        sys.setprofile(self._enter)
        try:
            question()
        finally:
            sys.setprofile(None)

    def _is_ours(self, code: CodeType) -> bool:
        return code.co_filename.startswith(self._house)

    def _enter(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & 2  # CO_OPTIMIZED, which modules and classes lack
        if event != "call" or not is_function or not self._is_ours(code):
            return
        callers, caller = [], frame.f_back
        while caller:
            callers += [caller.f_code] if self._is_ours(caller.f_code) else []
            caller = caller.f_back
        if any(one.co_name == "<module>" for one in callers):
            return
        file = code.co_filename.removeprefix(self._house)
        if callers and os.path.dirname(callers[0].co_filename) != os.path.dirname(code.co_filename):
            self.doors.add((file, code.co_qualname))
        if f"{file} {code.co_qualname}" in CONVERSIONS:
            starred = bool(code.co_flags & 4) + bool(code.co_flags & 8)  # CO_VARARGS, CO_VARKEYWORDS
            names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + starred]
            call = code.co_qualname, {name: frame.f_locals[name] for name in names}
            if call in self._converted:
                self.repeated.append(f"{code.co_qualname} {call[1]}"[:300])
            self._converted.append(call)


@pytest.mark.slow
@pytest.mark.parametrize(("words", "most"), QUESTIONS.items())
def test_a_question_passes_few_doors_and_converts_once(words: str, most: int, tmp_path: Path) -> None:
    run = python(__file__, *words.split(), cwd=tmp_path)
    *_, repeated, doors = map(json.loads, run.stderr.splitlines()[-2:])
    assert repeated == []
    assert len(doors) <= most, "\n".join(map(" ".join, doors))


@pytest.mark.slow
def test_settings_are_converted_once(tmp_path: Path) -> None:
    words = "simulate all_reduce --cluster dgx-a100 --nodes 1,2 --size 64K --set nic=20GB/s --library ideal"
    assert json.loads(python(__file__, *words.split(), cwd=tmp_path).stderr.splitlines()[-2]) == []


def test_a_conversion_that_runs_twice_is_noticed() -> None:
    import ringside.topologies

    watch = Watch(HOUSE)
    watch.run(lambda: [ringside.topologies.load("star:4") for _ in range(2)])
    assert watch.repeated[0].startswith("load {'cluster': 'star:4'")


def main(words: list[str]) -> None:
    """Answer a question and print, at the end of stderr, its repeated conversions and its doors."""
    import ringside.cli

    sys.argv = ["ringside", *words]
    code: Any = None

    def answer() -> None:
        nonlocal code
        try:
            ringside.cli.main()
        except SystemExit as end:
            code = end.code

    watch = Watch(HOUSE)
    watch.run(answer)
    print(json.dumps(watch.repeated), json.dumps(sorted(watch.doors)), sep="\n", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
