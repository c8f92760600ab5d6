"""How far NCCL's own estimate is off on measured machines, by class of size.

``python -m ringside.validation.nccl.belief`` prints the quantiles that `ringside.sim.libraries.nccl.belief`
keeps.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from ringside.sim.collective import Collective
from ringside.sim.libraries.nccl.belief import SIZES, size_class
from ringside.sim.libraries.nccl.library import Nccl
from ringside.sim.record import Record
from ringside.validation.nccl.observed import observed

QUANTILES = (0.1, 0.9)


def quantiles(records: Sequence[Record]) -> dict[bool, list[tuple[float, ...]]]:
    """Return the quantiles of measured over estimated time of each size class, on several nodes or one.

    Each machine's rows weigh 1 together.
    """
    ratios: dict[tuple[bool, int], list[tuple[str, float]]] = defaultdict(list)
    for machine in sorted({record.cluster for record in records}):
        for row in observed([record for record in records if record.cluster == machine], machine, {}):
            record, library = row.record, Nccl(row.comm)
            collective = Collective(
                record.collective, record.ranks, record.nbytes, dtype=record.dtype or "float32",
                redop=record.redop or "sum",
            )  # fmt: skip
            estimated = library.time(collective, library.choose(collective)).time_s
            key = row.comm.nodes > 1, size_class(record.nbytes)
            ratios[key].append((machine, record.time_s / estimated))
    classes = range(len(SIZES) + 1)
    return {several: [_weighted(ratios[several, place]) for place in classes] for several in (False, True)}


def _weighted(ratios: Sequence[tuple[str, float]]) -> tuple[float, ...]:
    counts: dict[str, int] = defaultdict(int)
    for machine, _ in ratios:
        counts[machine] += 1
    ordered = sorted((ratio, 1 / counts[machine] / len(counts)) for machine, ratio in ratios)
    reached = np.cumsum([weight for _, weight in ordered])
    return tuple(ordered[int(np.searchsorted(reached, quantile))][0] for quantile in QUANTILES)


if __name__ == "__main__":
    from ringside.validation.published.calibrations import usable

    for several, factors in quantiles(usable()).items():
        rounded = [tuple(round(factor, 2) for factor in pair) for pair in factors]
        print("several nodes" if several else "one node", rounded)
