"""How many doors a question passes: functions of one folder that a file of another folder calls.

The fewer there are, the less must be known to follow an answer. A figure may fall; where it rises, folders
call more functions of each other than before.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

LOG = Path(__file__).parents[1] / "validation/data/v2.19_nccl_debug.log"

QUESTIONS = {
    "simulate all_reduce --cluster dgx-h100:2 --size 64M": 34,
    f"compare {LOG} --cluster dgx-h100:1 --plot comparison.png": 58,
    "train --model resnet50 --cluster dgx-h100:2": 121,
    "train --model llama3-8b --cluster dgx-h100:2 --strategy fsdp --pp 2 --batch 4": 147,
}


def doors_of(run: Callable[[], object], house: str) -> set[tuple[str, str]]:
    """Return the doors that a call passes, each a file and a function, below a folder.

    What runs while a module is imported does not count, nor a class's body.
    """
    doors: set[tuple[str, str]] = set()

    def is_ours(frame: FrameType) -> bool:
        return frame.f_code.co_filename.startswith(house)

    def enter(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        is_function = code.co_flags & 2  # CO_OPTIMIZED, which modules and classes lack
        if event != "call" or not is_function or not is_ours(frame):
            return
        callers = []
        while frame := frame.f_back:  # type: ignore[assignment]
            if is_ours(frame):
                callers.append(frame.f_code)
        if not callers or any(caller.co_name == "<module>" for caller in callers):
            return
        if os.path.dirname(callers[0].co_filename) != os.path.dirname(code.co_filename):
            doors.add((code.co_filename.removeprefix(house), code.co_qualname))

    sys.setprofile(enter)
    try:
        run()
    finally:
        sys.setprofile(None)
    return doors


@pytest.mark.slow
@pytest.mark.parametrize(("words", "most"), QUESTIONS.items())
def test_a_question_passes_no_more_doors_than_before(words: str, most: int, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, __file__, *words.split()], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    doors = json.loads(run.stderr.splitlines()[-1])
    assert len(doors) <= most, "\n".join(map(" ".join, doors))


def main(words: list[str]) -> None:
    """Answer a question and print its doors as the last line of stderr."""
    import ringside.cli

    sys.argv = ["ringside", *words]
    code: Any = None

    def answer() -> None:
        nonlocal code
        try:
            ringside.cli.main()
        except SystemExit as end:
            code = end.code

    doors = doors_of(answer, str(Path(ringside.__file__).parent) + os.sep)
    print(json.dumps(sorted(doors)), file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
