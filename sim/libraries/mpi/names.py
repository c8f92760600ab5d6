"""MPI's names and numbers: types, and the variables that select one of Open MPI's algorithms.

The numbers are those of ``ompi_info --param coll tuned --level 9``.
"""

from collections.abc import Mapping

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
