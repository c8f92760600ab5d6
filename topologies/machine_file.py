"""Machines of a common build, described in about ten lines of YAML instead of node by node.

For example::

    machine: pcie-server
    gpu: a100
    gpus: 8
    nics: 1
    nic: 100Gb/s
    nodes: 4

Every key but the first may be omitted; docs/clusters.md lists them all. They are the parameters of `cluster`,
or of `cpu_node`, and the fields of `MachineFacts`. The machines of the catalogue are such files too.

Latencies are the hop latencies that NCCL's tuner assumes for its fastest protocol, LL: 0.6 us over NVLink,
1 us over PCIe and 2.7 us in total over the network (src/graph/tuning.cc, v2.30.7). PCIe figures are NCCL's
bandwidths of an x16 slot (lanes x rate / 80: 12 GB/s for Gen 3, 24 GB/s for Gen 4, 48 GB/s for Gen 5;
src/graph/topo.h, v2.30.7), a quarter below the signalling rate.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveInt, ValidationError

from ringside.topologies import strict_yaml
from ringside.topologies.chassis import (
    all_to_all,
    behind_nvswitch,
    cards,
    cpu_node,
    joined,
    linked,
    links_of_one,
    on_cpus,
    on_sockets,
    slots,
)
from ringside.topologies.disk import regular
from ringside.topologies.graph import Topology, TopologyError
from ringside.topologies.hardware import GPUS, nvlink_of, slot_of
from ringside.topologies.hardware import facts as hardware_of
from ringside.topologies.making import defaults, made
from ringside.topologies.names import one_of, plain
from ringside.topologies.units import BytesPerSecond, Seconds, format_rate

KEY = "machine"
"""The key that identifies such a file."""

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


def _known_gpu(name: str) -> str:
    called = {plain(one): one for one in GPUS}.get(plain(name))
    if called is None:
        raise ValueError(f"unknown GPU {name!r}; write {one_of(GPUS, name)}")
    return called


Build = Literal["pcie-server", "nvlink_switch", "nvlink_pairs", "nvlink_mesh", "xgmi_mesh"]
GpuName = Annotated[str, AfterValidator(_known_gpu)]
Cpu = Literal["intel", "amd", "arm", "power", "zhaoxin", "other"]
Fabric = Literal["star", "rail"]
Network = Literal["InfiniBand", "RoCE", "EFA", "Slingshot", "FasTrak", "GPUDirect-TCPX", "sockets"]
Few = Annotated[int, Field(gt=0, le=256)]
FewOrNone = Annotated[int, Field(ge=0, le=256)]
Sockets = Annotated[int, Field(ge=0, le=256)]
Links = tuple[tuple[int, int, PositiveInt], ...]
"""Pairs of GPUs, by number, with the number of NVLinks between them."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NcclView(_Strict):
    """Differences between NCCL's view and the graph; rates as in data sheets.

    ``sockets`` are NUMA domains, ``hosts`` the operating systems in one NVLink domain, ``beside`` the
    GPU next to each card, ``links`` the NVLinks that are reported to NCCL if they differ from the cabling.
    """

    nvlink: BytesPerSecond | None = None
    c2c: BytesPerSecond | None = None
    socket: BytesPerSecond | None = None
    sockets: PositiveInt | None = None
    hosts: PositiveInt | None = None
    beside: tuple[FewOrNone, ...] | None = None
    links: Links | None = None


class MachineFacts(_Strict):
    """Facts about a machine besides its build.

    ``gpu_in_logs`` is a pattern of the name of its GPUs in logs, in capitals, if not the usual one;
    ``inside`` the machine of the catalogue with identical nodes. ``network`` is the kind of network between
    nodes. ``aliases`` are other names of it, such as a cloud's instances.
    """

    what: str = ""
    sources: str = ""
    gpu_in_logs: re.Pattern[str] | None = None
    inside: str | None = None
    network: Network | None = None
    aliases: tuple[str, ...] = ()


