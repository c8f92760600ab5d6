"""NCCL's collectives under a cause: predicted by similar machines' measured model, with one change."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.sim.libraries.gaussian import EIGHTY
from ringside.sim.libraries.nccl.cluster import as_measured
from ringside.sim.libraries.nccl.communicator import Communicator, SiteFacts
from ringside.sim.libraries.nccl.device.traffic import least_traffic
from ringside.sim.libraries.nccl.graph.graph import Graph
from ringside.sim.libraries.nccl.measured import MeasuredModel
from ringside.sim.libraries.nccl.message_times import Launch, work_of
from ringside.sim.libraries.nccl.pins import Pins
from ringside.sim.libraries.scaling import OPEN
from ringside.sim.record import Record, RecordError, collective_of
from ringside.validation.explain.causes import (
    ALGORITHM,
    BETWEEN_LATENCY,
    CHANNELS,
    INSIDE,
    INSIDE_LATENCY,
    LINK,
    PROCESS,
    PROTOCOL,
    SOCKETS,
    WAIT,
    SlowCause,
    Value,
    cards,
)
from ringside.validation.explain.verdict import LogPrediction
from ringside.validation.machines import with_nodes
from ringside.validation.nccl.anchor import as_before
from ringside.validation.nccl.observed import NcclRow, choose, observed

Floats = NDArray[np.float64]

_SCALED = {
    LINK.key: ("between_GBps",),
    INSIDE.key: ("inside_GBps", "nvls_GBps"),
    BETWEEN_LATENCY.key: ("between", "nvls_tree"),
    INSIDE_LATENCY.key: ("inside", "nvls"),
}
"""The model's parameters that a cause multiplies."""


