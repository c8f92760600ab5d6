"""The machine in a table that ``nvidia-smi topo -m`` prints.

The table shows how devices are connected, without bandwidths: NVLinks as counts, PCIe as classes. GPUs and
cards that meet at a PCIe switch (PIX, PXB; PSB on one board) share a switch. Devices that meet at a host
bridge or inside a NUMA node (PHB, NODE) share a CPU, as do GPUs with the same NUMA (or CPU) affinity unless
a cell separates them; GPUs without any of these share one CPU. Every two CPUs are joined (SYS, formerly
SOC). No GPU has more than 18 NVLinks: if a GPU's counts add up to more, they mean NVSwitch with as many
links as the largest count; otherwise links are direct.
"""

import re
from dataclasses import dataclass
from itertools import combinations, count

import networkx as nx

from ringside.topologies.chassis import clustered
from ringside.topologies.graph import Node, Topology, TopologyError, add_cable
from ringside.topologies.hardware import nvlink as nvlink_of_one
from ringside.topologies.units import BytesPerSecond, Seconds

MAX_NVLINKS = 18

_GENERATIONS = {13: 90, 7: 80, 1: 70, 0: 80}
"""Compute capability by the least number of NVLinks: 18 from H100 on, 12 on A100 (A800 and H800 both
have 8), 6 on V100. GPUs without NVLinks are treated as A100."""

_BRIDGED = 86
"""Compute capability of GPUs that four NVLinks join in pairs, such as RTX 3090, A6000 and A40."""

_CLASSES = ("PSB", "PIX", "PXB", "PHB", "NODE", "SYS", "SOC")
_SWITCHED = {"PSB", "PIX", "PXB"}
_SAME_CPU = {*_SWITCHED, "PHB", "NODE"}
_OF_P2P = ("OK", "CNS", "GNS", "TNS", "NS", "DR", "U")
_ADVICE = "paste the unmodified output of nvidia-smi topo -m"
_ESCAPES = re.compile(r"\x1b[\[(][0-9;?]*[A-Za-z]|(?<!\w)\[[0-9;]+m|\[0?m|\ufeff")
_BEFORE = 5
"""The device's name is among this many first words of a line, after quotation marks or affinity."""
_AFFINITY = ("CPU", "CPUAffinity", "NUMA", "Affinity")


@dataclass(frozen=True, slots=True)
class TopoMatrix:
    """A parsed table: devices in order, GPUs first; the cell of each pair; the affinity of GPUs."""

    gpus: list[str]
    cards: list[str]
    shared: dict[tuple[str, str], str]
    affinity: dict[str, str]


def is_matrix(text: str) -> bool:
    """Return whether a text contains such a table."""
    return _header(_lines(text)) is not None


