"""NCCL's graph files: what NCCL_GRAPH_DUMP_FILE writes and NCCL_GRAPH_FILE reads, 2.10 to 2.30 (XML).

A file describes one node: a ``graphs`` element with a ``graph`` for each search, in which every
``channel`` lists a network device, the GPUs in order, and a network device again. Bandwidths are
in GB/s. Devices are numbers such as ``0x1f`` (older releases: decimal), with the host in the top
byte if NVLink joins several. GPUs become local indices in the order of their ranks, which
files have from 2.30.3 on, or of their numbers.
"""

import re
from xml.sax.saxutils import quoteattr

from ringside.sim.libraries.nccl.graph.graph import PATTERNS, Graph, Graphs, PathClass, SearchChannel
from ringside.sim.libraries.nccl.graph.system import GB
from ringside.topologies.importers.elements import Element, XmlSource, parse

IDS = ("ring", "tree", "collnet_chain", "nvls", "collnet_direct")
"""The searches, by their numbers in a file."""

_LOCAL = (1 << 56) - 1
"""Mask of a device's number without its host."""


class GraphFileError(ValueError):
    """A graph file that cannot be read; the message names the line."""


_SOURCE = XmlSource("graph file", "use the unmodified file that NCCL_GRAPH_DUMP_FILE writes", GraphFileError)


def parse_graphs(text: str, others: Graphs | None = None) -> Graphs:
    """Parse the graphs of a file's text; ``others`` supply missing ones, as NCCL searches for these."""
    root = parse(text, _SOURCE, "graphs")
    channels = [channel for element in root.children for channel in element.children]
    gpus = sorted({gpu for channel in channels for gpu in _gpus(channel)})
    local = {gpu: index for index, gpu in enumerate(gpus)}
    graphs = {}
    for element in root.children:
        if element.tag != "graph":
            raise element.complaint(f"graphs contains graph, not {element.tag!r}")
        graph = _graph(element, local)
        graphs[_name(element, graph)] = graph
    missing = [name for name in ("ring", "tree") if name not in graphs or not graphs[name].channels]
    if others and len(missing) < 2:
        graphs |= {name: getattr(others, name) for name in missing}
    elif missing:
        raise root.complaint(f"no channels of {' and '.join(missing)}, which NCCL requires")
    return Graphs.joined(graphs)


def format_graphs(graphs: Graphs) -> str:
    """Return a graph file's text; every graph needs its order (`connect.ordered` gives one)."""
    lines = ['<graphs version="1">']
    for number, name in enumerate(IDS):
        graph: Graph | None = getattr(graphs, name)
        if graph is None:
            continue
        if len(graph.order) != graph.channels:
            raise ValueError(
                f"the {name} graph has the order of {len(graph.order)} of {graph.channels} channels; "
                "complete it with connect.ordered(communicator)"
            )
        lines += _graph_lines(number, graph)
    return "\n".join([*lines, "</graphs>", ""])


def _name(element: Element, graph: Graph) -> str:
    """Return the purpose of a graph; up to 2.20 both of CollNet's had the same number."""
    name = IDS[int(element.one_of("id", tuple(str(number) for number in range(len(IDS)))))]
    return graph.pattern if graph.pattern == "collnet_direct" else name


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
        latency_inter_us=element.number("latencyinter") if "latencyinter" in element.attributes else 0.0,
        order=tuple(_channel(child, local) for child in element.children),
    )


def _channel(element: Element, local: dict[int, int]) -> SearchChannel:
    gpus = [local[gpu] for gpu in _gpus(element)]
    if len(set(gpus)) != len(gpus):
        raise element.complaint("a channel has the same GPU twice")
    ports = [_device(child) & _LOCAL for child in _devices(element, "net")]
    return SearchChannel(tuple(gpus), tuple(ports))


def _gpus(channel: Element) -> list[int]:
    """Return a channel's GPUs by rank, or by device in releases that did not write ranks yet."""
    devices = _devices(channel, "gpu")
    return [child.count("rank") if "rank" in child.attributes else _device(child) for child in devices]


def _devices(channel: Element, tag: str) -> list[Element]:
    if channel.tag != "channel":
        raise channel.complaint(f"a graph contains channels, not {channel.tag!r}")
    for child in channel.children:
        if child.tag not in ("gpu", "net"):
            raise child.complaint(f"a channel contains gpu and net, not {child.tag!r}")
    return [child for child in channel.children if child.tag == tag]


def _device(element: Element) -> int:
    """Parse a device's number, hexadecimal with its prefix."""
    text = element.text("dev")
    if not re.fullmatch(r"0[xX][0-9a-fA-F]{1,16}|[0-9]{1,18}", text):
        raise element.complaint(f"dev is {text!r}, not a number such as 3 or 0x1f")
    return int(text, 16 if text[:2] in ("0x", "0X") else 10)


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
        nets = [f'      <net dev="{_written(nic)}"/>' for nic in channel.nics]
        gpus = [f'      <gpu dev="{_written(gpu)}" rank="{gpu}"/>' for gpu in channel.gpus]
        lines += ["    <channel>", *nets[:1], *gpus, *nets[1:], "    </channel>"]
    return [*lines, "  </graph>"]


def _written(device: int) -> str:
    """Return a device's number as NCCL writes it: hexadecimal, and 0 without a prefix."""
    return f"{device:#x}" if device else "0"
