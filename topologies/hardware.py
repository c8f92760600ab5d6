"""What a machine is made of, beside its links: facts that stand on a topology's graph.

``device`` is the GPU's name, one of `topologies.devices.DEVICES`, from which its compute capability
follows, and from that the generation of its NVLinks (`topologies.links.nvlink`); ``cpu`` is who makes the
CPUs.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypedDict

from topologies.devices import DEVICES
from topologies.graph import Topology

Asked = ParamSpec("Asked")


class Facts(TypedDict, total=False):
    """What stands on the graph."""

    device: str
    compute_capability: int
    cpu: str


def facts(device: str, cpu: str | None = None) -> Facts:
    """The facts about machines with these GPUs and CPUs."""
    found = Facts(device=device, compute_capability=DEVICES[device])
    if cpu is not None:
        found["cpu"] = cpu
    return found


def hardware(
    device: str, *, cpu: str | None = None
) -> Callable[[Callable[Asked, Topology]], Callable[Asked, Topology]]:
    """Puts the facts about its machines on what a maker makes."""

    def with_facts(maker: Callable[Asked, Topology]) -> Callable[Asked, Topology]:
        @wraps(maker)
        def made(*args: Asked.args, **kwargs: Asked.kwargs) -> Topology:
            graph = maker(*args, **kwargs)
            graph.graph.update(facts(device, cpu))
            return graph

        return made

    return with_facts
