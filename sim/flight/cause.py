"""The first cause of a job's hang."""

from ringside.sim.flight.differences import differences
from ringside.sim.flight.finding import Finding
from ringside.sim.flight.job import FlightJob
from ringside.sim.flight.stuck import stuck
from ringside.sim.flight.waits import absence


def find(job: FlightJob) -> Finding | None:
    """Return the first difference, else who is absent, else what is stuck; None if every call has ended."""
    _, different = min(differences(job), key=lambda one: one[0], default=(0, None))
    return different or absence(job) or stuck(job)
