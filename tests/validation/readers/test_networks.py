"""What the NET lines of a log, and the names of its hosts, tell of the network and of the machine."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from ringside.sim.record import Record, RecordError
from ringside.validation.machines import infer_machine
from ringside.validation.measurements import read_measurements
from ringside.validation.readers import read

TWO_NODES = (Path(__file__).parents[1] / "data" / "v2.13_two_nodes.log").read_text()
CARDS = " ".join(f"[{card}]mlx5_{card}:1/IB" for card in range(8))
ON_IB = (f"NET/IB : Using {CARDS} [8]mlx5_8:1/RoCE [RO]; OOB eth0:10.0.0.1<0>", "Using network IB")
ON_EFA = (
    "NET/OFI Running on p4d.24xlarge platform, Setting NCCL_TOPO_FILE environment variable to /opt/topo.xml",
    "NET/OFI Selected Provider is efa (found 4 nics)",
    "Using network AWS Libfabric",
)


def log(tmp_path: Path, lines: Sequence[str], gpu: str = "NVIDIA A100-SXM4-80GB", host: str = "node") -> Path:
    """A log of two nodes in which NCCL writes these lines before the table."""
    written = "".join(f"[1,0]<stdout>:{host}-a:3150:3150 [0] NCCL INFO {line}\n" for line in lines)
    head, table = TWO_NODES.split("[1,0]<stdout>:NCCL version")
    text = head + written + "[1,0]<stdout>:NCCL version" + table
    path = tmp_path / "job.log"
    path.write_text(text.replace("NVIDIA A100-SXM4-80GB", gpu).replace("node-", f"{host}-"))
    return path


def records(*what: object) -> tuple[Record, ...]:
    return read(log(*what)).records


@pytest.mark.parametrize(
    ("lines", "facts"),
    [
        (ON_IB, {"network": "InfiniBand", "cards": "8"}),
        (
            (
                "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.0.0.1<0>",
                "NET/IB: [0] mlx5_0:uverbs0:1/RoCE provider=Mlx5 speed=200000 context=0x1 pciPath=/sys ar=0",
            ),
            {"network": "RoCE", "cards": "2", "card_gbps": "200"},
        ),
        (ON_EFA, {"network": "EFA", "cloud": "AWS", "instance": "p4d.24xlarge"}),
        (
            ("NET/OFI Selected Provider is cxi (found 4 nics)", "Using network AWS Libfabric"),
            {"network": "Slingshot"},
        ),
        (
            ("NET/IB : No device found.", "NET/Socket : Using [0]eth0:10.0.0.1<0>", "Using network Socket"),
            {"network": "sockets"},
        ),
        (("NET/FasTrak plugin initialized", "Using network FasTrak"), {"network": "FasTrak", "cloud": "GCP"}),
        (("Using network GPUDirectTCPX_v7",), {"network": "GPUDirect-TCPX"}),
        (
            ("NCCL_TOPO_FILE set by environment to /opt/microsoft/ndv4-topo.xml", *ON_IB),
            {"network": "InfiniBand", "cards": "8", "cloud": "Azure", "instance": "ndv4"},
        ),
    ],
)
def test_lines_of_the_network_are_in_the_fingerprint(
    lines: Sequence[str], facts: dict[str, str], tmp_path: Path
) -> None:
    names = {"network", "cards", "card_gbps", "cloud", "instance"}
    for record in records(tmp_path, lines):
        assert {key: text for key, text in record.fingerprint.items() if key in names} == facts


@pytest.mark.parametrize(
    ("lines", "gpu", "host", "machine"),
    [
        (ON_EFA, "NVIDIA A100-SXM4-40GB", "ip-10-0-1-7", "aws-p4d"),
        ((), "NVIDIA H100 80GB HBM3", "ip-10-0-1-7", "aws-p5"),
        (("NET/FasTrak plugin initialized",), "NVIDIA H100 80GB HBM3", "vm", "gcp-a3mega"),
        (
            ("NCCL_TOPO_FILE set by environment to /opt/microsoft/ndv5-topo.xml",),
            "NVIDIA H100 80GB HBM3", "vm", "azure-ndv5",
        ),
    ],
)  # fmt: skip
def test_an_instance_of_a_cloud_is_its_own_machine(
    lines: Sequence[str], gpu: str, host: str, machine: str, tmp_path: Path
) -> None:
    assert infer_machine(records(tmp_path, lines, gpu, host))[0] == machine


def test_an_instance_that_the_catalogue_lacks_is_refused_with_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"instance of AWS with Tesla V100.*--cluster .*dgx1-v100"):
        infer_machine(records(tmp_path, (), "Tesla V100-SXM2-32GB", "ip-10-0-1-7"))


def test_cards_that_the_machine_does_not_have_are_told(tmp_path: Path) -> None:
    twelve = " ".join(f"[{card}]mlx5_{card}:1/IB" for card in range(12))
    for cards, told in ((twelve, "lists 12 cards of InfiniBand a node and dgx-a100 has 8"), (CARDS, "")):
        measured = read_measurements([log(tmp_path, (f"NET/IB : Using {cards} [RO]",))], "dgx-a100", {})
        assert told in measured.warning
        assert bool(told) == bool(measured.warning)
        assert measured.network.startswith("network, by the log's lines: InfiniBand, ")
