from pathlib import Path
from typing import Any

import pytest

from ringside.sim.libraries.nccl import SYSTEMS, Settings
from ringside.sim.libraries.nccl.cluster import communicator_of, is_machine, machine
from ringside.sim.libraries.nccl.files.topo_file import file_kind
from ringside.topologies import load, ranks

FILES = Path(__file__).parent / "data" / "files"
GB = 1e9

PAIRS = """\
        GPU0 GPU1 GPU2 GPU3 NIC0 CPU Affinity
GPU0    X    NV4  SYS  SYS  NODE 0-15
GPU1    NV4  X    SYS  SYS  NODE 0-15
GPU2    SYS  SYS  X    NV4  SYS  16-31
GPU3    SYS  SYS  NV4  X    SYS  16-31
NIC0    NODE NODE SYS  SYS  X
"""


def communicators(cluster, values, counts, ranks, settings):
    """Return the communicator of each count of machines, or of the count in the cluster's name."""
    if counts is None:
        comm = communicator_of(cluster, values, ranks, settings)
        return {comm.nodes if comm else 1: comm}
    return {nodes: communicator_of(f"{cluster}:{nodes}", values, ranks, settings) for nodes in counts}


def switched(links: int, gpus: int = 8) -> str:
    rows = ["\t".join(["", *(f"GPU{g}" for g in range(gpus)), "CPU Affinity", "NUMA Affinity"])]
    for a in range(gpus):
        cells = [" X " if a == b else f"NV{links}" for b in range(gpus)]
        rows.append("\t".join([f"GPU{a}", *cells, "0-55", str(2 * a // gpus)]))
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("<?xml version='1.0'?>\n<!-- mine -->\n<system version='1'/>", "topology"),
        ("\ufeff<graphs version='1'/>", "graphs"),
        ("<html><body>404</body></html>", None),
        (PAIRS, "table"),
        ("$ nvidia-smi topo -m\n" + PAIRS, "table"),
        ("node1:1:2 [0] NCCL INFO Bootstrap : Using eth0", "log"),
        ("maker: star\nranks: 2\n", None),
        ("", None),
    ],
)
def test_a_file_is_known_by_what_is_in_it(text: str, kind: str | None) -> None:
    assert file_kind(text) == kind


@pytest.mark.parametrize(
    ("file", "name", "offered", "nics", "channels"),
    [
        ("aws-p4d-24xl-topo.xml", "aws-p4d", "abci-a100, aws-p4d, aws-p4de", 4, (24, 8)),
        ("az-ndv4-topo.xml", "azure-ndv4", "azure-ndv4, dgx-a100", 8, (24, 16)),
    ],
)
def test_a_clouds_file_without_gpus_is_completed_from_a_named_machine(
    file: str, name: str, offered: str, nics: int, channels: tuple[int, int]
) -> None:
    path = str(FILES / file)
    with pytest.raises(ValueError, match=rf"places of 8 GPUs and {nics} cards.*gpus=NAME \({offered} would"):
        machine(path, {})
    completed = machine(path, {"gpus": name})
    assert (completed.gpus, completed.nics, completed.nvlink) == (8, nics, 240 * GB)
    found = communicators(path, {"gpus": name}, [1, 2], None, Settings())
    assert tuple(comm.channels for comm in found.values() if comm) == channels
    assert len(ranks(load(f"{path}:2", {"gpus": name}))) == 16


@pytest.mark.parametrize(
    ("file", "values", "message"),
    [
        ("az-ndv4-topo.xml", {"gpus": "dgx2-v100"}, "places of 8 GPUs .* but dgx2-v100 has 16 GPUs"),
        ("az-ndv4-topo.xml", {"gpus": "dgx-z100"}, "'dgx-z100' is not a machine with NVIDIA GPUs"),
        ("az-ncv4-topo.xml", {"gpus": "dgx-a100"}, "places of 0 GPUs without a gpu element"),
        ("az-ncv4-topo.xml", {"latency": "1us"}, "NCCL does not use latency; allowed: nvlink, nic"),
        ("az-ncv4-graph.xml", {}, "is a graph file .*; write it after --nccl-graph"),
        ("rccl_topo_8p6l_6nic.xml", {}, "AMD GPUs joined by xGMI, on which RCCL runs"),
        ("SOURCES.md", {}, "is neither a topology file .* nor a table"),
    ],
)
def test_a_file_that_is_no_nvidia_machine_is_refused_with_the_reason(
    file: str, values: dict[str, str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        machine(str(FILES / file), values)


def test_amds_links_are_links_of_the_topology() -> None:
    graph = load(str(FILES / "rccl_topo_8p6l_6nic.xml"))
    kinds = {data["kind"] for *_, data in graph.edges(data=True)}
    assert "xgmi" in kinds
    assert "nvlink" not in kinds


def test_what_a_file_says_can_be_changed() -> None:
    path = str(FILES / "h800-topo.xml")
    changed = machine(path, {"nvlink": "450GB/s", "nic": "100Gb/s", "pcie": "24GB/s", "socket": "10GB/s"})
    assert (changed.nvlink, changed.nic) == (pytest.approx(18 * 20.6 * GB), 12.5 * GB)
    assert changed.name.startswith("h800-topo with nvlink 450GB/s")
    one, two = (
        communicators(path, {"nvlink": "450GB/s", "nic": "100Gb/s"}, [nodes], None, Settings())[nodes]
        for nodes in (1, 2)
    )
    assert one
    assert two
    assert one.graphs.ring == communicators("dgx-h100", {}, None, None, Settings())[1].graphs.ring
    assert two.graphs.ring.bw_inter == 12 * GB


def test_a_path_may_hold_a_colon(tmp_path: Path) -> None:
    folder = tmp_path / "2026-11-21T10:30:00"
    folder.mkdir()
    path = folder / "topo:3.xml"
    path.write_text((FILES / "h800-topo.xml").read_text())
    assert list(communicators(str(path), {}, None, None, Settings())) == [1]
    assert list(communicators(f"{path}:2", {}, None, None, Settings())) == [2]
    assert len(ranks(load(str(path)))) == 8
    assert len(ranks(load(f"{path}:2"))) == 16
    assert is_machine(str(path))
    assert not is_machine(str(tmp_path))
    with pytest.raises(ValueError, match="'two' is not a count"):
        communicators("dgx-h100:two", {}, None, None, Settings())


@pytest.mark.parametrize(
    ("text", "capability", "nvlink", "channels", "like"),
    [
        (switched(18), 90, 370.8, 24, "dgx-h100"),
        (switched(12), 80, 240, 24, "dgx-a100"),
        (switched(8), 80, 160, 16, "dgx-a100"),
        (switched(6), 70, 120, 12, "dgx1-v100"),
        (PAIRS, 86, 48, 4, "a100-pcie4"),
        (PAIRS.replace("NV4", "PIX"), 80, 0, 2, "a100-pcie4"),
    ],
)
def test_a_tables_nvlinks_tell_the_generation(
    text: str, capability: int, nvlink: float, channels: int, like: str, written: Any
) -> None:
    path = written(text, "table.txt")
    found = machine(str(path), {})
    assert (found.compute_capability, found.nvlink) == (capability, pytest.approx(nvlink * GB))
    assert f"those of {like}; --set nic" in found.note
    assert (found.pcie, found.cpu) == (SYSTEMS[like].pcie, SYSTEMS[like].cpu)
    comm = communicators(str(path), {}, None, None, Settings())[1]
    assert comm
    assert comm.channels == channels


def test_a_table_of_a_dgx_h100_with_its_cards_is_a_dgx_h100(written: Any) -> None:
    names = [*(f"GPU{g}" for g in range(8)), *(f"NIC{g}" for g in range(8))]

    def cell(a: int, b: int) -> str:
        gpus = max(a, b) < 8
        return "X" if a == b else "NV18" if gpus else "PIX" if a % 8 == b % 8 else "SYS"

    rows = ["  ".join([name, *(cell(a, b) for b in range(16))]) for a, name in enumerate(names)]
    path = written("\n".join(["  ".join(names), *rows]), "table.txt")
    found = communicators(str(path), {}, [1, 2], None, Settings())
    named = communicators("dgx-h100", {}, [1, 2], None, Settings())
    for nodes, comm in found.items():
        other = named[nodes]
        assert comm
        assert other
        assert comm.graphs.ring == other.graphs.ring
        assert comm.graphs.tree == other.graphs.tree
