"""The tables of NCCL's tuner (src/graph/tuning.cc) and of its search (src/graph/search.cc), v2.30.7.

`ringside.sim.libraries.nccl.releases` has other releases' values.
"""

from dataclasses import dataclass, field

Row = tuple[float, float, float]
"""Figures of LL, LL128, Simple; or at 1, 2 and more nodes."""

Table = tuple[Row, Row, Row, Row]
"""One row per GPU generation: Volta and older, Ampere, Hopper, Blackwell."""

BASE_US: dict[str, Row] = {
    "tree": (6.8, 14.0, 8.4),
    "ring": (6.6, 14.0, 8.4),
    "collnet_direct": (0, 0, 0),
    "collnet_chain": (0, 0, 0),
    "nvls": (0, 0, 0),
    "nvls_tree": (0, 0, 0),
    "pat": (8.0, 8.0, 8.0),
}
"""Microseconds before the first byte moves, per protocol."""

HOP_US: dict[str, dict[str, Row]] = {
    "nvlink": {
        "tree": (0.6, 1.25, 4.0),
        "ring": (0.6, 1.9, 3.4),
        "collnet_direct": (0, 0, 3.7),
        "collnet_chain": (0, 0, 2.8),
        "nvls": (0, 0, 25.0),
        "nvls_tree": (0, 0, 25.0),
        "pat": (0, 0, 4.0),
    },
    "pci": {
        "tree": (1.0, 1.9, 4.0),
        "ring": (1.0, 2.5, 5.7),
        "collnet_direct": (0, 0, 3.7),
        "collnet_chain": (0, 0, 2.8),
        "nvls": (0, 0, 0),
        "nvls_tree": (0, 0, 0),
        "pat": (0, 0, 4.0),
    },
    "net": {
        "tree": (5.0, 8.5, 14.0),
        "ring": (2.7, 4.0, 14.0),
        "collnet_direct": (0, 0, 31.0),
        "collnet_chain": (0, 0, 30.0),
        "nvls": (0, 0, 18.0),
        "nvls_tree": (0, 0, 20.9),
        "pat": (0, 0, 14.0),
    },
}
"""Microseconds of one step over each class of link, per protocol."""

TREE_CORRECTION: dict[str, tuple[float, ...]] = {
    "ll": (
        *(1, 1, 1, 1, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5),
        *(0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1, 1, 1, 1),
    ),
    "ll128": (
        *(1, 1, 1, 1, 1, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6),
        *(0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1, 1, 1),
    ),
    "simple": (
        *(0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5),
        *(0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9, 0.9),
    ),
}
"""Trees' share of their bandwidth from 64 B on, one factor per power of two."""


@dataclass(frozen=True, slots=True)
class Constants:
    """One release: its tables, and which of the tuner's rules it has.

    Caps are GB/s, of all channels or of one. ``base_us``, ``hop_us`` and ``correction`` are as the tables
    above. ``nvls_efficiency`` is a switch reduction's share of NVLink's bandwidth per generation, empty if
    the release does not use one. ``inside`` and ``between`` are the speeds in GB/s that its search tries, by
    the first compute capability of each list; ``nvlink_gbps`` is its rate of one NVLink if that differs from
    2.30's.

    ``ring_ll`` is the share of its bandwidth that a ring keeps with LL; ``ring_ll128_alone`` the same with
    LL128 and one GPU per node. ``ll_inside`` multiplies the latency of LL inside nodes if there are several.
    ``plateau_by_ranks`` and ``plateau`` give the condition and the factor for longer waits of large Simple
    rings. ``crossings`` is the number of nodes by which a ring's network hops are overcounted.
    ``dealt_in_cells`` says whether small data go to few channels, ``tree_by_depth`` whether a Simple tree's
    chunks shrink with the data, ``shared_gpus`` whether several ranks may have one GPU, with
    NCCL_MULTI_RANK_GPU_ENABLE=1. ``sends_by_rate`` says whether the channels of a send to another node are
    counted by the rate of its cards.
    """

    release: str
    base_us: dict[str, Row]
    hop_us: dict[str, dict[str, Row]]
    correction: dict[str, tuple[float, ...]]
    ll_max: Table
    ring_ll128: Table
    tree_ll128: Table
    tree: Table
    nvls_tree: Table | None
    inside: dict[int, tuple[float, ...]]
    between: dict[int, tuple[float, ...]]
    nvlink_gbps: dict[int, float]
    algorithms: frozenset[str]
    nvls_efficiency: tuple[float, ...] = (0.0, 0.0, 0.85, 0.74)
    nvls_tree_corrected: bool = True
    ring_ll: float = 0.5
    ring_ll_gathering: float = 0.5
    ring_ll128_alone: float = 0.92
    ring_ll128_by_kind: dict[str, float] = field(default_factory=dict)
    tree_ll128_between: float = 120 / 128
    ampere_total: float = float("inf")
    ll_inside: float = 1.0
    net_overhead: bool = True
    network_exposed: bool = True
    crossings: int = 0
    plateau: tuple[float, float] = (1.9, 1.4)
    plateau_by_ranks: bool = False
    ll128_capabilities: tuple[int, ...] = ()
    ll128_over_nvb: bool = True
    dealt_in_cells: bool = True
    tree_by_depth: bool = False
    shared_gpus: bool = True
    sends_by_rate: bool = True


V230 = Constants(
    release="2.30",
    base_us=BASE_US,
    hop_us=HOP_US,
    correction=TREE_CORRECTION,
    ll_max=((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0)),
    ring_ll128=((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 36.7), (40.0, 40.0, 40.0)),
    tree_ll128=((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 29.0), (55.6, 31.67, 20.0)),
    tree=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0)),
    nvls_tree=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 80.0)),
    inside={
        0: (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
        90: (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
        100: (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
    },
    between={
        0: (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
        90: (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
        100: (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    },
    nvlink_gbps={},
    algorithms=frozenset(BASE_US),
)
