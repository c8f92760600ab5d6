"""Peak memory of Megatron-LM's functional tests, from their golden values.

github.com/NVIDIA/Megatron-LM (BSD-3-Clause and Apache-2.0), tests/functional_tests/test_cases: the arguments
of each case, and what its runs logged: the largest peak of torch's allocator, that of the first iteration,
and the bytes after a step, all of the last rank, which writes TensorBoard's log
(``megatron/training/global_vars.py``). Adam's states come with the first step, so the peak is a later
iteration's.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringside.validation.megatron.arguments import Arguments, arguments_of
from ringside.validation.megatron.training import launched
from ringside.validation.questions.step_time import StepTime

FILE = Path(__file__).parent / "cases.json"

CLUSTERS = {"a100": ("dgx-a100", 8), "h100": ("dgx-h100", 8), "gb200": ("gb200-nvl72", 4)}
"""The cluster of a run by the GPU in its name, and its GPUs a machine."""


@dataclass(frozen=True, slots=True)
class GoldenRun:
    """A run of a case, on GPUs of a kind; bytes of the last rank."""

    name: str
    gpu: str
    peak: int


@dataclass(frozen=True, slots=True)
class GoldenCase:
    """A functional test: its arguments, its GPUs, None where more than a machine and not stated, its runs."""

    arguments: Arguments
    gpus: int | None
    runs: Sequence[GoldenRun]

    def training(self, gpu: str) -> tuple[StepTime, Sequence[str]]:
        """Return the training on such GPUs, and its arguments that are not modelled; ValueError for none."""
        if self.gpus is None:
            raise ValueError("the number of GPUs is not stated")
        launch = launched(self.arguments, self.gpus)
        machine, each = CLUSTERS[gpu]
        question = StepTime(
            model=launch.decoder, cluster=f"{machine}:{-(-self.gpus // each)}", ranks=self.gpus, device=gpu,
            **launch.options,
        )  # fmt: skip
        return question, launch.unmodelled


def golden_cases() -> list[GoldenCase]:
    """Return all cases, each with the runs that can be judged.

    A resumed run (``2nd``) also holds what it has loaded. Long-term-support images (``lts``) choose now the
    one kernel of attention, now another where the case leaves it open. Where the first iteration's peak is
    the largest, although Adam's states come after it, that iteration did something else, such as to compile.
    """
    return [
        GoldenCase(
            arguments := arguments_of(one["arguments"], one["environment"], one["case"], one["program"]),
            one["gpus"],
            [_run(run) for run in one["runs"] if _is_judged(run, arguments)],
        )
        for one in json.loads(FILE.read_text(encoding="utf-8"))["cases"]
    ]


def _run(run: Mapping[str, Any]) -> GoldenRun:
    name = run["run"]
    return GoldenRun(
        name, next((gpu for gpu in reversed(CLUSTERS) if gpu in name), "a100"), run["peak_bytes"]
    )


def _is_judged(run: Mapping[str, Any], arguments: Arguments) -> bool:
    name = run["run"]
    if run.get("peak_bytes_first", 0) >= run["peak_bytes"]:
        return False
    is_open = not arguments.has("--attention-backend") and arguments.text("--transformer-impl") != "local"
    return not name.endswith("2nd") and not (name.startswith("lts") and is_open)
