"""Who waits for whom in a simulated program: the last rank at a collective or a message."""

from ringside.sim.program.operations import ANY, Call, Recv, Send
from ringside.sim.program.simulation.simulate import Simulation


def waited_for(simulation: Simulation) -> dict[tuple[int, int], int]:
    """Return for each operation that waited, by played number and place, the rank that came last.

    Empty where ranks are folded, since one then stands for many.
    """
    if len(simulation.played) < len(simulation.roles):
        return {}
    came: dict[tuple[object, int], list[tuple[float, int, int]]] = {}
    peers: dict[tuple[int, int], int] = {}
    for index in range(len(simulation.played)):
        begins, starts, numbers = simulation.begin[index], simulation.start[index], simulation.numbers(index)
        for place, operation in enumerate(simulation.operations(index)):
            match operation.action:
                case Call(group):
                    came.setdefault((group, numbers[place]), []).append((begins[place], index, place))
                case Send(_, peer) | Recv(_, peer) if peer != ANY and starts[place] > begins[place]:
                    peers[index, place] = peer
    for members in came.values():
        last, culprit, _ = max(members)
        peers |= {
            (index, place): simulation.played[culprit] for begin, index, place in members if begin < last
        }
    return peers
