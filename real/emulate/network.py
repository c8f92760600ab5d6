"""The emulated network: up for the length of a ``with`` block."""

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec

from ringside.real.emulate.plan import address, plan
from ringside.topologies.extras import install
from ringside.topologies.graph import Node, Topology


@dataclass(frozen=True, slots=True)
class Host:
    """A rank's host: a namespace (see ``ip netns``) with one port, ``interface``, at ``address``."""

    rank: int
    node: Node
    namespace: str
    address: str
    interface: str = "eth0"


@dataclass(frozen=True, slots=True)
class EmulatedNetwork:
    """An emulated network that is up. ``fabric`` is the namespace of its bridges."""

    hosts: tuple[Host, ...]
    fabric: str

    def inside(self, rank: int) -> AbstractContextManager[None]:
        """Run the calling thread in the rank's host until the block ends.

        Sockets opened and processes started in the block stay there for life, so this is how to run a command
        in a host: ``with network.inside(3): subprocess.Popen(["torchrun", ...])``.
        """
        from ringside.real.emulate import namespaces

        return namespaces.inside(self.hosts[rank].namespace)

    def enter(self, rank: int) -> None:
        """Move the calling thread into the rank's host permanently, as a forked child does first."""
        from ringside.real.emulate import namespaces

        namespaces.enter(self.hosts[rank].namespace)


@contextmanager
def emulate(graph: Topology) -> Iterator[EmulatedNetwork]:
    """Yield the topology as a real network in this machine, for the length of the block.

    At the end of the block, also by Ctrl-C, SIGTERM or SIGHUP, processes still running in the hosts are
    killed and everything is removed. If this process is killed by SIGKILL, a guard does so; if the guard is
    killed too, the next call does, as does `sweep`. Nothing is created, changed or removed in the caller's
    own network.

    Raise `TopologyError` if the graph is not a tree of hosts and switches with links of 1 Mb/s to 10 Gb/s,
    `ValueError` if this machine cannot emulate; see `available`.
    """
    layout = plan(graph)
    sweep()
    from ringside.real.emulate import build, namespaces, stopping

    maker = os.getpid()
    if namespaces.ours():
        raise ValueError("this process already has an emulated network; close it first")
    with stopping.unwinding(), stopping.guarded():
        try:
            with stopping.deferred():
                build.build(layout)
            hosts = (
                Host(rank, node, build.host(rank), address(rank)) for rank, node in enumerate(layout.hosts)
            )
            yield EmulatedNetwork(tuple(hosts), build.fabric())
        finally:
            if os.getpid() == maker:  # not a child that was forked inside the block
                with stopping.deferred():
                    namespaces.remove(namespaces.ours())


def sweep() -> list[str]:
    """Remove the namespaces and processes left by killed runs; return the names removed.

    Raise `ValueError` if this machine cannot emulate; see `available`.
    """
    if reason := available():
        raise ValueError(f"no emulated network on this machine: {reason}")
    from ringside.real.emulate import namespaces, stopping

    names = namespaces.orphaned()
    with stopping.deferred():
        namespaces.remove(names)
    return names


def available() -> str | None:
    """Return why this machine cannot emulate a network; None if it can."""
    if sys.platform != "linux":
        return f"network namespaces need Linux, this is {sys.platform}"
    if find_spec("pyroute2") is None:
        return f"pyroute2 is not installed; {install('net')}"
    from ringside.real.emulate import build, stopping

    with stopping.deferred():
        return build.missing()
