"""How far a predicted step may be off: the factor that four of five measured steps lie within.

Deviations are those of log time on published steps, each source judged without its own rows
(`ringside.validation.scorecard.absolute`).
"""

from math import exp, hypot

from ringside.sim.libraries.gaussian import EIGHTY

BETWEEN, WITHIN = 0.096, 0.074
"""Between the sources of published steps, and within one source.

JAX's steps and nanotron's host-limited layers are among them; without them it is 0.062 and 0.073."""

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
    return exp(EIGHTY * hypot(BETWEEN, WITHIN, 0.0 if named else UNNAMED))
