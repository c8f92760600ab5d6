"""Pairwise exchange: each rank sends one distance ahead and receives from the same distance behind, in turns.

A rank begins with its next peer when the last one's message has arrived: (n-1) (alpha + S/n beta) (Thakur,
Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19, 2005). `direct` sends to all at once.
"""

from dataclasses import replace

from ringside.sim.algorithms.exchange import direct
from ringside.sim.algorithms.exchange.turns import Turns
from ringside.sim.collective import Collective
from ringside.sim.schedule import Schedule


def all_to_all(collective: Collective) -> Schedule:
    """Send every rank's part to every other rank, in n-1 turns."""
    turns = Turns(collective.ranks, range(1, collective.ranks))
    return replace(direct.all_to_all(collective), algorithm="pairwise", after=turns)


BUILDS = {"all_to_all": all_to_all}