class NcclFamily:
    """The predicted times of one log's rows on similar machines, with and without a cause."""

    def __init__(
        self,
        records: Sequence[Record],
        machine: str,
        values: Mapping[str, str],
        model: MeasuredModel,
        fitted: Mapping[str, str],
    ) -> None:
        rows = observed(records, machine, values)
        kept = choose(rows, model.facts).kept
        if not kept:
            raise RecordError(
                "none of these rows has a form in the measured model: all_reduce, all_gather and "
                "reduce_scatter of NCCL on two ranks or more are explained"
            )
        self._model = model
        self._rows = [rows[place] for place in kept]
        self.records = [row.record for row in self._rows]
        self._before = {
            row.comm: as_measured(
                row.comm, with_nodes(machine, row.comm.nodes, row.comm.ranks), values, fitted
            )
            for row in self._rows
        }
        """The machines of each communicator with the rates that were fitted."""
        self.runs = len({row.run for row in self._rows})
        self.measured = model.has_near_rows(work_of(choose(self._rows, model.facts).tasks))
        self._networks = {record.fingerprint.get("network", "") for record in self.records}
        listed = [int(count) for row in self._rows if (count := row.record.fingerprint.get("cards"))]
        fewer = bool(listed) and max(listed) < min(row.comm.system.nics for row in self._rows)
        shown = {SOCKETS.key: "sockets" in self._networks, "cards": fewer}
        self.shown = frozenset(key for key, is_shown in shown.items() if is_shown)
        self.as_family = self._ask(self._rows, model)
        self.bound_s = np.array(
            [
                least_traffic(_pinned(row.comm, {"protocol": ""}), collective_of(row.record))
                for row in self._rows
            ]
        )

    @property
    def causes(self) -> tuple[SlowCause, ...]:
        """Return the causes that may apply: all but those that the log itself rules out."""
        comms = [row.comm for row in self._rows]
        several = any(comm.nodes > 1 for comm in comms)
        nics = min(comm.system.nics for comm in comms)
        unpinned = [comm.settings.pins for comm in comms]
        return (
            *((LINK, BETWEEN_LATENCY) if several else ()),
            *((SOCKETS,) if several and self._networks & {"", "sockets"} else ()),
            *((cards(nics),) if several and nics > 1 else ()),
            *((INSIDE, INSIDE_LATENCY) if any(comm.gpus > 1 for comm in comms) else ()),
            *(WAIT, CHANNELS),
            *(() if any(pins.protocol for pins in unpinned) else (PROTOCOL,)),
            *(() if any(pins.algorithm for pins in unpinned) else (ALGORITHM,)),
            *(() if any(row.launch != Launch() for row in self._rows) else (PROCESS,)),
        )

    def under(self, cause: SlowCause, value: Value) -> LogPrediction:
        """Predict similar machines under the cause; NaN where NCCL cannot run."""
        model = self._model
        if isinstance(value, tuple):
            return self._scaled(dict(zip((LINK.key, BETWEEN_LATENCY.key), value, strict=True)))
        if cause.key in _SCALED:
            return self._scaled({cause.key: float(value)})
        if cause.key == WAIT.key:
            later = np.logaddexp(self.as_family.mean, np.log(float(value) * 1e-6))
            return replace(self.as_family, mean=later)
        if cause.key == PROCESS.key:
            launch = Launch(gpus=int(value))
            return self._ask([replace(row, launch=launch) for row in self._rows], model)
        if cause.key == "cards":
            return self._with_cards(int(value))
        if cause.key == CHANNELS.key:
            capped = replace(model, facts=_at_most(model.facts, int(value)))
            return self._ask(self._changed(lambda comm: _capped(comm, int(value))), capped)
        pins = {cause.key: str(value)}
        return self._ask(self._changed(lambda comm: _pinned(comm, pins)), model)

    def as_usual(self) -> LogPrediction:
        """Predict similar machines with one process per GPU and no pinned algorithm."""
        rows = self._changed(lambda comm: replace(comm, settings=replace(comm.settings, pins=Pins())))
        return self._ask([replace(row, launch=Launch()) for row in rows], self._model)

    @property
    def unusual(self) -> str:
        """The log's own unusual settings, as options; empty for none."""
        settings = {
            text
            for row in self._rows
            for text in (
                f"one thread launches on {row.launch.gpus} GPUs (-g {row.launch.gpus})"
                * (row.launch.gpus > 1),
                f"one process has {row.launch.threads} threads (-t {row.launch.threads})"
                * (row.launch.threads > 1),
                f"NCCL_ALGO={row.comm.settings.pins.algorithm}" * bool(row.comm.settings.pins.algorithm),
                f"NCCL_PROTO={row.comm.settings.pins.protocol}" * bool(row.comm.settings.pins.protocol),
            )
        }
        return ", ".join(sorted(settings - {""}))

    def _scaled(self, factors: Mapping[str, float]) -> LogPrediction:
        values = dict(self._model.values)
        for key, factor in factors.items():
            values |= {name: values[name] * factor for name in _SCALED[key]}
        return self._ask(self._rows, replace(self._model, values=values))

    def _with_cards(self, count: int) -> LogPrediction:
        share = count / min(row.comm.system.nics for row in self._rows)
        model, facts = self._model, self._model.facts
        if facts.channels is not None:
            facts = replace(facts, channels=max(round(facts.channels * share), 1))
        scaled = {name: model.values[name] * share for name in _SCALED[LINK.key]}
        rows = self._changed(lambda comm: _fewer_channels(comm, share))
        return self._ask(rows, replace(model, values={**model.values, **scaled}, facts=facts))

    def _changed(self, change: Callable[[Communicator], Communicator]) -> list[NcclRow]:
        """Return the rows with changed communicators, one per original."""
        made: dict[int, Communicator] = {}
        for row in self._rows:
            if id(row.comm) not in made:
                made[id(row.comm)] = comm = change(row.comm)
                self._before[comm] = change(self._before[row.comm])
        return [replace(row, comm=made[id(row.comm)]) for row in self._rows]

    def _ask(self, rows: Sequence[NcclRow], model: MeasuredModel) -> LogPrediction:
        chosen = choose(rows, model.facts)
        mean, sigma, half = np.full((3, len(rows)), np.nan)
        if chosen.kept:
            comms = [rows[place].comm for place in chosen.kept]
            before = [
                as_before(task, self._before[comm], model)
                for task, comm in zip(chosen.tasks, comms, strict=True)
            ]
            logs, deviation, wide = model.log_us(work_of([task for task, _ in before]))
            change = np.log([ratio for _, ratio in before])
            mean[chosen.kept] = logs + np.log(1e-6) + change
            sigma[chosen.kept] = np.hypot(deviation, OPEN / EIGHTY * change)
            half[chosen.kept] = np.hypot(wide, OPEN * change)
        return LogPrediction(mean, sigma, half)


def _at_most(facts: SiteFacts, channels: int) -> SiteFacts:
    return facts if facts.channels is None else replace(facts, channels=min(facts.channels, channels))


def _capped(comm: Communicator, channels: int) -> Communicator:
    settings = comm.settings
    fewer = replace(
        settings,
        min_ctas=min(settings.min_ctas, channels),
        max_ctas=min(settings.max_ctas, channels),
    )
    return replace(comm, settings=fewer)


def _pinned(comm: Communicator, pins: Mapping[str, Any]) -> Communicator:
    return replace(comm, settings=replace(comm.settings, pins=replace(comm.settings.pins, **pins)))


def _fewer_channels(comm: Communicator, share: float) -> Communicator:
    """Model fewer cards: the search finds proportionally fewer rings and trees."""
    if comm.nodes == 1:
        return comm

    def fewer(graph: Graph) -> Graph:
        return replace(graph, channels=max(round(graph.channels * share), 1))

    graphs = comm.graphs
    return replace(comm, graphs=replace(graphs, ring=fewer(graphs.ring), tree=fewer(graphs.tree)))
