"""How long a collective takes at the least on a machine that NCCL knows, whatever NCCL does.

Counted is what must cross the edge of one GPU, and of one node, even where the network reduces: a
GPU's links are its NVLinks at the data sheet's speed and its slot, a node's are all its cards. Where a
graph file or a log says that NCCL moves more than these, they are taken to carry that.
"""

from sim.collective import Collective
from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.graph.system import nvlink_in_datasheet
from sim.libraries.nccl.names import ALGORITHMS

Seconds = float


def traffic_bound(comm: Communicator, collective: Collective) -> Seconds:
    """Seconds that the busiest GPU's links, or the busiest node's cards, need for what must cross them."""
    system = comm.system
    gpu = nvlink_in_datasheet(system.nvlink, system.compute_capability) + system.pcie
    graphs = [graph for algorithm in ALGORITHMS if (graph := comm.graph(algorithm))]
    gpu = max(gpu, *(graph.channels * graph.bw_intra for graph in graphs))
    node = max(system.nics * system.nic, *(graph.channels * graph.bw_inter for graph in graphs))
    across_gpu, across_node = _crossing(comm, collective)
    return max(across_gpu / gpu if gpu else 0.0, across_node / node if node else 0.0)


def _crossing(comm: Communicator, collective: Collective) -> tuple[float, float]:
    """Bytes that must enter or leave the busiest GPU, and the busiest node, one way."""
    nbytes, away = collective.nbytes, comm.nodes > 1
    others, other_nodes = (comm.ranks - 1) / comm.ranks, (comm.nodes - 1) / comm.nodes
    match collective.kind:
        case "all_reduce" | "broadcast" | "reduce" | "sendrecv":
            return nbytes, nbytes if away else 0.0
        case "all_to_all":
            return nbytes * others, comm.gpus * nbytes * other_nodes
    return nbytes * others, nbytes * other_nodes
