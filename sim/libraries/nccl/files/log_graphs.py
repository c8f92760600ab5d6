"""The graphs in a log, so that the tuner works with those of the user's own machine.

A log shows a graph's effects, not the graph. Inferred from it:

- channels: NCCL makes the final channels of the search channels (`Communicator.channels`); of the
  known machine's count, and half and a quarter of the final count, the first after which the rings
  repeat and that gives the final count again, if need be at a lower speed, otherwise half of it;
- the ring's bandwidth from a Simple cell of the tuner's table, B = C b R / s for s steps of R ranks,
  to the nearest speed that NCCL's search tries (whole or halved) and that prints the same; both
  inside the node and between nodes, as NCCL's search gives rings one speed;
- the tree's bandwidth from its Simple cell, B = 0.92 C b / 2 (0.85 of it for the plain tree pattern),
  for the side that the tuner looks at: inside up to two nodes, between from three on. If the cell
  shows the cap of the GPU generation, any bandwidth from the cap up prints the same, so the known
  machine's stays if it reaches the cap;
- the path classes: the known machine's, unless another class inside the node (NVLink or not) gives the
  printed ring latency, or LL128 is off where the known class would have it on;
- the orders of rings and trees on the first node, if the log has all of them; and whether rings leave
  a node by another rail than they entered it by;
- no NVLS if the log counts no NVLS channels, and CollNet if the log asks for it and its channels,
  half as many again, are those of the log.

The rest stays as known of the machine: the tree pattern, NVLS and CollNet bandwidths, which are minima of
several terms, and everything without a table or line in the log.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from ringside.sim.libraries.nccl.communicator import (
    FEW_AND_FAST,
    MAX_CHANNELS,
    Communicator,
    Settings,
    communicator,
    find_system,
)
from ringside.sim.libraries.nccl.figures import latency_us, steps
from ringside.sim.libraries.nccl.files.log import LoggedCommunicator
from ringside.sim.libraries.nccl.graph.graph import Graph, Graphs, PathClass, SearchChannel
from ringside.sim.libraries.nccl.graph.system import GB, System
from ringside.sim.libraries.nccl.names import FUNCTIONS, PROTOCOLS
from ringside.sim.libraries.nccl.pins import Pins
from ringside.sim.libraries.nccl.releases import OLDEST, is_older
from ringside.sim.libraries.nccl.tuner import enabled


def _limit(text: str) -> int:
    return min(max(int(text), 1), MAX_CHANNELS)


_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "NCCL_MIN_NCHANNELS": ("min_ctas", _limit),
    "NCCL_MAX_NCHANNELS": ("max_ctas", _limit),
    "NCCL_MIN_CTAS": ("min_ctas", _limit),
    "NCCL_MAX_CTAS": ("max_ctas", _limit),
    "NCCL_NVLS_ENABLE": ("nvls", lambda text: text != "0"),
    "NCCL_PAT_ENABLE": ("pat", lambda text: {"0": False, "1": True}.get(text)),
    "NCCL_NET_OVERHEAD": ("net_overhead_us", lambda text: float(text) / 1e3),
    "NCCL_COLLNET_NODE_THRESHOLD": ("collnet_node_threshold", int),
}
"""The field of `Settings` that a variable sets, and how its text is read."""

_PINS = {"NCCL_ALGO": "algorithm", "NCCL_PROTO": "protocol"}

_LEFT_OUT = ("NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_NTHREADS")
"""Variables that change times and that the model does not know."""


def logged_settings(variables: Mapping[str, str], version: str, given: Settings) -> tuple[Settings, str]:
    """Return the settings, the log's where ``given`` has NCCL's defaults, and a sentence about them."""
    usual, used = Settings(), []
    changed: dict[str, Any] = {}
    if version and given.version == usual.version:
        changed["version"] = version
        used.append(f"NCCL {version}")
    pins = {field: getattr(given.pins, field) or variables.get(name, "") for name, field in _PINS.items()}
    used += [
        f"{name}={variables[name]}" for name, field in _PINS.items() if pins[field] == variables.get(name)
    ]
    for name, (field, read) in _FIELDS.items():
        if name in variables and getattr(given, field) == getattr(usual, field):
            try:
                changed[field] = read(variables[name])
            except ValueError:
                raise ValueError(
                    f"the log has {name}={variables[name]}; expected a number: leave the line out"
                ) from None
            used.append(f"{name}={variables[name]}")
    left = [f"{name}={variables[name]}" for name in _LEFT_OUT if name in variables]
    texts = [f"settings of the log: {', '.join(used)}" if used else ""]
    texts += [f"not modelled of the log's settings: {', '.join(left)}"] if left else []
    return replace(given, pins=Pins(**pins), **changed), "; ".join(filter(None, texts))


PRINTED = 0.0501
"""Half of the last decimal that NCCL prints of microseconds and of GB/s."""

Option = TypeVar("Option")


def logged_communicator(
    logged: LoggedCommunicator, system: System | str, settings: Settings | None = None
) -> Communicator:
    """Return the communicator of a log on a known machine, with the graphs that the log contains.

    ``settings`` are those that differ from the log's own: its release, and the variables of its environment.
    Raise `ValueError` for a log that does not state the number of ranks or of nodes, and for one of a release
    that is too old.
    """
    if logged.version and is_older(logged.version):
        raise ValueError(
            f"the log is of NCCL {logged.version}, which is too old: logs are read from {OLDEST} on"
        )
    settings, note = logged_settings(logged.variables, logged.version, settings or Settings())
    if isinstance(system, str):
        system = find_system(system)
    system = replace(system, note="; ".join(filter(None, (system.note, note))))
    if not logged.ranks or not logged.nodes:
        raise ValueError(
            "the log lacks the numbers of ranks and nodes; run with NCCL_DEBUG_SUBSYS=INIT,TUNING"
        )
    if logged.nodes * logged.gpus != logged.ranks:
        raise ValueError(
            f"the log has {logged.ranks} ranks on {logged.nodes} nodes, {logged.gpus} on the first; "
            "only equally many on every node can be modelled"
        )
    known = communicator(system, logged.nodes, logged.gpus, settings=settings)
    reducing = replace(known, settings=replace(settings, collnet=True))
    collnet = logged.variables.get("NCCL_COLLNET_ENABLE") == "1"
    if collnet and _channels(reducing, _with_bandwidth(reducing, logged)) == logged.channels:
        known = reducing
    ring = _with_bandwidth(known, logged)
    tree = _tree(known, logged, ring.channels)
    comm = _with(known, replace(known.graphs, ring=ring, tree=tree))
    ring, tree = (_with_paths(comm, logged, name) for name in ("ring", "tree"))
    ring = _with_order(comm, logged, ring)
    tree = replace(tree, order=_tree_orders(comm, logged))
    silent = logged.channels > 0 and not logged.nvls_channels
    nvls = None if silent else known.graphs.nvls
    return _with(comm, replace(comm.graphs, ring=ring, tree=tree, nvls=nvls))


def _with(comm: Communicator, graphs: Graphs) -> Communicator:
    return replace(comm, graphs=graphs)


def _with_bandwidth(known: Communicator, logged: LoggedCommunicator) -> Graph:
    """Return the known ring graph with the log's channels and bandwidth."""
    ring = known.graphs.ring
    if not logged.channels:
        return _ring_of(known, logged, ring.channels)
    options = [ring.channels, logged.channels // 2, logged.channels // 4]
    if logged.variables.get("NCCL_COLLNET_ENABLE") == "1":
        options.append(logged.channels // 3)
    graphs = [_ring_of(known, logged, count) for count in options if count and _repeats(logged, count)]
    slower = [replace(graph, bw_intra=min(graph.bw_intra, FEW_AND_FAST)) for graph in graphs]
    slower = [replace(graph, bw_inter=min(graph.bw_inter, graph.bw_intra)) for graph in slower]
    fallback = _ring_of(known, logged, max(1, logged.channels // 2))
    return _first([*graphs, *slower], lambda graph: _channels(known, graph) == logged.channels, fallback)


def _repeats(logged: LoggedCommunicator, count: int) -> bool:
    """Return whether the log's rings repeat after this number of channels."""
    rings = logged.rings
    return all(rings[channel] == rings.get(channel - count, rings[channel]) for channel in rings)


def _channels(known: Communicator, ring: Graph) -> int:
    return _with(known, replace(known.graphs, ring=ring)).channels


def _ring_of(known: Communicator, logged: LoggedCommunicator, channels: int) -> Graph:
    ring = replace(known.graphs.ring, channels=channels)
    for kind in reversed(FUNCTIONS):
        cell = logged.table.get((kind, "ring", "simple"))
        if cell and cell.bandwidth:
            share = channels * known.ranks / steps(kind, known.ranks)
            speed = _speed(known, cell.bandwidth, share)
            return replace(ring, bw_intra=speed, bw_inter=speed)
    return ring


def _speed(known: Communicator, printed: float, share: float) -> float:
    """Return the b of ``share * b == printed``: a speed that NCCL tries if one fits, else the quotient."""
    lists = (known.constants.inside, known.constants.between)
    tried = {speed * GB for by_capability in lists for speeds in by_capability.values() for speed in speeds}
    options = sorted(tried | {speed / 2 for speed in tried}, key=lambda speed: abs(share * speed - printed))
    return options[0] if abs(share * options[0] - printed) <= PRINTED * GB else printed / share


def _tree(known: Communicator, logged: LoggedCommunicator, channels: int) -> Graph:
    tree = replace(known.graphs.tree, channels=channels)
    cell = logged.table.get(("all_reduce", "tree", "simple"))
    if cell is None or not cell.bandwidth:
        return tree
    pattern = 0.85 if tree.pattern == "tree" else 1.0
    now = tree.bw_intra if known.nodes <= 2 else tree.bw_inter
    cap = known.constants.tree[known.generation][known.scale] * GB
    if abs(0.5 * pattern * channels * cap - cell.bandwidth) <= PRINTED * GB:
        speed = max(now, cap / 0.92)
    else:
        speed = _speed(known, cell.bandwidth, 0.5 * 0.92 * pattern * channels)
    return replace(tree, bw_intra=speed) if known.nodes <= 2 else replace(tree, bw_inter=speed)


def _with_paths(comm: Communicator, logged: LoggedCommunicator, algorithm: str) -> Graph:
    """Return the graph with path classes that give the log's latencies and its use of LL128."""
    graph = comm.graphs.ring if algorithm == "ring" else comm.graphs.tree
    printed = {protocol: logged.table.get(("all_reduce", algorithm, protocol)) for protocol in PROTOCOLS}
    cells = {protocol: cell for protocol, cell in printed.items() if cell and cell.bandwidth}

    def tried(changed: Graph) -> Communicator:
        return _with(comm, replace(comm.graphs, **{algorithm: changed}))

    def as_quick(changed: Graph) -> bool:
        modelled = (latency_us(tried(changed), "all_reduce", algorithm, protocol) for protocol in cells)
        return all(abs(a - b.latency_us) <= PRINTED for a, b in zip(modelled, cells.values(), strict=True))

    def as_safe(changed: Graph) -> bool:
        return enabled(tried(changed), "all_reduce", algorithm, "ll128", "float32", "sum") == (
            "ll128" in cells
        )

    if comm.gpus > 1:
        classes = graph.type_intra, PathClass.NVL, PathClass.SYS
        graph = _first((replace(graph, type_intra=path) for path in classes), as_quick, graph)
    if "ll" in cells:  # otherwise the job had its protocols pinned
        classes = graph.type_inter, PathClass.PIX, PathClass.SYS
        graph = _first((replace(graph, type_inter=path) for path in classes), as_safe, graph)
    return graph


def _with_order(comm: Communicator, logged: LoggedCommunicator, ring: Graph) -> Graph:
    orders = [_on_node(logged.rings.get(channel, ()), comm, 0) for channel in range(ring.channels)]
    if not all(orders):
        return replace(ring, order=())
    ordered = replace(ring, order=tuple(SearchChannel(order) for order in orders))
    if comm.nodes == 1:
        return ordered
    nexts = [_on_node(logged.rings[channel], comm, 1) for channel in range(ring.channels)]
    if nexts == orders:
        return replace(ordered, cross_nic=0 if ring.cross_nic == 2 else ring.cross_nic)
    swapped = [orders[channel ^ 1] for channel in range(ring.channels)] if ring.channels % 2 == 0 else []
    return replace(ordered, cross_nic=2) if nexts == swapped else ordered


def _on_node(ring: tuple[int, ...], comm: Communicator, node: int) -> tuple[int, ...]:
    """Return a node's GPUs in ring order; empty unless the ring passes them consecutively."""
    entries = [
        place for place, rank in enumerate(ring) if rank // comm.gpus == node != ring[place - 1] // comm.gpus
    ]
    start = entries[0] if len(entries) == 1 else 0
    passed = (ring[start:] + ring[:start])[: comm.gpus]
    here = tuple(rank - node * comm.gpus for rank in passed)
    return here if sorted(here) == list(range(comm.gpus)) else ()


def _tree_orders(comm: Communicator, logged: LoggedCommunicator) -> tuple[SearchChannel, ...]:
    """Return the first node's chains from top to bottom, one per search channel; empty if one is missing."""
    orders = []
    for channel in range(comm.graphs.tree.channels):
        tree = logged.trees.get(channel, {})
        if any(rank not in tree for rank in range(comm.gpus)):
            return ()
        tops = [rank for rank in range(comm.gpus) if not 0 <= tree[rank][0] < comm.gpus]
        chain: list[int] = []
        below = tops[:1]
        while below:
            chain += below
            below = [rank for rank in tree[chain[-1]][1] if 0 <= rank < comm.gpus and rank not in chain][:1]
        if len(chain) < comm.gpus:
            return ()
        orders.append(SearchChannel(tuple(chain)))
    return tuple(orders)


def _first(options: Iterable[Option], fits: Callable[[Option], bool], otherwise: Option) -> Option:
    return next((option for option in options if fits(option)), otherwise)
