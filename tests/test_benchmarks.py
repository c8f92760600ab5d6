import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.scaling import exponent


@pytest.mark.slow
def test_the_scaling_command_prints_a_row_a_case_beside_the_peers_and_keeps_them(tmp_path: Path) -> None:
    kept = tmp_path / "kept.md"
    words = "-m benchmarks.scaling --most 64 --only equal -o"
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, *words.split(), str(kept)], cwd=root, capture_output=True, text=True, check=True
    )
    assert kept.read_text() == done.stdout
    (row,) = (line for line in done.stdout.splitlines() if line.endswith("| ring, fast, 64 chunks |"))
    assert float(row.split("|")[7].replace(",", "")) == pytest.approx(85187.2, abs=0.1)
    assert "| 64 | SimGrid 3.32 | 2.52 | 2,084 | 85,187 |" in done.stdout


def test_growth_is_the_power_of_the_ranks_of_what_is_large_enough() -> None:
    assert exponent((1, 10, 100), (0.0, 2.0, 200.0), 1.0) == "n^2.00"
    assert exponent((10, 100), (0.1, 2.0), 1.0) == "too small to say"
