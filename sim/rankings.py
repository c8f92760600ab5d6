"""The times by which `sim.pick` ranks: NCCL's tuner, NCCL's rings and trees as pipelines, the textbook."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from sim.algorithms import algorithms_for, schedule
from sim.collective import Collective, itemsize
from sim.engine.bounds import traffic_bound
from sim.engine.effort import consider
from sim.engine.events import simulate
from sim.libraries import ideal
from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.device.closed_form import closed_form
from sim.libraries.nccl.device.schedules import SCHEDULED
from sim.libraries.nccl.library import LAUNCH_S, overhead_s
from sim.libraries.nccl.names import ALGORITHMS, PROTOCOLS
from sim.libraries.nccl.tuning.tuner import cost_table
from sim.parameters import preset_of
from sim.pick import Default, Pair, Times
from topologies import Topology, ranks


def tuner_times(
    comms: Mapping[int, Communicator], kind: str, dtype: str = "float32", redop: str = "sum"
) -> Times:
    """What NCCL believes of every pair that it considers, plus the launch; ``comms`` by node count."""

    def times(nodes: int, sizes: Sequence[int]) -> dict[Pair, list[float]]:
        table = cost_table(comms[nodes], kind, dtype, redop)
        seconds = table.times_us(np.array(sizes)) * 1e-6 + LAUNCH_S
        return {
            (algorithm, protocol): seconds[:, row, column].tolist()
            for row, algorithm in enumerate(ALGORITHMS)
            for column, protocol in enumerate(PROTOCOLS)
            if table.rate(algorithm, protocol)
        }

    return times


def pipeline_times(
    comms: Mapping[int, Communicator], kind: str, dtype: str = "float32", redop: str = "sum"
) -> Times:
    """The closed form of the rings and trees that NCCL considers, base latency and launch included.

    The engine gives the same within 3 %. Algorithms without a schedule, such as NVLS, are left out:
    two models in one ranking decide nothing.
    """

    def times(nodes: int, sizes: Sequence[int]) -> dict[Pair, list[float]]:
        comm, width = comms[nodes], itemsize(dtype)
        table = cost_table(comm, kind, dtype, redop)
        collectives = [Collective(kind, comm.ranks, nbytes, width) for nbytes in sizes]
        return {
            (algorithm, protocol): [
                closed_form(comm, collective, algorithm, protocol) + overhead_s(algorithm, protocol)
                for collective in collectives
            ]
            for algorithm in SCHEDULED
            for protocol in PROTOCOLS
            if table.rate(algorithm, protocol)
        }

    return times


def ideal_times(cluster: Callable[[int], Topology], kind: str, dtype: str = "float32") -> Times:
    """The textbook's algorithms on the cluster of so many nodes.

    Closed forms where there are any, else the engine; but an algorithm whose traffic alone takes as
    long as the second best is not simulated: its bound stands for it, and cannot win.
    """

    def times(nodes: int, sizes: Sequence[int]) -> dict[Pair, list[float]]:
        graph = cluster(nodes)
        found, width = len(ranks(graph)), itemsize(dtype)
        at_sizes = [_textbook(Collective(kind, found, nbytes, width), graph) for nbytes in sizes]
        return {(name, "auto"): [seconds[name] for seconds in at_sizes] for name in algorithms_for(kind)}

    return times


def _textbook(collective: Collective, graph: Topology) -> dict[str, float]:
    parameters = preset_of(graph)
    found: dict[str, float] = {}
    for name in algorithms_for(collective.kind) if ideal.uniform(graph) else ():
        closed = ideal.closed_form(name, collective, parameters)
        if closed is not None:
            found[name] = closed
    for name in algorithms_for(collective.kind):
        if name not in found:
            plan = schedule(name, collective)
            consider(plan, graph)
            bound = traffic_bound(plan, graph)
            idle = len(found) > 1 and bound >= sorted(found.values())[1]
            found[name] = bound if idle else simulate(plan, graph).time_s
    return found


def nccl_default(
    comms: Mapping[int, Communicator], kind: str, dtype: str = "float32", redop: str = "sum"
) -> Default:
    """What NCCL takes where nobody interferes but the communicator's pins."""

    def default(nodes: int, nbytes: int) -> Pair:
        choice = cost_table(comms[nodes], kind, dtype, redop).choose(nbytes)
        return choice.algorithm, choice.protocol

    return default
