"""Products by tiles in waves beside the measured grid of each GPU, with the shares that other GPUs imply.

``python -m ringside.validation.published.waves`` prints, for each GPU and precision, the share of the peak
that its own grid implies, the share that all other GPUs imply, and the median error with that one, at sizes
from 2,048 on.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from statistics import fmean, linear_regression, median
from typing import NamedTuple

from ringside.sim.compute.grids import product_rates
from ringside.sim.compute.interpolation import Grid
from ringside.sim.compute.waves import NBYTES, wave_rate
from ringside.sim.workload.devices import MEMORY_EFFICIENCY, device, full_name
from ringside.validation.published.grids import PRECISIONS, SYSTEMS

NARROWEST = 2048
"""The smallest m, n and k that are compared."""

SHARES = 0.2, 1.2
"""The range in which a grid's share is sought."""

BLOCK = "fp8_block"
"""The precision with a share of its own."""

Case = tuple[str, str]
"""A GPU and a precision."""


class LeftOut(NamedTuple):
    """The share that a case's own grid implies, the share that other GPUs imply, and the median error."""

    case: Case
    own: float
    others: float
    error: float


def measured(case: Case) -> list[tuple[tuple[int, int, int], float]]:
    """Return sizes and FLOP/s of a shipped grid's wide products; none without a grid."""
    rates = product_rates(*case)
    grid = rates.figures if rates else None
    if not isinstance(grid, Grid):
        return []
    points = zip(product(*grid.axes), grid.figures, strict=True)
    return [((m, n, k), rate) for (m, n, k), rate in points if min(m, n, k) >= NARROWEST]


def peak(case: Case) -> float:
    """Return the FLOP/s of a GPU's data sheet in a precision."""
    gpu, precision = case
    return device(gpu).peak(full_name("fp8" if precision == BLOCK else precision) or precision)


def speed(case: Case) -> float:
    """Return the peak FLOP/s of one multiprocessor."""
    return peak(case) / device(case[0]).multiprocessors


def ratios(case: Case, share: float) -> list[float]:
    """Return, for each wide product, its time by tiles in waves over the measured one."""
    gpu = device(case[0])
    return [
        rate
        / wave_rate(
            *sizes, peak=peak(case), multiprocessors=gpu.multiprocessors, share=share,
            bandwidth=gpu.memory_bandwidth * MEMORY_EFFICIENCY, itemsize=NBYTES[case[1]],
        )
        for sizes, rate in measured(case)
    ]  # fmt: skip


def own_share(case: Case) -> float:
    """Return the share with which the median product takes as long as measured."""
    low, high = SHARES
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if median(ratios(case, middle)) > 1 else (low, middle)
    return (low + high) / 2


def own_shares() -> dict[Case, float]:
    """Return each grid's own share."""
    return {case: own_share(case) for case in product(SYSTEMS, PRECISIONS) if measured(case)}


def law(own: Mapping[Case, float]) -> tuple[float, float, float]:
    """Return what shares imply: ``SLOW_SHARE``, ``LIMIT`` and ``BLOCK_SHARE`` of `sim.compute.waves`."""
    plain = {case: share for case, share in own.items() if case[1] != BLOCK}
    fitted = linear_regression(
        [speed(case) for case in plain],
        [1 / share for share in plain.values()],
    )
    return 1 / fitted.intercept, 1 / fitted.slope, fmean(own[case] for case in own if case[1] == BLOCK)


def left_out(own: Mapping[Case, float]) -> Iterator[LeftOut]:
    """Return each grid's error with the law of all other GPUs."""
    for case in own:
        slow, limit, block = law({other: share for other, share in own.items() if other[0] != case[0]})
        others = 1 / (1 / slow + speed(case) / limit)
        share = block if case[1] == BLOCK else others
        yield LeftOut(case, own[case], share, median(abs(ratio - 1) for ratio in ratios(case, share)))


def main() -> None:
    """Print the law of all grids, and each grid's error without its GPU."""
    own = own_shares()
    slow, limit, block = law(own)
    print(f"all: slow {slow:.3f}, limit {limit / 1e12:.1f} TFLOP/s, {BLOCK} {block:.3f}")
    print(f"{'gpu':11}{'precision':10}{'own':>6}{'others':>8}{'error':>8}")
    for (gpu, precision), mine, others, error in left_out(own):
        print(f"{gpu:11}{precision:10}{mine:6.2f}{others:8.2f}{error:8.1%}")


if __name__ == "__main__":
    main()
