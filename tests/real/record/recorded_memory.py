"""Memory of recordings beside real runs: ``python -m tests.real.record.recorded_memory [CASE...]``."""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ringside.real.questions.recording import counts
from tests.real.test_recordings import record, run

CASES = [
    ("decoder.py ddp", 2),
    ("decoder.py ddp accumulate views foreach", 2),
    ("decoder.py ddp autocast fused", 2),
    ("decoder.py fsdp1", 2),
    ("decoder.py fsdp2", 2),
    ("decoder.py fsdp2 checkpoint bfloat16", 2),
    ("decoder.py hsdp bfloat16 foreach", 4),
    ("decoder.py tp", 2),
    ("decoder.py sp foreach", 2),
    ("convolutions.py", 2),
    ("vision.py", 4),
    ("encoder.py", 4),
    ("columns.py", 2),
    ("embeddings.py", 3),
]
"""Scripts with their arguments, and ranks."""


@dataclass(frozen=True)
class Memory:
    """Bytes of a rank: when its step begins, at the peak, and how much the peak is above the start."""

    start: int
    peak: int

    @property
    def rise(self):
        return self.peak - self.start


def memory(case, ranks, folder):
    """Yield the recorded and the real memory of each rank of a case, and the rise by torch's profiler."""
    script, *arguments = case.split()
    parts = record(script, arguments, ranks, folder)
    real = run(script, arguments, ranks, folder, by="tests.real.record.memory_rank")
    for rank in range(ranks):
        recorded = parts[rank].recorded
        assert recorded.unsteady == ""
        start, peak = sum(recorded.held.values()), counts(recorded).peak_bytes
        steady = parts[rank].steps - 2  # the first step that the recording found steady
        profiled = min(most - begin for begin, most in real[rank]["profiled"][steady:])
        yield Memory(start, peak), Memory(*real[rank]["referred"][steady]), profiled


def main():
    """Print a row of each case: its rank with the largest error."""
    for case, ranks in CASES:
        if sys.argv[1:] and case not in sys.argv[1:]:
            continue
        with tempfile.TemporaryDirectory() as folder:
            one, real, profiled = max(memory(case, ranks, Path(folder)), key=lambda every: error(*every[:2]))
        pairs = (one.start, real.start), (one.peak, real.peak), (one.rise, real.rise), (one.rise, profiled)
        figures = [f"{first / 2**20:.2f} / {second / 2**20:.2f}" for first, second in pairs]
        print(f"| `{case}` on {ranks} | {' | '.join(figures)} | {error(one, real):.2%} |", flush=True)


def error(one, real):
    """Return the largest relative error of a rank's figures."""
    return max(abs(getattr(one, name) / getattr(real, name) - 1) for name in ("start", "peak", "rise"))


if __name__ == "__main__":
    main()
