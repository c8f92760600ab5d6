"""What recorded ranks tell each other, as files in a folder that they share: objects and steering numbers.

Who waits for a rank that is not being recorded asks for it; `ringside.real.record.processes` starts it. A
rank whose steps were steady earlier says no more: who waits for it has its last letter again.
"""

import os
import pickle
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ASKED = "ask-"
"""What the name of a file begins with that asks for a rank."""

_PAUSE_S = 0.01

_folder: Path
_rank: int
_counts: Counter[str] = Counter()


def use(folder: Path, rank: int) -> None:
    """Have this rank's mail in a folder."""
    global _folder, _rank
    _folder, _rank = folder, rank


def send(peer: int, group: str, content: Any) -> None:
    """Send something to another rank; it need not be recorded."""
    _put(_next(f"{group}-{_rank}-{peer}"), content)


def expect(peer: int, group: str) -> Callable[[], Any]:
    """Return a function that waits for the next letter of a rank."""
    name = _next(f"{group}-{peer}-{_rank}")
    return lambda: _get(name, peer)


def publish(group: str, content: Any) -> None:
    """Say something to all ranks of a group."""
    _put(_next(f"{group}-all-{_rank}"), content)


def read(root: int, group: str) -> Any:
    """Wait for a rank's next message to its whole group."""
    return _get(_next(f"{group}-all-{root}"), root)


def _next(name: str) -> str:
    """Return the name of the next letter of its kind."""
    _counts[name] += 1
    return f"{name}-{_counts[name]}".replace(os.sep, "_")


def _put(name: str, content: Any) -> None:
    unfinished = _folder / f".{name}-{_rank}"
    unfinished.write_bytes(pickle.dumps(content))
    unfinished.rename(_folder / name)


def _get(name: str, source: int) -> Any:
    file, ended = _folder / name, _folder.parent / f"rank{source}.json"
    if not file.exists():
        (_folder / f"{ASKED}{source}").touch()
        while not file.exists() and not ended.exists():
            time.sleep(_PAUSE_S)
    while not file.exists():
        kind, _, number = file.name.rpartition("-")
        if number == "1":
            raise EOFError(f"rank {source}, whose recording has ended, did not send this")
        file = _folder / f"{kind}-{int(number) - 1}"
    return pickle.loads(file.read_bytes())
