"""The tables in NCCL's tuner (src/graph/tuning.cc) as of v2.28.9, v2.29.7 and v2.30.7."""

from dataclasses import dataclass, replace

DEFAULT_VERSION = "2.30"

Row = tuple[float, float, float]
"""Figures of LL, LL128, Simple; or at 1, 2 and more nodes."""

Table = tuple[Row, Row, Row, Row]
"""One row a GPU generation: Volta and older, Ampere, Hopper, Blackwell."""

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

NVLS_EFFICIENCY = (0.0, 0.0, 0.85, 0.74)
"""What a switch reduction leaves of NVLink's bandwidth, per generation."""

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
"""What trees reach of their bandwidth from 64 B on, a factor a power of two."""


@dataclass(frozen=True, slots=True)
class Constants:
    """The figures that differ between releases; caps are GB/s, of all channels or of one."""

    ll_max: Table
    ring_ll128: Table
    tree_ll128: Table
    tree: Table
    nvls_tree: Table
    nvls_tree_corrected: bool


_V230 = Constants(
    ll_max=((39.0, 39.0, 20.4), (87.7, 22.5, 19.0), (141.0, 45.0, 35.0), (282.0, 90.0, 70.0)),
    ring_ll128=((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 36.7), (40.0, 40.0, 40.0)),
    tree_ll128=((20.0, 20.0, 20.0), (20.0, 20.0, 20.0), (36.7, 36.7, 29.0), (55.6, 31.67, 20.0)),
    tree=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (38.7, 41.4, 36.0), (70.0, 42.8, 24.0)),
    nvls_tree=((26.5, 18.5, 10.0), (24.0, 23.6, 17.8), (0.0, 57.7, 45.5), (0.0, 96.0, 80.0)),
    nvls_tree_corrected=True,
)
_V229 = replace(_V230, nvls_tree=(*_V230.nvls_tree[:3], (0.0, 96.0, 43.8)))
_V228 = replace(_V229, ring_ll128=(*_V229.ring_ll128[:3], (73.4, 34.6, 73.4)), nvls_tree_corrected=False)

VERSIONS = {"2.28": _V228, "2.29": _V229, "2.30": _V230}


def constants(version: str) -> Constants:
    """The tables of a release, written ``2.30`` or ``2.30.7``."""
    release = ".".join(version.split(".")[:2])
    if release not in VERSIONS:
        raise ValueError(f"NCCL {version!r} is not modelled; write one of {', '.join(VERSIONS)}")
    return VERSIONS[release]
