"""Random networks for property tests."""

import networkx as nx
from hypothesis import strategies as st

from ringside.topologies import Topology, check
from ringside.topologies.graph import add_cable

speeds = st.one_of(st.sampled_from([1e8, 1e9, 2e9, 1e10]), st.floats(1e7, 1e12))
delays = st.one_of(st.sampled_from([0.0, 1e-6, 2e-6, 5e-6]), st.floats(1e-7, 1e-4))


@st.composite
def switch_trees(draw: st.DrawFn, most: int = 12) -> Topology:
    """Draw a tree of switches with ranks anywhere, and different figures for each direction of a cable."""
    tiers = draw(st.booleans())
    graph: Topology = nx.DiGraph(name="tree")
    heights = [9]
    cables = []
    for switch in range(draw(st.integers(1, 4))):
        if switch:
            above = draw(st.integers(0, switch - 1))
            heights.append(heights[above] - 1)
            cables.append((f"s{switch}", f"s{above}"))
        graph.add_node(f"s{switch}", kind="switch", **({"tier": heights[-1]} if tiers else {}))
    for rank in range(draw(st.integers(1, most))):
        graph.add_node(f"g{rank}", kind="gpu", rank=rank, **({"tier": 0} if tiers else {}))
        cables.append((f"g{rank}", f"s{draw(st.integers(0, len(heights) - 1))}"))
    for a, b in cables:
        add_cable(graph, a, b, kind="ethernet", bandwidth=draw(speeds), latency=draw(delays))
        if draw(st.booleans()):
            graph.edges[b, a].update(bandwidth=draw(speeds), latency=draw(delays))
    check(graph)
    return graph
