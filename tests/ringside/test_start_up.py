"""Help is fast: it takes less than twice the time of a bare import of numpy, measured beside it."""

import resource
import subprocess
import sys

import pytest

MOST = 2.0
ROUNDS = 9


def processor_s(*words: str) -> float:
    """Return the processor time of Python with these arguments, from start to end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.slow
def test_help_takes_less_than_twice_an_import_of_numpy() -> None:
    turns = [
        (processor_s("-m", "ringside", "--help"), processor_s("-c", "import numpy")) for _ in range(ROUNDS)
    ]
    help_s, numpy_s = map(min, zip(*turns, strict=True))
    print(f"ringside --help {help_s:.3f} s, import numpy {numpy_s:.3f} s: {help_s / numpy_s:.2f} times")
    assert help_s < MOST * numpy_s
