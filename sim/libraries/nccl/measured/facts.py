"""Facts of a site's graphs that nobody writes down and that its times betray."""

from dataclasses import dataclass, replace

from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.graph.graph import Graph, PathClass


@dataclass(frozen=True, slots=True)
class Facts:
    """What is so between nodes, ``None`` where the machine's preset has it.

    ``ll128`` says whether LL128 is safe, ``channels`` how many channels rings and trees have after the
    connect step.
    """

    ll128: bool | None = None
    channels: int | None = None

    def __post_init__(self) -> None:
        if self.channels is not None and not 1 <= self.channels <= 64:
            raise ValueError(f"channels is {self.channels}; write 1 to 64")

    def on(self, comm: Communicator) -> Communicator:
        """The communicator as the site has it; one node's is as it was."""
        if comm.nodes == 1:
            return comm
        graphs, settings = comm.graphs, comm.settings
        if self.ll128 is not None:
            graphs = replace(graphs, ring=self._path(graphs.ring), tree=self._path(graphs.tree))
        if self.channels is not None:
            settings = replace(settings, min_ctas=self.channels, max_ctas=self.channels)
        return replace(comm, graphs=graphs, settings=settings)

    def _path(self, graph: Graph) -> Graph:
        """The same graph over a path that keeps, or breaks, the order of LL128's stores."""
        if self.ll128:
            return replace(graph, type_inter=min(graph.type_inter, PathClass.PXB))
        return replace(graph, type_inter=max(graph.type_inter, PathClass.PHB))
