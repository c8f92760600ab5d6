"""Which library answers which collective by which algorithm, and for how many ranks that is proved."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.collective import KINDS, Collective
from ringside.sim.libraries import gloo
from ringside.sim.libraries.find import LIBRARIES, Options, default_library, find_library
from ringside.sim.libraries.library import Library, answer
from ringside.sim.libraries.mpi import library as mpi
from ringside.sim.libraries.mpi.names import WITHOUT
from ringside.sim.libraries.mpi.rounds import ROUNDS
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.proof import prove
from ringside.sim.schedule import Schedule
from ringside.topologies import Topology, load
from ringside.topologies.placement import EVEN

NBYTES = 4004
"""Bytes of each question and proof: a number of elements that few numbers of ranks divide."""

ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Collectives with a root."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One collective by one algorithm of one library: ``refused`` is the reason if it is refused.

    ``taken`` is the library's choice, and ``proved`` the numbers of ranks for which its schedule is proved:
    from 1 on in the textbook, Gloo and MPI, whose schedules do not depend on the machine, and the requested
    ranks in NCCL; None where MPI has only a closed form.
    """

    library: str
    algorithm: str
    collective: str
    taken: str = ""
    proved: tuple[int, int] | None = None
    refused: str = ""


def algorithms_of(library: str) -> list[str]:
    """Return the valid values of ``--algorithm``, ``auto`` where a library has one way per collective."""
    if library == "ideal":
        return list(ALGORITHMS)
    if library == "nccl":
        from ringside.sim.libraries.nccl.names import ALGORITHMS as NCCLS

        return [*NCCLS, "auto"]
    if library == "mpi":
        return list(dict.fromkeys(name for names in ROUNDS.values() for name in names))
    return ["auto"]


def coverage(
    cluster: "str | Topology",
    ranks: int | None = None,
    libraries: Sequence[str] = LIBRARIES,
    most: int = 0,
    placement: str = EVEN,
) -> Iterator[Cell]:
    """Return every collective of every library by each of its algorithms, on ``ranks`` ranks of a cluster.

    Schedules that do not depend on the machine are proved for 1 to ``most`` ranks, if any.
    """
    graph = cluster
    for name in libraries:
        by_name = name == "nccl" and default_library(cluster) == "nccl"
        if isinstance(graph, str) and not by_name:
            graph = load(graph, ranks=ranks)
        find = _Finder(cluster if by_name else graph, ranks, name, placement)
        for algorithm in algorithms_of(name):
            for kind in KINDS:
                yield _cell(find, algorithm, kind, most)


@dataclass
class _Finder:
    """One library by each of its algorithms; the network under its schedules is built once."""

    cluster: "str | Topology"
    ranks: int | None
    name: str
    placement: str
    _drawn: Scheduled | None = None

    def __call__(self, algorithm: str) -> Library:
        """Return the library pinned to an algorithm."""
        if self._drawn is None:
            options = Options(algorithm, placement=self.placement)
            auto = find_library(self.name, self.cluster, ranks=self.ranks, options=options, calibration=None)
            if not isinstance(auto, Scheduled):
                return auto
            self._drawn = auto
        return self._drawn.pinned(algorithm)


def _cell(find: _Finder, algorithm: str, kind: str, most: int) -> Cell:
    cell = Cell(find.name, algorithm, kind)
    try:
        library = find(algorithm)
        collective = Collective(kind, library.ranks, NBYTES, dtype="float32")
        taken = _taken(library, collective)
    except ValueError as error:
        return replace(cell, refused=str(error))
    return replace(cell, taken=taken, proved=_proved(library, collective, algorithm, most))


def _taken(library: Library, collective: Collective) -> str:
    """Return a library's choice, without its time: some schedules take long to play."""
    if library.name == "mpi" or not isinstance(library, Scheduled):
        return answer(library, collective).algorithm
    candidate = library.choose(collective)
    return library.word(candidate, library.schedule(collective, candidate))


def _proved(library: Library, collective: Collective, algorithm: str, most: int) -> tuple[int, int] | None:
    """Prove a library's schedule and return for how many ranks, from and to; raise its defects."""
    if library.name == "nccl":
        if library.ranks == 1:
            return None
        prove(library.schedule(collective, library.choose(collective)))
        return library.ranks, library.ranks
    if library.name == "mpi" and (collective.kind, algorithm) in WITHOUT:
        return None
    for ranks in range(1, most + 1):
        example = replace(collective, ranks=ranks, root=ranks // 2 if collective.kind in ROOTED else 0)
        prove(_schedule(library.name, algorithm, example))
    return (1, most) if most else None


def _schedule(library: str, algorithm: str, collective: Collective) -> Schedule:
    """Return the schedule of a library that does not depend on the machine."""
    match library:
        case "ideal":
            return schedule(algorithm, collective)
        case "mpi":
            return mpi.schedule_of(collective, algorithm)
    return gloo.schedule(collective)