def cluster(
    nodes: int = 1,
    machine: Build = "pcie-server",
    name: str = "",
    gpu: GpuName = "a100",
    cpu: Cpu | None = "intel",
    gpus: Few = 8,
    nics: FewOrNone = 1,
    sockets: Sockets = 2,
    switches: FewOrNone = 0,
    fabric: Fabric = "star",
    links: Links = (),
    cpu_links: FewOrNone = 0,
    nvlink: BytesPerSecond | None = None,
    xgmi: BytesPerSecond | None = None,
    pcie: BytesPerSecond | None = None,
    c2c: BytesPerSecond | None = None,
    nic: BytesPerSecond = 12.5e9,
    socket: BytesPerSecond = 10e9,
    nvlink_latency: Seconds = 0.6e-6,
    xgmi_latency: Seconds = 0.6e-6,
    pcie_latency: Seconds = 1e-6,
    network_latency: Seconds = 2.7e-6,
    nccl: NcclView | None = None,
) -> Topology:
    """Build ``nodes`` identical machines, joined by their network cards.

    ``pcie-server`` has no NVLink. ``nvlink_switch`` has all GPUs behind NVSwitch, ``nvlink_pairs`` has pairs
    joined by a bridge. In ``nvlink_mesh`` each GPU is joined to all others, or as in ``links``, and by
    ``cpu_links`` NVLinks to its CPU; ``xgmi_mesh`` is the same with AMD's links. GPUs and cards are spread
    evenly over ``switches`` PCIe switches, or over the ``sockets`` if ``switches`` is 0; with ``c2c`` GPUs
    are joined to their CPU by that link. A ``star`` is one non-blocking switch for all cards of all machines,
    a ``rail`` one switch for each card. The fabrics of `ringside.topologies.fabrics.refitting` have
    additional keys. The graph has CPUs if messages can cross them; ``sockets`` of 0 leaves them out.

    Bandwidths are bytes/s of one direction: ``nvlink`` or ``xgmi`` of one GPU over all its links, ``pcie`` of
    one slot, ``c2c`` of one GPU, ``nic`` of one card, ``socket`` between CPUs. The GPU's file has defaults.
    """
    rates = _rates(machine, gpu, pcie, nvlink, xgmi)
    wrong = (
        _misfit(machine, nodes, gpus, nics, sockets, switches, nvlink)
        or _misfit_of_links(machine, gpus, switches, links, cpu_links, xgmi, c2c)
        or _unknown(gpu, rates)
    )
    if wrong:
        raise TopologyError(f"{name or machine}: {wrong}")
    slot, lanes = (rate or 0.0 for rate in rates.values())
    one = _joined_gpus(machine, gpus, links, cpu_links, lanes, nvlink_latency, xgmi_latency)
    one.graph.update(hardware_of(gpu, cpu), name=name or machine, **_nccl_view(nccl))
    inside = nvlink_latency if cpu_links else _pcie_latency(machine, gpus, pcie_latency)
    if switches:
        slots(one, slot, gpus=gpus // switches, nics=nics // switches, latency=inside / 2)
        on_cpus(one, sockets, socket, slot)
    elif c2c is not None:
        on_sockets(one, sockets, None, ("c2c", c2c, 0.0), slot, nics)
    else:
        share = lanes * cpu_links / links_of_one(links, cpu_links) if cpu_links else 0.0
        link = ("nvlink", share) if cpu_links else ("pcie", slot)
        on_sockets(one, sockets, socket, (*link, inside / 2), slot, nics)
    return joined(one, nodes, cards(one, nic), max(0.0, network_latency - inside), rails=fabric == "rail")


def _rates(
    machine: Build, gpu: GpuName, pcie: float | None, nvlink: float | None, xgmi: float | None
) -> dict[str, float | None]:
    """Return the rate of a slot and of a GPU's own links, each under its key: the file's or the GPU's."""
    slot = pcie if pcie is not None else slot_of(gpu)
    if machine == "xgmi_mesh":
        return {"pcie": slot, "xgmi": xgmi}
    if machine == "pcie-server":
        return {"pcie": slot, "nvlink": 0.0}
    return {"pcie": slot, "nvlink": nvlink if nvlink is not None else nvlink_of(gpu)}


def _nccl_view(nccl: NcclView | None) -> dict[str, Any]:
    """Return the graph's entry of what NCCL sees otherwise than the rest, if anything."""
    kept = {key: value for key, value in dict(nccl or {}).items() if value is not None}
    return {"nccl": kept} if kept else {}


def _pcie_latency(machine: Build, gpus: int, latency: float) -> float:
    """Return the latency between GPUs of one machine through PCIe; 0 where NVLink joins them."""
    return latency if "pcie_latency" in latencies_of({"machine": machine, "gpus": gpus}) else 0.0


def _joined_gpus(
    machine: Build, gpus: int, links: Links, cpu_links: int, lanes: float, latency: float, xgmi_latency: float
) -> Topology:
    """Return the GPUs of one machine, joined by links of ``lanes`` bytes/s for each GPU, if it has any."""
    if machine == "xgmi_mesh":
        return all_to_all(machine, gpus, lanes, xgmi_latency, kind="xgmi")
    if machine == "nvlink_switch":
        return behind_nvswitch(machine, gpus, lanes, latency)
    if machine == "nvlink_mesh" and not links:
        return all_to_all(machine, gpus, lanes, latency)
    if machine == "nvlink_pairs":
        links = tuple((first, first + 1, 1) for first in range(0, gpus, 2))
    return linked(machine, gpus, links, cpu_links, lanes, latency)


def topology(
    content: Mapping[str, Any],
    source: str,
    count: int | None = None,
    values: Mapping[str, Any] | None = None,
) -> Topology:
    """Build the topology that a file's content describes; ``count`` and ``values`` override its keys.

    Its name defaults to the file's name without the suffix.
    """
    values = values or {}
    if KEY in values:
        raise TopologyError(f"{source}: {KEY} cannot be set; change it in the file")
    kept = {key: value for key, value in content.items() if count is None or key != "nodes"}
    recipe = {"name": Path(source).stem, **kept, **values}
    build = build_of(recipe)
    graph = made(source, build, count, parse(recipe, source)[1])
    graph.graph.pop("settings", None)
    graph.graph["recipe"] = recipe if count is None else {**recipe, "nodes": count}
    return graph


def parse(content: Mapping[str, Any], source: str) -> tuple[MachineFacts, dict[str, Any]]:
    """Split a file's content into the facts about its machine and the arguments of its build."""
    facts = {key: value for key, value in content.items() if key in MachineFacts.model_fields}
    try:
        return MachineFacts(**facts), {key: value for key, value in content.items() if key not in facts}
    except ValidationError as error:
        raise TopologyError(strict_yaml.complaints(error, source, list(MachineFacts.model_fields))) from None


def build_of(content: Mapping[str, Any]) -> Callable[..., Topology]:
    """Return the function that builds the machines of a file."""
    return cpu_node if content.get(KEY) == "cpu-node" else cluster


def latencies_of(arguments: Mapping[str, Any]) -> list[str]:
    """Return the names of the latencies that a machine's links need."""
    kind = str(arguments[KEY]).partition("_")[0]
    latencies = [f"{kind}_latency"] if kind in ("nvlink", "xgmi") else []
    if arguments[KEY] in ("pcie-server", "nvlink_pairs") and arguments["gpus"] > 1:
        latencies.append("pcie_latency")
    return [*latencies, "network_latency"]


def settings(content: Mapping[str, Any]) -> dict[str, str]:
    """Return the keys that ``--set`` accepts for such a file, as text: the file's value or the default."""
    values = defaults(build_of(content))
    gpu = str(content.get("gpu", values.get("gpu", "")))
    if gpu in GPUS:
        rates = {"pcie": slot_of(gpu), "nvlink": nvlink_of(gpu)}
        values |= {key: format_rate(rate) for key, rate in rates.items() if rate is not None}
    if content.get(KEY) == "pcie-server":
        del values["nvlink"]
    if content.get(KEY) != "xgmi_mesh":
        values.pop("xgmi_latency", None)
    values |= {key: str(value) for key, value in content.items()}
    absent = {KEY, "name", "nodes", "links", "nccl", *MachineFacts.model_fields}
    return {key: value for key, value in values.items() if key not in absent and value != "None"}


def is_file(name: str) -> bool:
    """Return whether the name is that of such a file."""
    return content_at(name) is not None


def content_at(name: str) -> dict[str, Any] | None:
    """Return the content of such a file; ``None`` for any other name."""
    path = Path(name)
    if path.suffix not in (".yaml", ".yml"):
        return None
    try:
        return content_of(regular(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):  # `load` refuses an unreadable file
        return None


def content_of(text: str) -> dict[str, Any] | None:
    """Parse a file's text if it describes machines; return ``None`` for any other text."""
    if KEY not in text:
        return None
    try:
        content = strict_yaml.loads(text)
    except yaml.YAMLError:
        return None
    known = isinstance(content, dict) and KEY in content and all(isinstance(key, str) for key in content)
    return content if known else None


def _misfit_of_links(
    machine: str,
    gpus: int,
    switches: int,
    links: Links,
    cpu_links: int,
    xgmi: float | None,
    c2c: float | None,
) -> str | None:
    """Return an error message for contradictory keys of links, or None."""
    if links and machine != "nvlink_mesh":
        return f"links are given, but {machine} has its own; leave them out, or write nvlink_mesh"
    for a, b, _ in links:
        if not 0 <= a < b < gpus:
            return f"links has GPUs {a} and {b}; write two of 0 to {gpus - 1}, the smaller one first"
    if cpu_links and (not links or switches):
        return "cpu_links is given; write links and switches: 0 too, or leave it out"
    if c2c is not None and (switches or cpu_links):
        return "c2c joins GPUs to their CPUs; leave switches and cpu_links out, or c2c"
    if xgmi is not None and machine != "xgmi_mesh":
        return f"xgmi is given, but {machine} has none; leave it out, or write xgmi_mesh"
    return None


def _unknown(gpu: str, rates: Mapping[str, float | None]) -> str | None:
    """Return an error message for a rate in neither the cluster's file nor the GPU's."""
    key = next((key for key, rate in rates.items() if rate is None), None)
    return None if key is None else f"the {key} of {gpu} is unknown; write it, for example {key}: 48GB/s"


def _misfit(
    machine: str, nodes: int, gpus: int, nics: int, sockets: int, switches: int, nvlink: float | None
) -> str | None:
    """Return an error message for contradictory keys, or None."""
    if nodes > 1 and not nics:
        return "nics is 0, so several nodes cannot be joined; write 1 or more, or nodes: 1"
    if machine == "pcie-server" and nvlink is not None:
        return "nvlink is given, but a pcie-server has none; leave it out, or write another machine"
    if machine == "nvlink_pairs" and gpus % 2:
        return f"gpus is {gpus}; nvlink_pairs has an even number of them"
    if machine in ("nvlink_mesh", "xgmi_mesh") and gpus == 1:
        return f"gpus is 1; {machine} has 2 or more"
    if not sockets and (not switches or (switches > 1 and machine in ("pcie-server", "nvlink_pairs"))):
        return "sockets is 0, so nothing joins the GPUs' slots; write 1 or more"
    if switches and (gpus % switches or nics % switches or (sockets and switches % sockets)):
        return (
            f"switches is {switches}; gpus ({gpus}) and nics ({nics}) must be multiples of it, and switches "
            f"a multiple of sockets ({sockets}); 0 puts GPUs and cards straight on the sockets"
        )
    if not switches and gpus > 1 and gpus % sockets:
        return f"sockets is {sockets}; gpus ({gpus}) must be a multiple of it"
    return None
