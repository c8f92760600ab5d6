"""The elements of an XML file, each with its line number for error messages.

It uses the standard library's expat: ElementTree keeps no line numbers, and lxml, which does, would be one
more compiled dependency.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from ringside.topologies import hardware
from ringside.topologies.graph import TopologyError

MAX_DEPTH = 64
"""Limit on nested elements; a machine nests a dozen."""


@dataclass(frozen=True, slots=True)
class XmlSource:
    """A kind of file: its name in errors, the advice that they give, and their class."""

    what: str
    advice: str
    error: type[ValueError]

    def complaint(self, line: int, message: str) -> ValueError:
        """Return an error about a line."""
        return self.error(f"{self.what}, line {line}: {message}; {self.advice}")


@dataclass(eq=False, slots=True)
class Element:
    """One element; its accessors raise the source's error if an attribute is missing or invalid."""

    source: XmlSource
    tag: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)

    def complaint(self, message: str) -> ValueError:
        """Return an error about this element."""
        return self.source.complaint(self.line, message)

    def below(self, tag: str) -> Iterator["Element"]:
        """Yield every element with that tag at any depth below this one, in the file's order."""
        for child in self.children:
            if child.tag == tag:
                yield child
            yield from child.below(tag)

    def text(self, name: str) -> str:
        """Return an attribute that must be present."""
        if name not in self.attributes:
            raise self.complaint(f"{self.tag} has no {name}")
        return self.attributes[name]

    def number(self, name: str) -> float:
        """Return an attribute that must be a number, 0 or more."""
        text = self.text(name)
        try:
            number = float(text)
        except ValueError:
            raise self.complaint(f"{name} is {text!r}, not a number") from None
        if not 0 <= number < float("inf"):
            raise self.complaint(f"{name} is {text!r}; allowed: 0 or more")
        return number

    def count(self, name: str) -> int:
        """Return an attribute that must be a whole number, 0 or more."""
        number = self.number(name)
        if number != int(number):
            raise self.complaint(f"{name} is {self.attributes[name]!r}, not a whole number")
        return int(number)

    def one_of(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return an attribute that must be one of the ``allowed``."""
        if self.text(name) not in allowed:
            raise self.complaint(f"{name} is {self.text(name)!r}; allowed: {', '.join(allowed)}")
        return self.text(name)


def parse(text: str, source: XmlSource, root: str) -> Element:
    """Parse a text into its root element, whose tag must be ``root``."""
    parser = expat.ParserCreate()
    open_elements = [Element(source, "", {}, 0)]

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(source, tag, attributes, parser.CurrentLineNumber)
        if len(open_elements) > MAX_DEPTH:
            raise element.complaint(f"more than {MAX_DEPTH} elements inside one another")
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(tag: str) -> None:
        open_elements.pop()

    def doctype(*_: object) -> None:
        # it can declare entities, whose expansion is unbounded
        raise source.complaint(parser.CurrentLineNumber, "a document type, which no such file needs")

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise source.complaint(error.lineno, f"not XML: {expat.errors.messages[error.code]}") from None
    element = open_elements[0].children[0]
    if element.tag != root:
        raise element.complaint(f"the root is {element.tag!r}, not {root!r}")
    return element


SOURCE = XmlSource("topology file", "use the unmodified file that NCCL_TOPO_DUMP_FILE writes", TopologyError)

UNKNOWN_PORT = 10e9 / 8
"""Bytes/s that NCCL assumes for a card of unknown speed."""

_VENDORS = {
    "GenuineIntel": "intel",
    "AuthenticAMD": "amd",
    "CentaurHauls": "zhaoxin",
    "  Shanghai  ": "zhaoxin",
}
_ARCHITECTURES = {"arm64": "arm", "aarch64": "arm", "ppc64": "power", "ppc64le": "power", "x86_64": "x86"}
_SOCKET_GBPS = {"amd": 16, "arm": 6, "power": 32, "zhaoxin": 6, "other": 5000}
_INTEL_SOCKET_GBPS = {0xCF: 40, 0x8F: 22, 0x55: 10, 0: 6}
"""NCCL's GB/s from CPU to CPU, Intel's by the first model number; other makers' are not limited."""


def elements(text: str) -> Element:
    """Parse a topology file into its root element; raise `TopologyError` if it is not such a file."""
    root = parse(text, SOURCE, "system")
    if not any(child.tag == "cpu" for child in root.children):
        raise root.complaint("no cpu element")
    return root


def gpus(root: Element) -> list[Element]:
    """Return the GPUs in use, by rank if the file has ranks; GPUs without a rank are then unused."""
    elements = list(root.below("gpu"))
    ranked = [gpu for gpu in elements if "rank" in gpu.attributes]
    if not ranked:
        return elements
    seen: set[int] = set()
    for gpu in ranked:
        rank = gpu.count("rank")
        if rank in seen:
            raise gpu.complaint(f"a second gpu has rank {rank}")
        seen.add(rank)
    return sorted(ranked, key=lambda gpu: gpu.count("rank"))


def nets(root: Element) -> list[Element]:
    """Return the network ports by number, each once; NCCL does not use ports without ``dev``."""
    ports: dict[tuple[str, int], Element] = {}
    for cpu in root.below("cpu"):
        host = cpu.attributes.get("host_hash", "")
        for net in cpu.below("net"):
            if "dev" in net.attributes and net.attributes.get("net", "1") != "0":
                ports.setdefault((host, net.count("dev")), net)
    return sorted(ports.values(), key=lambda net: net.count("dev"))


def busid(element: Element, name: str = "busid") -> int:
    """Parse a PCI address with any number of digits into a number."""
    text = element.text(name)
    digits = re.sub(r"[:.]", "", text)
    if not re.fullmatch(r"[0-9a-fA-F]{1,16}", digits):
        raise element.complaint(f"{name} is {text!r}; write for example 0000:0e:00.0")
    return int(digits, 16)


def is_bridge(pci: Element) -> bool:
    """Return whether NCCL treats a PCI device without GPU and card as a switch."""
    kind = pci.attributes.get("class", "0x060400")
    return not kind.startswith(("0x03", "0x02", "0x0680"))


def pcie(pci: Element) -> float:
    """Return bytes/s of a device's PCIe link; Gen 3 and 16 lanes by default."""
    speed = re.match(r"\s*([\d.]+) *GT/s", pci.attributes.get("link_speed", ""))
    width = pci.attributes.get("link_width", "")
    lanes = int(width) if width.isdecimal() and int(width) else 16
    try:
        return hardware.pcie(float(speed[1]) if speed else 0.0, lanes)
    except ValueError:
        raise pci.complaint(f"link_speed is {pci.attributes['link_speed']!r}") from None


def port(net: Element) -> float:
    """Return bytes/s of a network port."""
    unknown = net.attributes.get("speed", "0").startswith("-")
    megabits = 0.0 if unknown or "speed" not in net.attributes else net.number("speed")
    return megabits * 1e6 / 8 or UNKNOWN_PORT


def maker(cpu: Element) -> str:
    """Return the maker of a CPU: ``intel``, ``amd``, ``arm``, ``power``, ``zhaoxin``, or ``other``."""
    architecture = _ARCHITECTURES[cpu.one_of("arch", tuple(_ARCHITECTURES))]
    return _VENDORS.get(cpu.text("vendor"), "other") if architecture == "x86" else architecture


def socket(cpu: Element) -> float:
    """Return NCCL's bytes/s from a CPU to another of the same kind."""
    who = maker(cpu)
    if who == "zhaoxin" and (cpu.count("familyid"), cpu.count("modelid")) == (7, 0x5B):
        return 9e9
    if who != "intel":
        return _SOCKET_GBPS[who] * 1e9
    model = cpu.count("modelid") if cpu.count("familyid") == 6 else 0
    return _INTEL_SOCKET_GBPS[max(first for first in _INTEL_SOCKET_GBPS if first <= model)] * 1e9
