"""NCCL's graph files: what NCCL_GRAPH_DUMP_FILE writes and NCCL_GRAPH_FILE reads (XML, version 1).

A file describes one node: a ``graphs`` element with a ``graph`` for each search, in which every
``channel`` lists a network device, the GPUs in order, and a network device again. Bandwidths are
GB/s there. GPUs become local indices in the order of their ranks.
"""

from xml.sax.saxutils import quoteattr

from sim.libraries.nccl.graph.graph import PATTERNS, Graph, Graphs, PathClass, SearchChannel
from sim.libraries.nccl.graph.system import GB
from topologies.importers.elements import Element, Source, parse

IDS = ("ring", "tree", "collnet_chain", "nvls", "collnet_direct")
"""The searches, by the number that stands in a file."""


class GraphFileError(ValueError):
    """A graph file that cannot be read; the message names the line."""


_SOURCE = Source("graph file", "take the file that NCCL_GRAPH_DUMP_FILE writes, as it is", GraphFileError)


def parse_graphs(text: str) -> Graphs:
    """The graphs of a graph file's text."""
    root = parse(text, _SOURCE, "graphs")
    channels = [channel for element in root.children for channel in element.children]
    ranks = sorted({rank for channel in channels for rank in _devices(channel, "gpu", "rank")})
    local = {rank: index for index, rank in enumerate(ranks)}
    found = {}
    for element in root.children:
        if element.tag != "graph":
            raise element.complaint(f"graphs holds graph, not {element.tag!r}")
        name = IDS[int(element.one_of("id", tuple(str(number) for number in range(len(IDS)))))]
        found[name] = _graph(element, local)
    missing = [name for name in ("ring", "tree") if name not in found or not found[name].channels]
    if missing:
        raise root.complaint(f"no channels of {' and '.join(missing)}, without which NCCL does not run")
    return Graphs.joined(found)


def format_graphs(graphs: Graphs) -> str:
    """A graph file's text; every graph needs its order (`connect.ordered` gives one)."""
    lines = ['<graphs version="1">']
    for number, name in enumerate(IDS):
        graph: Graph | None = getattr(graphs, name)
        if graph is None:
            continue
        if len(graph.order) != graph.channels:
            raise ValueError(
                f"the {name} graph has the order of {len(graph.order)} of {graph.channels} channels; "
                "complete it with layout.ordered(communicator)"
            )
        lines += _graph_lines(number, graph)
    return "\n".join([*lines, "</graphs>", ""])


def _graph(element: Element, local: dict[int, int]) -> Graph:
    classes = tuple(path.name for path in PathClass)
    patterns = tuple(str(number + 1) for number in range(len(PATTERNS)))
    channels = element.count("nchannels")
    if len(element.children) != channels:
        raise element.complaint(f"nchannels is {channels}, but {len(element.children)} channels follow")
    return Graph(
        pattern=PATTERNS[int(element.one_of("pattern", patterns)) - 1],
        channels=channels,
        bw_intra=element.number("speedintra") * GB,
        bw_inter=element.number("speedinter") * GB,
        type_intra=PathClass[element.one_of("typeintra", classes)],
        type_inter=PathClass[element.one_of("typeinter", classes)],
        cross_nic=element.count("crossnic"),
        same_channels=element.count("samechannels") > 0,
        latency_inter_us=element.number("latencyinter"),
        order=tuple(_channel(child, local) for child in element.children),
    )


def _channel(element: Element, local: dict[int, int]) -> SearchChannel:
    gpus = [local[rank] for rank in _devices(element, "gpu", "rank")]
    if len(set(gpus)) != len(gpus):
        raise element.complaint("a channel has the same GPU twice")
    return SearchChannel(tuple(gpus), tuple(_devices(element, "net", "dev")))


def _devices(channel: Element, tag: str, name: str) -> list[int]:
    if channel.tag != "channel":
        raise channel.complaint(f"a graph holds channels, not {channel.tag!r}")
    for child in channel.children:
        if child.tag not in ("gpu", "net"):
            raise child.complaint(f"a channel holds gpu and net, not {child.tag!r}")
    return [child.count(name) for child in channel.children if child.tag == tag]


def _graph_lines(number: int, graph: Graph) -> list[str]:
    attributes = {
        "id": number,
        "pattern": PATTERNS.index(graph.pattern) + 1,
        "crossnic": graph.cross_nic,
        "nchannels": graph.channels,
        "speedintra": repr(graph.bw_intra / GB),
        "speedinter": repr(graph.bw_inter / GB),
        "latencyinter": repr(graph.latency_inter_us),
        "typeintra": graph.type_intra.name,
        "typeinter": graph.type_inter.name,
        "samechannels": int(graph.same_channels),
    }
    written = " ".join(f"{name}={quoteattr(str(value))}" for name, value in attributes.items())
    lines = [f"  <graph {written}>"]
    for channel in graph.order:
        nets = [f'      <net dev="{nic}"/>' for nic in channel.nics]
        gpus = [f'      <gpu dev="{gpu:#x}" rank="{gpu}"/>' for gpu in channel.gpus]
        lines += ["    <channel>", *nets[:1], *gpus, *nets[1:], "    </channel>"]
    return [*lines, "  </graph>"]
