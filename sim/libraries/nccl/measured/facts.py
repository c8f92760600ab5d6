"""Facts of a site's graphs that nobody writes down and that its times betray."""

from dataclasses import dataclass, replace

from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.graph.graph import Graph, PathClass


@dataclass(frozen=True, slots=True)
class Facts:
    """What is so between nodes.

    ``ll128`` says whether LL128 is used where NCCL's rules hold it safe, ``channels`` how many channels rings
    and trees have after the connect step, ``None`` where that is as the machine's preset has it.
    """

    ll128: bool = True
    channels: int | None = None

    def __post_init__(self) -> None:
        if self.channels is not None and not 1 <= self.channels <= 64:
            raise ValueError(f"channels is {self.channels}; write 1 to 64")

    def on(self, comm: Communicator) -> Communicator:
        """The communicator as the site has it; one node's is as it was."""
        if comm.nodes == 1:
            return comm
        graphs, settings = comm.graphs, comm.settings
        if not self.ll128:
            graphs = replace(graphs, ring=_without_order(graphs.ring), tree=_without_order(graphs.tree))
        if self.channels is not None:
            settings = replace(settings, min_ctas=self.channels, max_ctas=self.channels)
        return replace(comm, graphs=graphs, settings=settings)


def _without_order(graph: Graph) -> Graph:
    """The same graph over a path that breaks the order of LL128's stores."""
    return replace(graph, type_inter=max(graph.type_inter, PathClass.PHB))
