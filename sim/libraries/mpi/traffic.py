"""The seconds for which links between nodes carry the messages of an MPI algorithm.

The messages are those of the algorithm's schedule, each on its route. Traffic is not counted if there are too
many routes for a topology without a structure.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.schedule import Ints
from ringside.sim.streams import TransferStreams
from ringside.topologies import Routes, Topology, ranks
from ringside.topologies.fabrics.structure import Structure
from ringside.topologies.graph import Hop

TYPES = ("float32", "float64", "int8", "uint8", "int16", "int32", "int64")
"""Types that torch.distributed passes to MPI (torch 2.13, csrc/distributed/c10d/ProcessGroupMPI.cpp)."""

CALLS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "alltoall",
    "broadcast": "bcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
}
"""The names of collectives in the variables."""

NUMBERED = {
    "all_reduce": (
        "linear",
        "nonoverlapping",
        "recursive_doubling",
        "ring",
        "segmented_ring",
        "rabenseifner",
    ),
    "all_gather": ("linear", "bruck", "recursive_doubling", "ring", "neighbor", "two_proc"),
    "reduce_scatter": ("nonoverlapping", "recursive_halving", "ring", "butterfly"),
    "all_to_all": ("linear", "pairwise", "modified_bruck", "linear_sync", "two_proc"),
    "broadcast": (
        *("linear", "chain", "pipeline", "split_binary", "binary", "binomial", "knomial"),
        *("scatter_allgather", "scatter_allgather_ring"),
    ),
    "reduce": ("linear", "chain", "pipeline", "binary", "binomial", "in-order_binary", "rabenseifner"),
    "gather": ("linear", "binomial", "linear_sync"),
    "scatter": ("linear", "binomial", "linear_nb"),
}
"""Numbered from 1; 0 is the library's own choice."""


def variables(kind: str, algorithm: str) -> dict[str, str]:
    """Return the variables that make Open MPI use an algorithm."""
    number = NUMBERED[kind].index(algorithm) + 1
    return {
        "OMPI_MCA_coll_tuned_use_dynamic_rules": "1",
        f"OMPI_MCA_coll_tuned_{CALLS[kind]}_algorithm": str(number),
    }


def forced(kind: str, environment: Mapping[str, str]) -> str:
    """Return the algorithm that variables force, ``auto`` if they leave the choice to the library."""
    if kind not in CALLS or environment.get("OMPI_MCA_coll_tuned_use_dynamic_rules") not in ("1", "true"):
        return "auto"
    number = environment.get(f"OMPI_MCA_coll_tuned_{CALLS[kind]}_algorithm", "0")
    names = ("auto", *NUMBERED[kind])
    return names[int(number)] if number.isdecimal() and int(number) < len(names) else number


SCHEDULES = {
    ("all_reduce", "nonoverlapping"): "binomial",
    ("all_gather", "neighbor"): "neighbor_exchange",
    ("all_to_all", "modified_bruck"): "bruck",
    ("broadcast", "scatter_allgather"): "scatter_all_gather",
    ("broadcast", "scatter_allgather_ring"): "scatter_all_gather_ring",
    ("gather", "linear_sync"): "direct",
    ("scatter", "linear_nb"): "direct",
    ("sendrecv", "ring"): "direct",
}
"""The schedules of Open MPI's algorithms with other names."""

WITHOUT = (
    ("reduce_scatter", "nonoverlapping"), ("reduce_scatter", "butterfly"), ("broadcast", "split_binary"),
    ("broadcast", "binary"), ("reduce", "binary"),
)  # fmt: skip
"""Algorithms that have rounds but no schedule."""


Floats = NDArray[np.float64]
Sent = tuple[Ints, Ints, Floats]

MAX_ROUTES = 20_000
"""Maximum pairs of ranks that are routed one by one, a fraction of a second's work."""

MAX_WAYS = 20_000_000
"""Maximum pairs if the topology's structure gives all routes at once: some seconds' work and 300 MB."""


def busiest_s(collective: Collective, algorithm: str, graph: Topology, routes: Routes) -> float:
    """Return the seconds of the busiest cable of a switch for the algorithm's bytes; 0 if uncounted."""
    structure, pairs = graph.graph.get("structure"), collective.ranks**2
    few, load = isinstance(structure, Structure) and pairs <= MAX_WAYS, dict[Hop, float]()
    if _is_everywhere(collective, algorithm) and not few and pairs > MAX_ROUTES:
        return 0.0
    if isinstance(structure, Structure) and few:
        load = structure.carried(ranks(graph)[: collective.ranks], messages(collective, algorithm))
    if not load or not all(
        map(graph.has_edge, *zip(*load, strict=True))
    ):  # no structure, or the graph was changed
        load = _by_routes(graph, routes, collective, algorithm)
    return max((nbytes / graph.edges[hop]["bandwidth"] for hop, nbytes in load.items()), default=0.0)


def messages(collective: Collective, algorithm: str) -> Iterator[Sent]:
    """Yield senders, receivers and bytes of messages; nothing for the two algorithms without a schedule."""
    rank, kind = np.arange(collective.ranks), collective.kind
    parts = [(kind, SCHEDULES.get((kind, algorithm), algorithm))]
    if (kind, algorithm) == ("reduce_scatter", "nonoverlapping"):
        parts = [("reduce", "binomial"), ("scatter", "direct")]
    elif algorithm == "binary":
        child = rank[1:]
        src, dst = ((child - 1) // 2, child) if kind == "broadcast" else (child, (child - 1) // 2)
        ends = [(end + collective.root) % collective.ranks for end in (src, dst)]
        yield ends[0], ends[1], np.full(len(child), float(collective.nbytes))
        return
    elif (kind, algorithm) in WITHOUT:
        return
    elif _is_everywhere(collective, algorithm):
        part = np.full(collective.ranks, collective.nbytes / collective.ranks)
        for ahead in range(1, collective.ranks):
            yield rank, (rank + ahead) % collective.ranks, part
        return
    for of, name in parts:
        plan = schedule(name, replace(collective, kind=of))
        if isinstance(plan.steps, TransferStreams):  # which know at once what a connection carries
            total = plan.steps.traffic(plan.chunks)
            named = np.array(list(total), dtype=np.int64).reshape(-1, 3)
            yield named[:, 0], named[:, 1], np.array(list(total.values()), dtype=np.float64)
            continue
        for one in plan.steps():
            yield one.src, one.dst, plan.nbytes(one).astype(np.float64)


def _is_everywhere(collective: Collective, algorithm: str) -> bool:
    """Return whether each rank sends to each other."""
    return collective.kind == "all_to_all" and algorithm != "modified_bruck"


def _by_routes(graph: Topology, routes: Routes, collective: Collective, algorithm: str) -> dict[Hop, float]:
    """Return the bytes of a switch's cables by each pair's route; empty if there are too many pairs."""
    pairs: Counter[int] = Counter()
    for src, dst, nbytes in messages(collective, algorithm):
        used, at = np.unique(src * collective.ranks + dst, return_inverse=True)
        for pair, total in zip(used.tolist(), np.bincount(at, nbytes).tolist(), strict=True):
            pairs[pair] += total
        if len(pairs) > MAX_ROUTES:
            return {}
    load: dict[Hop, float] = defaultdict(float)
    for pair, total in pairs.items():
        for hop in routes.route(*divmod(pair, collective.ranks)):
            if any(graph.nodes[end]["kind"] == "switch" for end in hop):
                load[hop] += total
    return load
