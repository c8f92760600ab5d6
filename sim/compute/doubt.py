"""How far a predicted step may be off: the factor that four of five measured steps lie within.

Factors are those of published steps, each source judged without its own rows
(`ringside.validation.scorecard.absolute`).
"""

from math import exp, hypot, log

from ringside.sim.libraries.gaussian import EIGHTY

NAMED = 1.17
"""With the stack named: 80 % of published steps, each source weighing the same, lie within 1.15.

More, because kernels and limits of some were chosen with these rows in view."""

WITHIN = 0.074
"""Standard deviation of log time within one source: where a row of the same series is known."""

UNNAMED = 0.12
"""Further deviation where the stack is not named: stacks' kernels differ in what they move."""

ELSEWHERE = 0.18
"""Of models other than decoders, whose convolutions and products are priced by shares of the peaks.

Eight of ten published rows of one GPU lie within it
(`ringside.validation.published.training.ddp.single_gpu`)."""


def band(*, measured: bool, named: bool, is_decoder: bool) -> float:
    """Return the factor of a step, of whose series a row is ``measured`` or whose stack is ``named``."""
    if measured:
        return exp(EIGHTY * WITHIN)
    if not is_decoder:
        return exp(EIGHTY * ELSEWHERE)
    return NAMED if named else unnamed(NAMED)


def unnamed(half_width: float) -> float:
    """Return the factor of a step whose stack is not named, from that of one whose stack is."""
    return exp(hypot(log(half_width), EIGHTY * UNNAMED))
