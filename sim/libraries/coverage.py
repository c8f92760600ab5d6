"""The collectives and algorithms of each library, and the numbers of ranks for which they are proved."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ringside.sim.collective import KINDS, Collective
from ringside.sim.libraries.find import LIBRARIES, Options, find_library, models
from ringside.sim.libraries.library import Library, answer
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.proof import prove
from ringside.topologies import Topology, load
from ringside.topologies.placement import EVEN

NBYTES = 4004
"""Bytes of each checked and proved collective: few numbers of ranks divide its number of elements."""

ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Collectives with a root."""


@dataclass(frozen=True, slots=True)
class CoverageCell:
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


def coverage(
    cluster: "str | Topology",
    ranks: int | None = None,
    libraries: Iterable[str] = LIBRARIES,
    most: int = 0,
    placement: str = EVEN,
    values: Mapping[str, str] | None = None,
) -> Iterator[CoverageCell]:
    """Return every collective of every library by each of its algorithms, on ``ranks`` ranks of a cluster.

    Schedules that do not depend on the machine are proved for 1 to ``most`` ranks, if any.
    """
    graph = cluster
    for name in libraries:
        by_name = models(name, cluster)
        if isinstance(graph, str) and not by_name:
            graph = load(graph, values, ranks=ranks)
        find = _Finder(cluster if by_name else graph, values if by_name else None, ranks, name, placement)
        for algorithm in LIBRARIES[name].module.algorithms:
            for kind in KINDS:
                yield _cell(find, algorithm, kind, most)


@dataclass
class _Finder:
    """Makes a library pinned to each of its algorithms; the network of its schedules is built once."""

    cluster: "str | Topology"
    values: Mapping[str, str] | None
    ranks: int | None
    name: str
    placement: str
    _drawn: Scheduled | None = None

    def __call__(self, algorithm: str) -> Library:
        """Return the library pinned to an algorithm."""
        if self._drawn is None:
            options = Options(algorithm, placement=self.placement)
            library = find_library(
                self.name, self.cluster, self.values, ranks=self.ranks, options=options, calibration=None
            )
            if not isinstance(library, Scheduled):
                return library
            self._drawn = library
        return self._drawn.pinned(algorithm)


def _cell(find: _Finder, algorithm: str, kind: str, most: int) -> CoverageCell:
    cell = CoverageCell(find.name, algorithm, kind)
    try:
        library = find(algorithm)
        collective = Collective(kind, library.ranks, NBYTES, dtype="float32")
        used = _algorithm_used(library, collective)
    except ValueError as error:
        return replace(cell, refused=str(error))
    return replace(cell, taken=used, proved=_proved(library, collective, algorithm, most))


def _algorithm_used(library: Library, collective: Collective) -> str:
    """Return the algorithm that a library uses, without timing schedules, because some are long."""
    if not (library.plays_links and isinstance(library, Scheduled)):
        return answer(library, collective).algorithm
    candidate = library.choose(collective)
    return library.word(candidate, library.schedule(collective, candidate))


def _proved(library: Library, collective: Collective, algorithm: str, most: int) -> tuple[int, int] | None:
    """Return the first and last number of ranks for which it is proved; raise an error if one is wrong."""
    entry = LIBRARIES[library.name]
    if entry.by_machines:
        if library.ranks == 1:
            return None
        prove(library.schedule(collective, library.choose(collective)))
        return library.ranks, library.ranks
    for ranks in range(1, most + 1):
        sized = replace(collective, ranks=ranks, root=ranks // 2 if collective.kind in ROOTED else 0)
        schedule = entry.module.build(sized, algorithm)
        if schedule is None:
            return None
        prove(schedule)
    return (1, most) if most else None
