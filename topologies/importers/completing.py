"""Topology files without GPUs, as clouds ship them: NCCL adds the GPUs and cards that it detects at start.

Such a file gives the slots of devices, not the devices. A machine of the catalogue supplies them: its GPUs,
NVLinks and cards are put into the file's slots in the order of their PCI addresses.
"""

from collections.abc import Iterable

from ringside.topologies import hardware
from ringside.topologies.graph import Topology, ranks
from ringside.topologies.importers.elements import Element, busid, pcie
from ringside.topologies.machine import machine, nvidia_machines

_CAPABILITIES = {
    **dict.fromkeys(("0x1db1", "0x1db4", "0x1db5", "0x1db6", "0x1db8"), 70),
    **dict.fromkeys(("0x20b0", "0x20b2", "0x20b5", "0x20f1", "0x20f3"), 80),
    **dict.fromkeys(("0x2204", "0x2230", "0x2236", "0x2237"), 86),
    **dict.fromkeys(("0x2684", "0x26b5", "0x26b9"), 89),
    **dict.fromkeys(("0x2322", "0x2324", "0x2329", "0x2330", "0x2331", "0x2335", "0x2342"), 90),
    **dict.fromkeys(("0x2901", "0x2941"), 100),
}
"""Compute capability by PCI device: V100; A100, A800; RTX 3090, A6000, A10, A10G; RTX 4090, L40, L40S;
H800 and H100 PCIe, H800, H20, H100, H200, GH200; B200, GB200 (pci-ids.ucw.cz, vendor 10de)."""


def places(root: Element, first: str) -> list[Element]:
    """Return the PCI devices of a class that contain neither gpu nor nic, by address."""
    devices = [pci for pci in root.below("pci") if pci.attributes.get("class", "").startswith(first)]
    empty = [pci for pci in devices if not any(child.tag in ("gpu", "nic") for child in pci.children)]
    return sorted(empty, key=busid)


def refusal(root: Element) -> str:
    """Return the error for a file without GPUs, which says how to complete it."""
    gpus, cards = places(root, "0x03"), places(root, "0x02")
    if not gpus:
        return "no gpu element, so there is no rank"
    alike = ", ".join(suggestions(gpus, cards))
    return (
        f"no gpu element: the file gives the places of {len(gpus)} GPUs and {len(cards)} cards, and NCCL "
        "adds the devices that it detects; name the machine that has them with --set gpus=NAME"
        + (f" ({alike} would fit), or use that machine as the cluster" if alike else "")
    )


def suggestions(gpus: list[Element], cards: list[Element]) -> list[str]:
    """Return the catalogue's machines with as many GPUs of this generation, and as many cards if any do."""
    known = {_CAPABILITIES.get(gpu.attributes.get("device", "")) for gpu in gpus} - {None}
    slot = max((pcie(gpu) for gpu in gpus), default=0.0)
    names: dict[bool, list[str]] = {True: [], False: []}
    for name in nvidia_machines():
        one = machine(name)(1)
        alike = one.graph["compute_capability"] in known if known else _slot(one) == slot
        if alike and len(ranks(one)) == len(gpus):
            names[len(_of_kind(one, "nic")) == len(cards)].append(name)
    return names[True] or names[False]


def complete(root: Element, name: str) -> None:
    """Put a catalogue machine's GPUs and cards into the file's slots."""
    gpus, cards = places(root, "0x03"), places(root, "0x02")
    if name not in (known := nvidia_machines()):
        raise root.complaint(f"{name!r} is not a machine with NVIDIA GPUs; write one of {', '.join(known)}")
    one = machine(name)(1)
    capability, there = one.graph["compute_capability"], ranks(one)
    if len(there) != len(gpus):
        raise root.complaint(
            f"places of {len(gpus)} GPUs without a gpu element, but {name} has {len(there)} GPUs"
        )
    for index, (pci, gpu) in enumerate(zip(gpus, there, strict=True)):
        node = _child(pci, "gpu", dev=index, sm=capability, rank=index, gdr=1)
        for peer, count in _nvlinks(one, gpu, hardware.nvlink(capability)):
            place = gpus[there.index(peer)] if peer in there else None
            target = place.text("busid") if place else "ffff:ff:ff.0"
            _child(node, "nvlink", target=target, count=count, tclass="0x030200" if place else "0x068000")
    ports = [data["bandwidth"] for data in _ports(machine(name)(2))]
    for index, pci in enumerate(cards if ports else ()):
        nic = _child(pci, "nic")
        speed = round(ports[0] * 8 / 1e6)
        _child(nic, "net", name=f"nic{index}", dev=index, speed=speed, port=1, guid=f"{index:#x}", gdr=1)


def _nvlinks(machine: Topology, gpu: str, link: float) -> Iterable[tuple[str, int]]:
    for _, peer, data in machine.out_edges(gpu, data=True):
        if data["kind"] == "nvlink":
            yield peer, round(data["bandwidth"] / link)


def _ports(two: Topology) -> list[dict[str, float]]:
    """Return the links from the first machine's cards to the network."""
    return [data for a, _, data in two.edges(data=True) if data["kind"] == "ib" and a.startswith("node0/")]


def _of_kind(machine: Topology, kind: str) -> list[str]:
    return [node for node, data in machine.nodes(data=True) if data["kind"] == kind]


def _slot(machine: Topology) -> float:
    gpu = ranks(machine)[0]
    return max(
        (d["bandwidth"] for *_, d in machine.out_edges(gpu, data=True) if d["kind"] == "pcie"), default=0
    )


def _child(parent: Element, tag: str, **attributes: object) -> Element:
    made = Element(parent.source, tag, {key: str(value) for key, value in attributes.items()}, parent.line)
    parent.children.append(made)
    return made
