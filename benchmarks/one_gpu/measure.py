"""Measure the training jobs of ``jobs.txt`` on this machine's GPU, each in a process of its own.

python -m benchmarks.one_gpu.measure -o FILE.jsonl [--only WORD]
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import torch
import transformers

FOLDER = Path(__file__).parent
SCRIPT = FOLDER / "train.py"


def jobs(only: str = "") -> list[str]:
    """Return the arguments of the jobs whose text contains ``only``."""
    lines = (FOLDER / "jobs.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if only in line]


def measure(job: str) -> dict[str, object]:
    """Return what a job prints, with the GPU and the packages' versions."""
    command = [sys.executable, str(SCRIPT), *job.split()]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {
        "job": job, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
        "transformers": transformers.__version__, **json.loads(printed.splitlines()[-1]),
    }  # fmt: skip


def main() -> None:
    """Append a row for each job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", dest="output", type=Path, required=True)
    parser.add_argument("--only", default="", help="jobs whose arguments contain this")
    args = parser.parse_args()
    for job in jobs(args.only):
        row = json.dumps(measure(job))
        with args.output.open("a", encoding="utf-8") as file:
            file.write(row + "\n")
        print(row, flush=True)


if __name__ == "__main__":
    main()
