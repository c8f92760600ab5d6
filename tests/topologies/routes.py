"""What lies between two ranks of a topology."""

from ringside.topologies import Routes, Topology


def path(graph: Topology, src: int, dst: int) -> list[str]:
    """Return the nodes of a route."""
    hops = Routes(graph).route(src, dst)
    return [hops[0][0], *(b for _, b in hops)]


def latency(graph: Topology, src: int, dst: int) -> float:
    return float(sum(graph.edges[hop]["latency"] for hop in Routes(graph).route(src, dst)))


def edge(graph: Topology, a: str, b: str) -> tuple[str, float]:
    """Return the kind and rate of a link in the first machine."""
    data = graph.edges[f"node0/{a}", f"node0/{b}"]
    return data["kind"], data["bandwidth"]
