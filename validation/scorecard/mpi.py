"""MPI's model on held-out rows, and the share of cells whose fastest algorithm it predicts.

Every split fits some rows of a machine and judges others: more nodes, another collective. A row is never
judged by a fit that included it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ringside.sim.libraries.mpi.measured import MpiModel
from ringside.sim.record import Record
from ringside.validation.mpi.fit import fit
from ringside.validation.mpi.observed import is_observable, observed
from ringside.validation.published.mpi import published_mpi
from ringside.validation.scorecard.judged import Counted, JudgedRow, JudgedTable

TIED = 0.1
"""Algorithms this close to the fastest count as tied, because runs of one kind vary as much."""

SMALL = (("mare-nostrum", "all_reduce", 32, 60), ("leonardo", "all_gather", 4, 32))
"""Machine, collective, nodes fitted and nodes judged for small calibrations."""


@dataclass(frozen=True)
class MpiSplit:
    """Rows to fit and rows to judge of one machine, of one collective or of all.

    ``fitted_on`` says which rows are fitted.
    """

    machine: str
    collective: str
    fitted_on: str
    judged_on: str
    fitted: list[Record]
    judged: list[Record]

    @property
    def name(self) -> str:
        """The split in words."""
        rows = f"{self.machine} {self.collective}".rstrip()
        return f"{rows}, fitted {self.fitted_on}{self.judged_on}"

    @cached_property
    def _model(self) -> MpiModel:
        return fit(observed(self.fitted, self.machine, {}))

    def predicted(self, records: Sequence[Record]) -> list[JudgedRow]:
        """Return records beside the fit's predictions."""
        times = self._model.seconds([row.task for row in observed(records, self.machine, {})])
        return [
            JudgedRow(
                series=self.machine,
                what=record.algorithm,
                measured=record.time_s,
                part=self.collective,
                predicted=float(middle),
                low=float(low),
                high=float(high),
                traits={"cell": f"{record.collective} of {record.nbytes} B on {record.num_nodes} nodes"},
            )
            for record, middle, low, high in zip(records, *times, strict=True)
        ]

    def winners(self) -> tuple[Counted, Counted]:
        """Count the cells in which the model picks the fastest algorithm, or one at most `TIED` slower."""
        return winners(self.predicted(self.judged))

    @property
    def table(self) -> JudgedTable:
        """The split as a table."""
        return JudgedTable(
            name=self.name,
            title="Open MPI's times on Leonardo and MareNostrum 5",
            source="validation/published/mpi",
            sets=self.fitted_on,
            rule="none",
            judged=lambda: self.predicted(self.judged),
            counted=self.winners,
            fitted=lambda: [row.error for row in self.predicted(self.fitted)],
        )


def mpi_tables() -> list[JudgedTable]:
    """Return a table per split of the published rows."""
    return [split.table for split in splits(published_mpi())]


def splits(records: Sequence[Record]) -> Iterator[MpiSplit]:
    """Yield the two small calibrations, then each machine's by nodes and by collective."""
    known = [record for record in records if is_observable(record)]
    forced = [record for record in known if record.algorithm != "auto" and record.ranks == record.num_nodes]
    for machine, kind, few, many in SMALL:
        rows = [one for one in forced if (one.cluster, one.collective) == (machine, kind)]
        yield MpiSplit(
            machine,
            kind,
            f"on {few} nodes",
            f", judged on {many}",
            [one for one in rows if one.num_nodes == few],
            [one for one in rows if one.num_nodes == many],
        )
    for machine in sorted({one.cluster for one in forced}):
        rows = [one for one in forced if one.cluster == machine]
        most = max(one.num_nodes for one in rows)
        yield MpiSplit(
            machine,
            "",
            f"below {most} nodes",
            ", judged there",
            [one for one in rows if one.num_nodes < most],
            [one for one in rows if one.num_nodes == most],
        )
        for kind in sorted({one.collective for one in rows}):
            yield MpiSplit(
                machine,
                kind,
                "on all others",
                "",
                [one for one in rows if one.collective != kind],
                [one for one in rows if one.collective == kind],
            )


def winners(rows: Sequence[JudgedRow]) -> tuple[Counted, Counted]:
    """Count cells of several measured algorithms in which it picks the fastest, or one at most `TIED` slower.

    A cell is a size on a number of nodes. An algorithm measured in several implementations counts by its
    fastest.
    """
    cells: dict[str, dict[str, JudgedRow]] = {}
    for row in rows:
        cell = cells.setdefault(row.traits["cell"], {})
        if row.what not in cell or row.measured < cell[row.what].measured:
            cell[row.what] = row
    contests = [list(algorithms.values()) for algorithms in cells.values() if len(algorithms) > 1]
    won = near = 0
    for several in contests:
        least = min(row.measured for row in several)
        named = min(several, key=lambda row: row.predicted).measured
        won += named == least
        near += named <= least * (1 + TIED)
    return Counted("winner", won, len(contests)), Counted("or tied", near, len(contests))
