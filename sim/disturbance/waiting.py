"""How long ranks of a simulated program wait for each other."""

from ringside.sim.program.simulation.simulate import Simulation
from ringside.sim.program.simulation.timeline import length, union
from ringside.sim.program.simulation.waiting import waited_for


def waits(simulation: Simulation) -> dict[tuple[int, int], float]:
    """Return the seconds in which collectives and messages of a rank waited for another, by both ranks."""
    stretches: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for (index, place), culprit in waited_for(simulation).items():
        stretch = simulation.begin[index][place], simulation.start[index][place]
        stretches.setdefault((simulation.played[index], culprit), []).append(stretch)
    return {pair: length(union(spans)) for pair, spans in sorted(stretches.items())}