def topology(
    text: str,
    nodes: int = 1,
    nvlink: BytesPerSecond | None = None,
    nic: BytesPerSecond = 25e9,
    pcie: BytesPerSecond = 24e9,
    socket: BytesPerSecond = 10e9,
    nvlink_latency: Seconds = 0.6e-6,
    pcie_latency: Seconds = 1e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """Join ``nodes`` machines of the kind in the table, with the bandwidths that the table lacks.

    ``nvlink`` is the total of the GPU with most links, by default from the data sheet of the generation
    in `compute_capability`. The others default to a 200 Gb/s card, PCIe Gen 4 x16 and NCCL's
    10 GB/s between Intel sockets.
    """
    matrix = read(text)
    links, capability = nvlinks(matrix), compute_capability(matrix)
    if nvlink is not None and not links:
        raise TopologyError("nvlink is given, but the table shows no NVLinks; leave it out")
    one = machine(matrix, nvlink / links if nvlink is not None else nvlink_of_one(capability), pcie, socket)
    one.graph["compute_capability"] = capability
    return clustered(
        one,
        nodes,
        dict.fromkeys(matrix.cards, nic),
        nvlink_latency=nvlink_latency,
        pcie_latency=pcie_latency,
        network_latency=network_latency,
    )


def machine(matrix: TopoMatrix, nvlink: float, pcie: float, socket: float) -> Topology:
    """Build one machine, without latencies and network; ``nvlink`` is that of one link, all in bytes/s."""
    graph: Topology = nx.DiGraph(name="nvidia-smi-topology")
    for rank, gpu in enumerate(matrix.gpus):
        graph.add_node(gpu, kind="gpu", rank=rank, tier=0)
    _add_nvlinks(graph, matrix, nvlink)
    _add_pcie(graph, matrix, pcie, socket)
    return graph


def nvlinks(matrix: TopoMatrix) -> int:
    """Return the number of NVLinks of the GPU that has most."""
    together = max if _switched(matrix) else sum
    return max(together((0, *_counts(matrix, gpu).values())) for gpu in matrix.gpus)


def compute_capability(matrix: TopoMatrix) -> int:
    """Infer the GPUs' generation from the number of NVLinks: the table names no GPU."""
    links = nvlinks(matrix)
    if links == 4 and "NV4" in matrix.shared.values():
        return _BRIDGED
    return _GENERATIONS[max(least for least in _GENERATIONS if least <= links)]


def _counts(matrix: TopoMatrix, gpu: str) -> dict[str, int]:
    """Return the numbers of NVLinks of a GPU to every other GPU."""
    cells = {b: cell for (a, b), cell in matrix.shared.items() if a == gpu and cell.startswith("NV")}
    return {other: int(cell[2:]) for other, cell in cells.items()}


def _switched(matrix: TopoMatrix) -> bool:
    return any(sum(_counts(matrix, gpu).values()) > MAX_NVLINKS for gpu in matrix.gpus)


def read(text: str) -> TopoMatrix:
    """Parse the table in a text; raise `TopologyError` with the line of an error.

    Text around the table is ignored. Rows may be cut off if one cell is left for each pair with a GPU: the
    cells of A to B and of B to A are equal.
    """
    lines = _lines(text)
    start = _header(lines)
    if start is None:
        raise TopologyError(f"no line that begins with GPU0; {_ADVICE}")
    columns = _columns(lines[start])
    gpus = [name.lower() for name in columns if re.fullmatch(r"GPU\d+", name)]
    cards = [f"nic{index}" for index in range(len(columns) - len(gpus))]
    names = dict(zip(columns, [*gpus, *cards], strict=True))
    if len(names) < len(columns) or any(name.startswith("GPU") for name in columns[len(gpus) :]):
        raise _error(start, "the columns are not GPUs, then cards, each once")
    matrix = TopoMatrix(gpus, cards, {}, {})
    rows = _rows(lines, start, names)
    for column, (index, cells) in rows.items():
        _add_row(matrix, names, column, index, cells)
    for a, b in combinations(names, 2):
        _agree(matrix, names, a, b, rows.get(a, (start, []))[0])
    return matrix


def _columns(line: str) -> list[str]:
    """Return the devices that a header names, without the affinity columns after them."""
    tokens = line.split()
    tokens = tokens[tokens.index("GPU0") :]
    ends = [index for index, token in enumerate(tokens) if token in _AFFINITY]
    return tokens[: ends[0]] if ends else tokens


def _rows(lines: list[str], start: int, names: dict[str, str]) -> dict[str, tuple[int, list[str]]]:
    """Return each device's row, its line number and its cells, up to a second row of the same device."""
    rows: dict[str, tuple[int, list[str]]] = {}
    for index in range(start + 1, len(lines)):
        tokens = lines[index].split()
        at = next((at for at, token in enumerate(tokens[:_BEFORE]) if token in names), None)
        if at is None and re.fullmatch(r"(GPU|NIC)\d+", " ".join(tokens[:1])):
            raise _error(index, f"a row of {tokens[0]!r}, which the header does not name")
        if at is not None:
            if tokens[at] in rows:
                break
            rows[tokens[at]] = (index, tokens[at + 1 :])
    return rows


def _add_row(matrix: TopoMatrix, names: dict[str, str], column: str, index: int, cells: list[str]) -> None:
    for other, cell in zip(names, cells, strict=False):
        link = re.fullmatch(r"NV(\d{1,2})", cell)
        if cell in _OF_P2P:
            raise _error(index, f"{column} to {other} is {cell!r}, which nvidia-smi topo -p2p prints")
        if (cell == "X") != (other == column) or not (cell == "X" or link or cell in _CLASSES):
            known = "NV and a count, " + ", ".join(_CLASSES)
            raise _error(index, f"{column} to {other} is {cell!r}; allowed: {known}, X on the diagonal")
        if link and not 0 < int(link[1]) <= MAX_NVLINKS:
            raise _error(index, f"{cell} links; allowed: 1 to {MAX_NVLINKS}")
        if cell != "X":
            matrix.shared[names[column], names[other]] = cell
    cpus, *numa = cells[len(names) :] or [""]
    if cpus:
        matrix.affinity[names[column]] = numa[0] if numa and numa[0].isdecimal() else cpus


def _agree(matrix: TopoMatrix, names: dict[str, str], a: str, b: str, index: int) -> None:
    """Check that both cells of two devices agree; if one row is cut off, copy the other cell."""
    there, back = (names[a], names[b]), (names[b], names[a])
    cell = matrix.shared.get(there) or matrix.shared.get(back)
    if cell is None and names[a] in matrix.cards:
        return
    if cell is None:
        raise _error(index, f"the table is cut off: no cell says how {a} and {b} are connected")
    if matrix.shared.setdefault(there, cell) != matrix.shared.setdefault(back, cell):
        one, other = matrix.shared[there], matrix.shared[back]
        raise _error(index, f"{there[0]} to {there[1]} is {one}, but {there[1]} to {there[0]} is {other}")


def _add_nvlinks(machine: Topology, matrix: TopoMatrix, link: float) -> None:
    of_gpu = {gpu: _counts(matrix, gpu) for gpu in matrix.gpus}
    if _switched(matrix):
        machine.add_node("nvswitch", kind="nvswitch", tier=1)
        for gpu in filter(of_gpu.get, matrix.gpus):
            bandwidth = max(of_gpu[gpu].values()) * link
            add_cable(machine, gpu, "nvswitch", kind="nvlink", bandwidth=bandwidth, latency=0)
        return
    for gpu, counts in of_gpu.items():
        for other, number in counts.items():
            machine.add_edge(gpu, other, kind="nvlink", bandwidth=number * link, latency=0.0)


def _add_pcie(machine: Topology, matrix: TopoMatrix, bandwidth: float, socket: float) -> None:
    placed = {device for pair, cell in matrix.shared.items() if cell in _CLASSES for device in pair}
    sockets = _groups(matrix, _SAME_CPU, dict.fromkeys(set(matrix.gpus) - placed, "") | matrix.affinity)
    slots = count()
    for index, devices in enumerate(sockets):
        cpu = f"cpu{index}"
        machine.add_node(cpu, kind="cpu", tier=2)
        for other in range(index):
            add_cable(machine, f"cpu{other}", cpu, kind="upi", bandwidth=socket, latency=0)
        for group in _groups(matrix, _SWITCHED, {}):
            if group[0] in devices:
                above = cpu if len(group) == 1 else f"pcie{next(slots)}"
                _add_slot(machine, group, above, cpu, bandwidth)


def _add_slot(machine: Topology, group: list[Node], above: Node, cpu: Node, bandwidth: float) -> None:
    """Add devices on a PCIe switch of a CPU; a device without a shared switch is on the CPU itself."""
    if above != cpu:
        machine.add_node(above, kind="pcie", tier=1)
        add_cable(machine, above, cpu, kind="pcie", bandwidth=bandwidth, latency=0)
    for device in group:
        if device not in machine:
            machine.add_node(device, kind="nic", tier=3)
        add_cable(machine, device, above, kind="pcie", bandwidth=bandwidth, latency=0)


def _groups(matrix: TopoMatrix, classes: set[str], affinity: dict[str, str]) -> list[list[Node]]:
    """Group the devices connected by some classes, or by the same affinity, in the table's order."""
    devices = [*matrix.gpus, *matrix.cards]
    together: nx.Graph[Node] = nx.Graph()
    together.add_nodes_from(devices)
    together.add_edges_from(pair for pair, cell in matrix.shared.items() if cell in classes)
    far = {pair for pair, cell in matrix.shared.items() if cell in ("SYS", "SOC")}
    alike = (pair for pair in combinations(affinity, 2) if affinity[pair[0]] == affinity[pair[1]])
    together.add_edges_from(pair for pair in alike if pair not in far)
    return [sorted(group, key=devices.index) for group in nx.connected_components(together)]


def _lines(text: str) -> list[str]:
    return _ESCAPES.sub("", text).replace("|", " ").splitlines()


def _header(lines: list[str]) -> int | None:
    """Return the index of the line that names the devices: GPU0 and no cell after it."""
    for index, line in enumerate(lines):
        tokens = line.split()
        if "GPU0" in tokens[:_BEFORE]:
            after = tokens[tokens.index("GPU0") + 1 :][:1]
            if not after or after[0] in _AFFINITY or re.fullmatch(r"[A-Za-z][\w.:-]*\d\w*", after[0]):
                return index
    return None


def _error(index: int, message: str) -> TopologyError:
    return TopologyError(f"nvidia-smi table, line {index + 1}: {message}; {_ADVICE}")
