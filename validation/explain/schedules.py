"""Ringside's schedules and Gloo's rings under a cause: predicted on their network, with one change."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ringside.sim.calibration import Calibration
from ringside.sim.libraries.gaussian import EIGHTY
from ringside.sim.libraries.scheduled import evaluate
from ringside.sim.parameters import Parameters
from ringside.sim.record import Record, RecordError
from ringside.topologies import Topology
from ringside.topologies.graph import ranks
from ringside.validation.explain.causes import ALL_LINKS, HOST_LINKS, MESSAGE, WAIT, SlowCause, Value
from ringside.validation.explain.verdict import LogPrediction
from ringside.validation.rows import PlacedRecord, rows

_NINE_OF_TEN = 1.645


class ScheduleFamily:
    """The rows of one log as the network's calibration predicts them, with and without a cause."""

    runs = 1
    unusual = ""
    shown: frozenset[str] = frozenset()
    causes: Sequence[SlowCause] = (HOST_LINKS, ALL_LINKS, MESSAGE, WAIT)

    def __init__(
        self, records: Sequence[Record], cluster: str, values: Mapping[str, str], calibration: Calibration
    ) -> None:
        self._rows: list[tuple[PlacedRecord, Parameters]] = []
        self.records: list[Record] = []
        sigmas = []
        for row in rows(records, cluster, values):
            record = row.record
            fit = calibration.fit_for(record.library, record.algorithm, record.protocol)
            if fit:
                settings = calibration.settings_on(cluster)
                _, low, high = row.calibrated(fit, settings)
                self._rows.append((row, row.placed.carried_over(fit.parameters, settings)))
                self.records.append(record)
                sigmas.append(float(np.log(high / low)) / 2 / _NINE_OF_TEN)
        if not self._rows:
            raise RecordError("the calibration has no fit for these rows; write another --calibration")
        self._sigma = np.array(sigmas)
        self.measured = np.ones(len(sigmas), bool)
        self.as_family = self._ask()
        self.bound_s = np.array([_bound(row, parameters) for row, parameters in self._rows])

    def under(self, cause: SlowCause, value: Value) -> LogPrediction:
        """Predict the rows under the cause."""
        factor = float(value)  # type: ignore[arg-type]
        if cause is WAIT:
            later = np.logaddexp(self.as_family.mean, np.log(factor * 1e-6))
            return replace(self.as_family, mean=later)
        if cause is MESSAGE:
            return self._ask(alpha=factor)
        return self._ask(share=factor, hosts=1 if cause is HOST_LINKS else None)

    def as_usual(self) -> LogPrediction:
        """Return the same prediction: these logs record no unusual settings."""
        return self.as_family

    def _ask(self, alpha: float = 1.0, share: float = 1.0, hosts: int | None = None) -> LogPrediction:
        seconds = []
        for row, parameters in self._rows:
            later = replace(parameters, alpha=parameters.alpha * alpha)
            graph = later.on(row.placed.graph, row.placed.routes)
            slow = _with_slow_links(graph, share, hosts)
            seconds.append(evaluate(row.schedule, slow, later, "simpy", routes=row.placed.routes)[0])
        return LogPrediction(np.log(seconds), self._sigma, EIGHTY * self._sigma)


def _with_slow_links(graph: Topology, share: float, hosts: int | None) -> Topology:
    """Scale the links of the first ``hosts`` hosts, by default of all, to a share of their rates."""
    names = set(ranks(graph)[:hosts])
    for src, dst, link in graph.edges(data=True):
        if hosts is None or {src, dst} & names:
            link["bandwidth"] *= share
    return graph


def _bound(row: PlacedRecord, parameters: Parameters) -> float:
    """Return the seconds for the bytes that must enter or leave one rank at its links' nominal rates."""
    graph = row.placed.graph
    rate = min(
        sum(link["bandwidth"] for *_, link in graph.out_edges(rank, data=True)) for rank in ranks(graph)
    )
    return row.collective.nbytes / float(rate)
