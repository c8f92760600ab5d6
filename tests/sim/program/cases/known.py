"""Programs that end or hang, with each library: the expected verdict, and the real outcome."""

from tests.sim.program.cases import collectives, groups, messages
from tests.sim.program.cases.case import CASES

__all__ = ["CASES", "collectives", "groups", "messages"]
