"""Fixtures of all tests."""

import fcntl
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

# how long an example takes is not what properties are about, and a busy machine takes longer
hypothesis.settings.register_profile("ringside", deadline=None)
hypothesis.settings.load_profile("ringside")

collect_ignore = ["real/scripts"]
"""Programs that tests run."""


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Write a file of a text in the test's own folder, and return its path."""

    def write(text: str, name: str = "file") -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


@pytest.fixture(autouse=True)
def _one_network_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run tests that emulate networks one at a time, since they look for leftovers of others."""
    if not request.node.get_closest_marker("netadmin"):
        yield
        return
    with Path(tempfile.gettempdir(), "ringside-tests.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
