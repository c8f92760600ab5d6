"""Open MPI's own choice of algorithm by ranks and bytes: the fixed rules of ``coll/tuned``.

From ompi/mca/coll/tuned/coll_tuned_decision_fixed.c of 4.1 and 5.0, which average measurements of several
sites, for reductions that commute. Each line begins with its exclusive upper limit of ranks, then algorithms,
each up to the bytes that follow it. Bytes are those of a rank's buffer; of one block, if a rank has a block
for or from every other; of all blocks for reduce_scatter.
"""

import math
from bisect import bisect_right

from ringside.sim.collective import Collective

OF_A_BLOCK = ("all_gather", "all_to_all", "gather", "scatter")
"""Collectives whose rules count one rank's block."""

_RULES = {
    "all_reduce": """
        4 ring 8 recursive_doubling 4096 ring 8192 recursive_doubling 16384 ring 262144 rabenseifner
        8 ring 16 recursive_doubling 8192 rabenseifner
        16 recursive_doubling 8192 rabenseifner
        32 ring 64 recursive_doubling 4096 rabenseifner
        64 ring 128 rabenseifner
        128 recursive_doubling 262144 rabenseifner
        256 nonoverlapping 131072 recursive_doubling 262144 rabenseifner
        512 nonoverlapping 4096 rabenseifner
        2048 nonoverlapping 2048 recursive_doubling 16384 rabenseifner
        4096 nonoverlapping 2048 ring 4096 recursive_doubling 16384 rabenseifner
        inf nonoverlapping 2048 ring 16384 recursive_doubling 32768 rabenseifner""",
    "all_to_all": """
        3 pairwise
        8 linear 524288 pairwise 1048576 linear
        16 linear
        32 linear 4 modified_bruck 512 linear
        64 modified_bruck 512 linear
        128 modified_bruck 1024 linear 262144 pairwise
        256 modified_bruck 1024 linear 262144 pairwise
        512 modified_bruck 1024 linear 32768 pairwise
        1024 modified_bruck 512 linear 262144 pairwise
        2048 modified_bruck 512 linear
        4096 modified_bruck 1024 linear
        inf modified_bruck 2048 linear""",
    "broadcast": """
        4 chain 32 binary 256 chain 512 knomial 1024 linear 32768 binary 131072 chain 262144 linear 524288
            binomial 1048576 binary
        8 binary 64 binomial 128 binary 2048 binomial 8192 linear 1048576 chain
        16 knomial 8 binary 64 knomial 4096 binary 16384 binomial 32768 linear
        32 knomial 4096 binomial 1048576 scatter_allgather
        64 binomial 2048 knomial
        128 knomial
        256 binomial 2 binary 16384 linear 32768 binary 65536 knomial
        1024 knomial 16384 split_binary 32768 knomial
        2048 knomial 524288 scatter_allgather
        4096 knomial 262144 scatter_allgather
        inf knomial 8192 binary 16384 knomial 262144 scatter_allgather""",
    "reduce": """
        4 rabenseifner 8 binary 16 chain 32 linear 262144 chain
        8 binary 4096 chain 65536 binomial 262144 linear 524288 binomial 1048576 linear
        16 binary 8192 binomial
        32 binary 4096 binomial
        256 binomial
        512 binomial 8192 binary 16384 binomial
        2048 binomial
        4096 binomial 512 binary 1024 binomial 8192 binary 16384 binomial
        inf binomial 16 binary 32 binomial 1024 binary 2048 binomial 8192 binary 16384 binomial""",
    "reduce_scatter": """
        4 ring 65536 butterfly 131072 ring
        8 nonoverlapping 8 recursive_halving 262144 ring
        32 recursive_halving 262144 ring
        64 nonoverlapping 64 recursive_halving 2048 butterfly 524288 ring
        128 nonoverlapping 256 recursive_halving 512 butterfly 2048 recursive_halving 4096 butterfly
        256 nonoverlapping 256 recursive_halving 512 butterfly
        512 nonoverlapping 256 recursive_halving 1024 butterfly
        1024 nonoverlapping 512 recursive_halving 2048 butterfly 8192 recursive_halving 16384 butterfly
        2048 nonoverlapping 512 recursive_halving 4096 butterfly 16384 recursive_halving 32768 butterfly
        4096 nonoverlapping 512 recursive_halving 4096 butterfly
        inf nonoverlapping 1024 recursive_halving 8192 butterfly""",
    "all_gather": """
        32 recursive_doubling
        64 recursive_doubling 1024 neighbor 65536 ring
        128 recursive_doubling 512 neighbor 65536 ring
        256 recursive_doubling 512 neighbor 131072 ring 524288 neighbor 1048576 ring
        512 recursive_doubling 32 bruck 128 recursive_doubling 1024 neighbor 131072 ring 524288
            neighbor 1048576 ring
        1024 recursive_doubling 64 bruck 256 recursive_doubling 2048 neighbor
        2048 recursive_doubling 4 bruck 8 recursive_doubling 16 bruck 32 recursive_doubling 256 bruck 512
            recursive_doubling 4096 neighbor
        4096 bruck 32 recursive_doubling 128 bruck 512 recursive_doubling 4096 neighbor
        inf recursive_doubling 2 bruck 8 recursive_doubling 16 bruck 512 recursive_doubling 4096 neighbor""",
    "gather": """
        4 linear_sync 2 linear 4 binomial 32768 linear 65536 binomial 131072 linear_sync
        8 binomial 1024 linear 8192 binomial 32768 linear 262144 linear_sync
        256 binomial
        512 binomial 2048 linear 8192 binomial
        inf binomial""",
    "scatter": """
        4 linear_nb 2 linear 131072 linear_nb 262144 linear
        8 binomial 2048 linear 4096 binomial 8192 linear 32768 linear_nb 1048576 linear
        16 binomial 16384 linear_nb 1048576 linear
        32 binomial 16384 linear 32768 linear_nb
        64 binomial 512 linear_nb 8192 binomial 16384 linear_nb
        inf binomial 512 linear_nb""",
    "sendrecv": "inf ring",
}
"""Some algorithms are listed under other names: ``segmented_ring`` without segments is a ring, ``pipeline`` a
chain, all_to_all's ``linear_sync`` linear, ``in-order_binary`` binary.
"""

Rules = tuple[tuple[float, tuple[float, ...], tuple[str, ...]], ...]


def _read(text: str) -> Rules:
    """Parse rows: the limit of ranks, then algorithms, each but the last with its limit of bytes."""
    rows: list[list[str]] = []
    for line in text.splitlines() or [text]:
        cells = line.split()
        if cells and (cells[0].isdecimal() or cells[0] == "inf"):
            rows.append(cells)
        elif cells:
            rows[-1] += cells
    return tuple((float(first), tuple(map(float, rest[1::2])), tuple(rest[::2])) for first, *rest in rows)


DECISIONS: dict[str, Rules] = {kind: _read(text) for kind, text in _RULES.items()}


def decide(collective: Collective) -> str:
    """Return Open MPI's choice of algorithm."""
    kind, ranks, nbytes = collective.kind, collective.ranks, collective.nbytes
    counted = nbytes / ranks if kind in OF_A_BLOCK else float(nbytes)
    limits, algorithms = next(row[1:] for row in DECISIONS[kind] if ranks < row[0] or row[0] == math.inf)
    algorithm = algorithms[bisect_right(limits, counted)]
    if kind == "all_reduce" and algorithm == "ring" and nbytes // collective.itemsize < ranks:
        return "recursive_doubling"  # a ring needs one element per rank
    return algorithm
