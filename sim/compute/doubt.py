"""How far a predicted step may be off: the factor that four of five measured steps lie within.

Logarithms of measured over predicted seconds deviate between sources, whose software, settings and machines
have no words here, and within one. What sources with the same stack on the same GPU have in common is known
from few of them, or from none: their variance has a scaled inverse chi-squared prior, as of all sources, so a
step of one more source has Student's t distribution (Gelman et al., Bayesian Data Analysis, sections 2.6 and
3.2). Figures are those of published steps (`ringside.validation.scorecard.absolute`).
"""

from collections.abc import Mapping
from math import exp, hypot, log, sqrt

from ringside.sim.libraries.gaussian import EIGHTY

PRIOR = 4
"""Sources that the prior weighs as much as.

Of 1, 2, 3, 4, 6, 10 and 30 it gives the steps of sources that are left out, each source weighing the same,
the highest density."""

BETWEEN = 0.074
"""Standard deviation of log time between sources, whatever their stacks and GPUs."""

WITHIN = 0.069
"""Standard deviation of log time within one source: where a row of the same series is known."""

ALIKE: Mapping[tuple[str, str], tuple[int, float]] = {
    ("aleph", "a100"): (1, 0.0002),
    ("aleph-rms", "a100"): (1, 0.0),
    ("aleph-torch", "a100"): (1, 0.0103),
    ("compile", "a100"): (1, 0.0142),
    ("compile", "h100"): (1, 0.0),
    ("compile", "h100-96gb"): (1, 0.007),
    ("compile", "h200"): (1, 0.0001),
    ("eager", "a100"): (1, 0.0007),
    ("eager", "h100-96gb"): (1, 0.0033),
    ("fsdp1", "a100"): (1, 0.0006),
    ("fsdp1", "a100-40gb"): (1, 0.0004),
    ("fsdp1", "h100"): (1, 0.007),
    ("internevo", "a100"): (1, 0.0008),
    ("jax", "h100"): (3, 0.0425),
    ("megatron", "a100"): (6, 0.1387),
    ("megatron", "v100"): (3, 0.0234),
    ("nanotron", "h100"): (1, 0.0001),
    ("te", "a100"): (1, 0.0048),
    ("te", "b200"): (2, 0.0154),
    ("te", "gb200"): (1, 0.0008),
    ("te", "h100"): (4, 0.0066),
}
"""By stack and GPU, the number of sources and the sum of the squares of their medians, of log time."""

UNNAMED = 0.12
"""Further deviation where the stack is not named: stacks' kernels differ in what they move."""

ELSEWHERE = 0.18
"""Of models other than decoders, whose convolutions and products are priced by shares of the peaks.

Eight of ten published rows of one GPU lie within it
(`ringside.validation.published.training.ddp.single_gpu`)."""


def band(*, measured: bool, named: bool, is_decoder: bool, stack: str = "", gpu: str = "") -> float:
    """Return the factor of a step, of whose series a row is ``measured`` or whose stack is ``named``."""
    if measured:
        return exp(EIGHTY * WITHIN)
    if not is_decoder:
        return exp(EIGHTY * ELSEWHERE)
    return of_others(*ALIKE.get((stack, gpu), (0, 0.0))) if named else unnamed(of_others())


def of_others(
    sources: int = 0, squares: float = 0.0, between: float = BETWEEN, within: float = WITHIN
) -> float:
    """Return the factor of a step beside some ``sources`` alike, from the ``squares`` of their medians."""
    freedom = PRIOR + sources
    variance = (PRIOR * between**2 + squares) / freedom + within**2
    return exp(student(freedom) * sqrt(variance))


def student(freedom: float) -> float:
    """Return what nine of ten values of Student's t lie below (Abramowitz and Stegun, 26.7.5)."""
    z = EIGHTY
    terms = (
        z, (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )  # fmt: skip
    return sum(term / freedom**power for power, term in enumerate(terms))


def unnamed(half_width: float) -> float:
    """Return the factor of a step whose stack is not named, from that of one whose stack is."""
    return exp(hypot(log(half_width), EIGHTY * UNNAMED))
