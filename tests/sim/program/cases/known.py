"""Programs that end or do not, with each library: what the proof must say, and what really happens."""

from tests.sim.program.cases import collectives, groups, messages
from tests.sim.program.cases.case import CASES

__all__ = ["CASES", "collectives", "groups", "messages"]
