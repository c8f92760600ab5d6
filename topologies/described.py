"""Machines of a common build, described in some ten lines of YAML rather than drawn node by node.

For example::

    machine: pcie-server
    gpu: a100
    gpus: 8
    nics: 1
    nic: 100Gb/s
    nodes: 4

Every key but the first may be left out; docs/clusters.md lists them all, which are `cluster`'s parameters.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field

from ringside.topologies import strict_yaml
from ringside.topologies.catalogue import defaults, made
from ringside.topologies.chassis import (
    all_to_all,
    behind_nvswitch,
    cards,
    gpus_of,
    on_sockets,
    slots,
    sockets,
)
from ringside.topologies.disk import regular
from ringside.topologies.graph import Topology, TopologyError, add_cable
from ringside.topologies.hardware import PCIE_GTS, facts, nvlink_of
from ringside.topologies.hardware import pcie as pcie_link
from ringside.topologies.joining import joined
from ringside.topologies.units import BytesPerSecond, Seconds, format_rate

KEY = "machine"
"""The key by which such a file is known."""

EXAMPLE = """\
# 4 servers of 8 GPUs and one network card each; docs/clusters.md has every key
machine: pcie-server    # or nvlink_switch, nvlink_pairs, nvlink_mesh
gpu: a100
gpus: 8
nics: 1
nic: 100Gb/s
pcie: 24GB/s            # what a GPU's slot carries one way
socket: 10GB/s          # from one CPU to the other
nodes: 4
fabric: star            # or rail, or one of docs/fabrics.md
"""

Build = Literal["pcie-server", "nvlink_switch", "nvlink_pairs", "nvlink_mesh"]
Gpu = Literal["v100", "a100", "a100-40gb", "h100", "h200", "b200"]
Cpu = Literal["intel", "amd", "arm", "power", "zhaoxin", "other"]
Fabric = Literal["star", "rail"]
Few = Annotated[int, Field(gt=0, le=256)]
FewOrNone = Annotated[int, Field(ge=0, le=256)]
Sockets = Annotated[int, Field(gt=0, le=16)]


def cluster(
    nodes: int = 1,
    machine: Build = "pcie-server",
    name: str = "",
    gpu: Gpu = "a100",
    cpu: Cpu = "intel",
    gpus: Few = 8,
    nics: FewOrNone = 1,
    sockets: Sockets = 2,
    switches: FewOrNone = 0,
    fabric: Fabric = "star",
    nvlink: BytesPerSecond | None = None,
    pcie: BytesPerSecond | None = None,
    nic: BytesPerSecond = 12.5e9,
    socket: BytesPerSecond = 10e9,
    nvlink_latency: Seconds = 0.6e-6,
    pcie_latency: Seconds = 1e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """``nodes`` machines, all alike, joined by their network cards.

    ``pcie-server`` has no NVLink; ``nvlink_switch`` has all GPUs behind NVSwitch, ``nvlink_pairs`` two and
    two joined by a bridge, ``nvlink_mesh`` each joined to all others. GPUs and cards hang on ``switches``
    PCIe switches, or straight on the ``sockets`` where there are none, spread evenly. A ``star`` is one
    switch for all cards of all machines that is never the bottleneck; a ``rail`` one for each card. The
    fabrics of `ringside.topologies.refitting` have their own keys beside these.

    Bandwidths are bytes/s of one direction: ``nvlink`` of one GPU over all its links, ``pcie`` of one
    slot, ``nic`` of one card, ``socket`` from one CPU to another. The data sheet of the GPU has the
    defaults of the first two.
    """
    wrong = _misfit(machine, nodes, gpus, nics, sockets, switches, nvlink)
    if wrong:
        raise TopologyError(f"{name or machine}: {wrong}")
    slot = pcie if pcie is not None else pcie_link(PCIE_GTS[gpu], 16)
    one = _gpus(machine, gpus, nvlink if nvlink is not None else nvlink_of(gpu), nvlink_latency)
    one.graph.update(facts(gpu, cpu), name=name or machine)
    # where NVLink does not join all GPUs, they reach one another through PCIe, at its latency
    bare = machine in ("pcie-server", "nvlink_pairs")
    _board(one, slot, socket, nics, sockets, switches, pcie_latency / 2 if bare else 0.0)
    outside = max(0.0, network_latency - pcie_latency) if bare else network_latency
    return joined(one, nodes, cards(one, nic), outside, rails=fabric == "rail")


def topology(
    content: Mapping[str, Any],
    source: str,
    count: int | None = None,
    values: Mapping[str, Any] | None = None,
) -> Topology:
    """The topology that a file's content describes; ``count`` machines where given, ``values`` over its keys.

    It is called as the file is, without its ending, where the file gives it no name.
    """
    values = values or {}
    if KEY in values:
        raise TopologyError(f"{source}: {KEY} is what the file is known by; change it in the file")
    kept = {key: value for key, value in content.items() if count is None or key != "nodes"}
    recipe = {"name": Path(source).stem, **kept, **values}
    graph = made(source, cluster, count, recipe)
    graph.graph.pop("settings", None)
    graph.graph["recipe"] = recipe if count is None else {**recipe, "nodes": count}
    return graph


def settings(content: Mapping[str, Any]) -> dict[str, str]:
    """The keys that ``--set`` takes for such a file, each as text: what the file says, else its default."""
    found = defaults(cluster)
    gpu = str(content.get("gpu", found["gpu"]))
    if gpu in PCIE_GTS:
        found |= {"pcie": format_rate(pcie_link(PCIE_GTS[gpu], 16)), "nvlink": format_rate(nvlink_of(gpu))}
    found |= {key: str(value) for key, value in content.items()}
    absent = {KEY, "name", "nodes", *(["nvlink"] if found[KEY] == "pcie-server" else [])}
    return {key: value for key, value in found.items() if key not in absent}


def is_file(name: str) -> bool:
    """Whether the name is such a file's."""
    return content_at(name) is not None


