"""NCCL's own time for an all-reduce beside the engine's, both without the launch.

Run it for the table in docs/nccl_tuner_and_simulation.md:

    python examples/tuner_and_simulation.py
"""

from collections.abc import Iterator

from ringside.sim.collective import Collective
from ringside.sim.libraries.nccl import Pins, Settings, communicator, cost_table
from ringside.sim.libraries.nccl.library import LAUNCH_S, overhead_s, simulated
from ringside.topologies.units import format_size

MACHINE = "dgx-a100"
NODES = (1, 2, 4)
SIZES = (8 << 10, 256 << 10, 4 << 20, 64 << 20)


def cell(nodes: int, algorithm: str, protocol: str, nbytes: int) -> str:
    """Microseconds by the tuner, by the engine, and the second over the first."""
    pinned = Settings(pins=Pins(algorithm, protocol))
    comm = communicator(MACHINE, nodes, settings=pinned)
    tuner = cost_table(comm, "all_reduce").choose(nbytes).time_us
    seconds, *_ = simulated(comm, Collective("all_reduce", comm.ranks, nbytes, 4), algorithm, protocol)
    engine = (seconds + overhead_s(comm, algorithm, protocol) - LAUNCH_S) * 1e6
    return f"{tuner:.0f} / {engine:.0f}, {engine / tuner:.2f}x"


def table() -> Iterator[str]:
    """Return the lines of the page's table."""
    yield f"| nodes | algorithm | protocol | {' | '.join(format_size(nbytes) for nbytes in SIZES)} |"
    yield "|---|---|---|" + "---|" * len(SIZES)
    for nodes in NODES:
        for algorithm in ("ring", "tree"):
            for protocol in ("ll", "ll128", "simple"):
                cells = [cell(nodes, algorithm, protocol, nbytes) for nbytes in SIZES]
                yield f"| {nodes} | {algorithm} | {protocol} | {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(table()))
