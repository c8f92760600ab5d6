"""What a machine is made of, beside its links: facts that stand on a topology's graph.

``device`` is the GPU's name, one of `DEVICES`, from which its compute capability follows, and from that
the generation of its NVLinks (`topologies.links.nvlink`); ``cpu`` is who makes the CPUs.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypedDict

from topologies.graph import Topology
from topologies.links import nvlink

Asked = ParamSpec("Asked")

DEVICES = {"v100": 70, "a100": 80, "a100-40gb": 80, "h100": 90, "h200": 90, "b200": 100}
"""Compute capabilities by GPU, 90 for sm_90 (NVIDIA, CUDA GPU compute capability)."""

NVLINKS = {"v100": 6, "a100": 12, "a100-40gb": 12, "h100": 18, "h200": 18, "b200": 18}
"""NVLinks of a GPU in the SXM form (NVIDIA's data sheets)."""

PCIE = {"v100": 3, "a100": 4, "a100-40gb": 4, "h100": 5, "h200": 5, "b200": 5}
"""The PCIe generation of a GPU's slot (NVIDIA's data sheets)."""


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


def nvlink_of(device: str) -> float:
    """Bytes/s of all NVLinks of a GPU together, one direction."""
    return NVLINKS[device] * nvlink(DEVICES[device])
