"""NCCL's names and Ringside's for the same things, in NCCL's order, which breaks its ties."""

FUNCTIONS = {
    "broadcast": "Broadcast",
    "reduce": "Reduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "all_reduce": "AllReduce",
}
"""The collectives that NCCL's tuner knows; point-to-point operations bypass it."""

ALGORITHMS = {
    "tree": "Tree",
    "ring": "Ring",
    "collnet_direct": "CollNetDirect",
    "collnet_chain": "CollNetChain",
    "nvls": "NVLS",
    "nvls_tree": "NVLSTree",
    "pat": "PAT",
}

PROTOCOLS = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}

ALGORITHMS_OF = {
    "broadcast": ("ring",),
    "reduce": ("ring",),
    "all_gather": ("ring", "collnet_direct", "nvls", "pat"),
    "reduce_scatter": ("ring", "collnet_direct", "nvls", "pat"),
    "all_reduce": ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree"),
}
"""Algorithms with kernels in NCCL, by collective (src/graph/tuning.cc, v2.30.7)."""

PROTOCOLS_OF = {name: tuple(PROTOCOLS) if name in ("tree", "ring") else ("simple",) for name in ALGORITHMS}
"""Only trees and rings have the low-latency protocols."""