def content_at(name: str) -> dict[str, Any] | None:
    """What such a file says; ``None`` of any other name."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        return None
    try:
        return content_of(regular(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # what cannot be read is refused where it is read in earnest
        return None


def content_of(text: str) -> dict[str, Any] | None:
    """What a file's text says if it describes machines, ``None`` of any other text."""
    if KEY not in text:
        return None
    try:
        content = strict_yaml.loads(text)
    except yaml.YAMLError:
        return None
    known = isinstance(content, dict) and KEY in content and all(isinstance(key, str) for key in content)
    return content if known else None


def _misfit(
    machine: str, nodes: int, gpus: int, nics: int, sockets: int, switches: int, nvlink: float | None
) -> str | None:
    """Which keys do not fit one another, and what to write instead."""
    if nodes > 1 and not nics:
        return "nics is 0, so several nodes cannot be joined; write 1 or more, or nodes: 1"
    if machine == "pcie-server" and nvlink is not None:
        return "nvlink is given, but a pcie-server has none; leave it out, or write another machine"
    if machine == "nvlink_pairs" and gpus % 2:
        return f"gpus is {gpus}; nvlink_pairs has an even number of them"
    if machine == "nvlink_mesh" and gpus == 1:
        return "gpus is 1; nvlink_mesh has 2 or more"
    if switches and (gpus % switches or nics % switches or switches % sockets):
        return (
            f"switches is {switches}; gpus ({gpus}) and nics ({nics}) must be multiples of it, and it a "
            f"multiple of sockets ({sockets}); 0 puts them straight on the sockets"
        )
    if not switches and gpus > 1 and gpus % sockets:
        return f"sockets is {sockets}; gpus ({gpus}) must be a multiple of it"
    return None


def _gpus(machine: str, gpus: int, nvlink: float, latency: float) -> Topology:
    """The GPUs with the NVLinks among them."""
    match machine:
        case "nvlink_switch":
            return behind_nvswitch(machine, gpus, nvlink, latency)
        case "nvlink_mesh":
            return all_to_all(machine, gpus, nvlink, latency)
        case _:
            one = gpus_of(machine, gpus)
            for gpu in range(0, gpus if machine == "nvlink_pairs" else 0, 2):
                ends = f"gpu{gpu}", f"gpu{gpu + 1}"
                add_cable(one, *ends, kind="nvlink", bandwidth=nvlink, latency=latency)
            return one


def _board(
    one: Topology, pcie: float, socket: float, nics: int, cpus: int, switches: int, latency: float
) -> None:
    """What carries GPUs and cards; ``latency`` is that of a GPU's slot."""
    gpus = sum(data["kind"] == "gpu" for _, data in one.nodes(data=True))
    if switches:
        slots(one, pcie, gpus=gpus // switches, nics=nics // switches, latency=latency)
        sockets(one, cpus, socket, pcie)
    else:
        on_sockets(one, cpus, socket, pcie, nics=nics, latency=latency)
