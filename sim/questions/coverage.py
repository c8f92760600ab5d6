"""Which library supports which collective by which algorithm, and which are proved."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ringside.sim.collective import KINDS
from ringside.sim.libraries.coverage import CoverageCell, coverage
from ringside.sim.libraries.find import LIBRARIES, Options, find_library
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.fields import OnCluster
from ringside.sim.questions.question import choices, option
from ringside.topologies.names import one_of
from ringside.topologies.placement import placement_notes


def _libraries(text: str) -> str:
    if text not in LIBRARIES:
        raise ValueError(f"unknown library {text!r}; write {one_of(LIBRARIES, text)}")
    return text


@dataclass(frozen=True, kw_only=True)
class Coverage(OnCluster):
    """Which library supports which collective by which algorithm, and the proved numbers of ranks."""

    schema: ClassVar[str] = "collectives"

    cluster: str = option("Cluster to check on.", metavar="NAME[:COUNT]|FILE", default="dgx-h100:2")
    library: str | None = option(
        "Only this library.",
        metavar=choices(LIBRARIES), default=None, default_text="all", parse=_libraries,
    )  # fmt: skip
    prove: int = option(
        "Prove schedules that do not depend on machines for 1 to this number of ranks.",
        default=16,
        minimum=0,
        maximum=64,
    )

    @property
    def libraries(self) -> tuple[str, ...]:
        """The libraries checked."""
        return (self.library,) if self.library else tuple(LIBRARIES)

    @property
    def count(self) -> int:
        """The number of cells."""
        return len(KINDS) * sum(len(LIBRARIES[name].module.algorithms) for name in self.libraries)

    def ask(self, *, on_cell: Callable[[CoverageCell], None] = lambda _: None) -> "Covered":
        """Check each collective by each algorithm; ``on_cell`` is called after each."""
        # raises for an invalid cluster or number of ranks
        ideal = find_library(
            "ideal", self.cluster, self.settings, ranks=self.ranks, options=Options(placement=self.placement)
        )
        cells = []
        for cell in coverage(
            self.cluster, self.ranks, self.libraries, self.prove, self.placement, self.settings
        ):
            cells.append(cell)
            on_cell(cell)
        return Covered(self, cells, placement_notes(self.ranks, self.placement, ideal.placed))


@dataclass(frozen=True, slots=True)
class Covered(AnswerOnDemand):
    """The answer: a cell for each library, algorithm and collective."""

    question: Coverage
    cells: Sequence[CoverageCell]
    notes: Sequence[str]

    @property
    def headline(self) -> str:
        """How much is supported, and proved."""
        able = [cell for cell in self.cells if not cell.refused]
        proved = sum(cell.proved is not None for cell in able)
        kinds, libraries = ({getattr(cell, name) for cell in able} for name in ("collective", "library"))
        return (
            f"{proved} of {len(able)} ways proved: {len(kinds)} collectives by {len(libraries)} "
            f"{'library' if len(libraries) == 1 else 'libraries'}"
        )

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs."""
        return self.question.inputs() | {"libraries": list(self.question.libraries)}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each cell: its algorithm and proved ranks, or the reason why it is refused."""
        return [_row(cell) for cell in self.cells]


def _row(cell: CoverageCell) -> dict[str, Any]:
    row = {"library": cell.library, "algorithm": cell.algorithm, "collective": cell.collective}
    if cell.refused:
        return row | {"refused": cell.refused}
    return row | {"taken": cell.taken, "proved_ranks": list(cell.proved) if cell.proved else None}
