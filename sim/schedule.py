"""The waist of Ringside: one `Schedule` is simulated, run for real and proved.

A schedule is plain data: which rank sends which chunk to which rank, in which order, and whether the receiver
adds or overwrites it. It knows no time, no bandwidth and no library.

Its transfers come in steps. A transfer sends what its source holds after all earlier steps: it may start when
every earlier transfer of that chunk to its source has been received and reduced. There is no barrier between
steps. On each connection (an ordered pair of ranks within one channel) transfers start and arrive in order
and at most ``credits`` of them are under way at once; a credit returns, at no cost, when a chunk has been
completely received.
"""

from dataclasses import dataclass

from ringside.sim.plan import Plan
from ringside.sim.proof import prove
from ringside.sim.steps import (
    CREDITS,
    Bools,
    Chunks,
    Ints,
    Links,
    ScheduleError,
    Step,
    Transfer,
    even_chunks,
    sized_chunks,
    step,
)

__all__ = [
    "CREDITS",
    "Bools",
    "Chunks",
    "Ints",
    "Links",
    "Schedule",
    "ScheduleError",
    "Step",
    "Transfer",
    "even_chunks",
    "sized_chunks",
    "step",
]


@dataclass(frozen=True)
class Schedule(Plan):
    """A provable way to carry out one collective; `ringside.sim.plan.Plan` has its parts."""

    def check(self) -> None:
        """Prove it: see `ringside.sim.proof.prove`, which raises `ScheduleError` with what is wrong."""
        prove(self)
