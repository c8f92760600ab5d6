"""Files that hold a schedule, by suffix: MSCCL's XML, and GOAL."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ringside.sim.collective import Collective
from ringside.sim.formats import (
    FormatError,
    goal,
    goal_flatten,
    msccl_read,
    msccl_schedule,
    msccl_write,
    text_of,
)
from ringside.sim.schedule import Schedule
from ringside.topologies.disk import write_file

PROTOCOLS = {"simple": "Simple", "ll": "LL", "ll128": "LL128"}
"""NCCL's protocols as MSCCL spells them."""

LOST = {
    ".xml": "the size (chunks are alike), the type, and the credits",
    ".goal": "the type, the reduction, channels, the time of additions, and the credits",
}
"""Properties of a schedule that each format loses."""


def check_format(path: Path | None) -> None:
    """Raise ValueError for an unknown suffix."""
    if path and path.suffix not in LOST:
        raise FormatError(f"{path}: not a format of schedules; write a name that ends in {', '.join(LOST)}")


def write(plan: Schedule, path: Path, protocol: str = "auto") -> list[str]:
    """Write a schedule atomically; return the size and the losses, in sentences.

    Raise `FormatError` with the reason if the format cannot express it.
    """
    check_format(path)
    notes = []
    if path.suffix == ".xml":
        text = msccl_write.dumps(plan, PROTOCOLS.get(protocol, "Simple"))
        transfers, sends = sum(plan.connections().values()), text.count(' type="s" ')
        if sends > transfers:
            notes.append(f"{transfers} messages are cut into {sends}, of adjacent chunks")
    else:
        text = goal.dumps(goal_flatten.of_schedule(plan))
    write_file(path, text)
    return [f"written to {path}; lost are {LOST[path.suffix]}", *notes]


class ScheduleFile(NamedTuple):
    """A schedule that was read, and proved: ``build`` makes it for any size of its collective.

    It is meant for ``sizes``: the least and the most bytes, if there is a most.
    """

    path: Path
    name: str
    kind: str
    ranks: int
    build: Callable[[Collective], Schedule]
    sizes: tuple[int, int | None] = (0, None)

    def __str__(self) -> str:
        return str(self.path)

    def caveat(self, collective: Collective) -> str:
        """Return the warning that the runtime does not use the file for this size, or nothing."""
        least, most = self.sizes
        if least <= collective.nbytes <= (collective.nbytes if most is None else most):
            return ""
        sizes = f"{least} B or more" if most is None else f"{least} to {most} B"
        return f"{collective.nbytes} B: the file is for {sizes}, and MSCCL leaves other sizes to NCCL"


def holds_schedule(name: str) -> bool:
    """Check by its name whether a file holds a schedule that is read here."""
    return name.endswith(".xml")


def read(path: Path) -> ScheduleFile:
    """Read a schedule in MSCCL's XML; raise `FormatError` with the line of an error."""
    algo = msccl_read.loads(text_of(path), str(path))
    return ScheduleFile(path, algo.name, algo.kind, algo.ranks, msccl_schedule.build(algo), algo.sizes)
