"""Predict the jobs that were measured on one GPU: each is recorded without a GPU, then answered.

python -m benchmarks.one_gpu.compare [--only WORD]

Recording needs transformers as it was measured, and takes some ten seconds a job.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import ringside
from benchmarks.one_gpu.measure import SCRIPT
from ringside.sim.recorded.file import write_job

RESULTS = Path(__file__).parents[1] / "results" / "one_gpu.jsonl"
CLUSTERS = {"NVIDIA H100 80GB HBM3": "dgx-h100:1", "NVIDIA H200": "dgx-h200:1"}

STEPS = "4"
"""Optimizer steps that are recorded."""


@dataclass(frozen=True)
class Row:
    """A job on a GPU: seconds of a step and bytes of memory, predicted and measured.

    ``kind`` is compiled, host where the prediction says that the host may limit the step, else kernels.
    """

    job: str
    gpu: str
    kind: str
    predicted_s: float
    measured_s: float
    predicted_nbytes: int
    measured_nbytes: int

    @property
    def step_error(self) -> float:
        """The predicted step over the measured one, less 1."""
        return self.predicted_s / self.measured_s - 1

    @property
    def memory_error(self) -> float:
        """The predicted memory over the measured one, less 1."""
        return self.predicted_nbytes / self.measured_nbytes - 1


def rows(only: str = "") -> Iterator[Row]:
    """Yield the measured jobs whose text contains ``only``, with their predictions."""
    measured = [json.loads(line) for line in RESULTS.read_text(encoding="utf-8").splitlines()]
    for job in dict.fromkeys(row["job"] for row in measured if only in row["job"]):
        with TemporaryDirectory() as folder:
            path = Path(folder, "job.json")
            write_job(ringside.record(str(SCRIPT), *job.split(), "--steps", STEPS, ranks=1), path)
            for row in measured:
                if row["job"] == job:
                    answer = ringside.StepTime(model=str(path), cluster=CLUSTERS[row["gpu"]], ranks=1).ask()
                    is_of_host = any("limited by the host" in note for note in answer.notes)
                    kind = "compiled" if "--compile" in job else "host" if is_of_host else "kernels"
                    yield Row(
                        job, row["gpu"], kind, answer.step.step_s, row["step_s"], answer.step.peak_nbytes,
                        row["peak_bytes"],
                    )  # fmt: skip


def main() -> None:
    """Print a row for each measurement, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="jobs whose arguments contain this")
    known = []
    for row in rows(parser.parse_args().only):
        known.append(row)
        print(
            f"{row.gpu.split()[1]:5}{row.kind:9}{row.job:76} "
            f"{row.measured_s * 1e3:6.1f} ms "
            f"{row.step_error:+7.1%} memory {row.measured_nbytes / 2**30:5.2f} GiB {row.memory_error:+6.1%}",
            flush=True,
        )
    for kind in sorted({row.kind for row in known}):
        rows_of = [row for row in known if row.kind == kind]
        steps = [abs(row.step_error) for row in rows_of]
        memories = [abs(row.memory_error) for row in rows_of]
        print(
            f"{kind}: {len(rows_of)} rows; step {median(steps):.1%} in the median, worst {max(steps):.0%}; "
            f"memory {median(memories):.1%}, worst {max(memories):.0%}"
        )


if __name__ == "__main__":
    main()
