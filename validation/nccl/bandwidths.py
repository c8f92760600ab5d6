"""A calibration on a site's fabric, by the site's bus bandwidths."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import exp, log
from statistics import fmean

from ringside.sim.calibration import Calibration
from ringside.sim.collective import KINDS, Collective
from ringside.sim.libraries.find import find_library
from ringside.sim.libraries.nccl.fabric_factors import FabricFactor
from ringside.sim.record import RecordError
from ringside.topologies.load import parse_name
from ringside.topologies.units import format_rate
from ringside.validation.machines import gpus_in, with_nodes
from ringside.validation.readers.bandwidth_table import SiteBandwidth

MEASURED = 0.95
"""Share of its traffic's time below which a row is no measurement of these links: tables are rounded."""

LEAST_FACTOR = 0.05
"""The least factor, for rows that are as fast as a latency allows."""


def on_fabric(
    calibration: Calibration, rows: Sequence[SiteBandwidth], machine: str, values: Mapping[str, str]
) -> Calibration:
    """Return the calibration with a factor for each row, at which it gives that bandwidth."""
    steady = replace(calibration, fabric=()) if calibration.nccl or calibration.sends else None
    logs: dict[tuple[str, int, int], list[float]] = {}
    for row in rows:
        nodes, factor = _factor(steady, row, machine, values)
        logs.setdefault((row.collective, nodes, row.nbytes), []).append(log(factor))
    factors = [
        FabricFactor(collective=kind, nodes=nodes, nbytes=nbytes, factor=exp(fmean(several)))
        for (kind, nodes, nbytes), several in logs.items()
    ]
    return replace(calibration, fabric=tuple(factors))


def _factor(
    calibration: Calibration | None, row: SiteBandwidth, machine: str, values: Mapping[str, str]
) -> tuple[int, float]:
    """Return the nodes of a row, and its bytes' part of the time over that without the table."""
    each = gpus_in(parse_name(machine).machine)
    ranks = row.gpus or row.nodes * each
    nodes = row.nodes or max(1, -(-ranks // each))
    if ranks < 2:
        raise RecordError(f"{row.place}: a collective of 1 GPU; write rows of 2 GPUs or more")
    if ranks > each and ranks % each:
        raise RecordError(f"{row.place}: {ranks} GPUs, which {each} on each machine do not make; write nodes")
    library = find_library(
        "nccl", with_nodes(machine, nodes, ranks), values, ranks=ranks, calibration=calibration
    )

    def time_s(nbytes: int) -> float:
        collective = Collective(row.collective, ranks, nbytes, dtype="bfloat16")
        return library.time(collective, library.choose(collective)).time_s

    measured_s = row.nbytes * KINDS[row.collective].busbw_factor(ranks) / row.busbw
    collective = Collective(row.collective, ranks, row.nbytes, dtype="bfloat16")
    least_s = library.bound(collective, library.choose(collective))
    if measured_s < MEASURED * least_s:
        most = row.busbw * measured_s / least_s
        raise RecordError(
            f"{row.place}: {format_rate(row.busbw, 3)}, but the links of {machine} carry at most "
            f"{format_rate(most, 3)} on {ranks} GPUs; write GB/s, or the site's own cards by `settings`"
        )
    latency_s = time_s(2 * ranks)
    return nodes, max((measured_s - latency_s) / (time_s(row.nbytes) - latency_s), LEAST_FACTOR)
