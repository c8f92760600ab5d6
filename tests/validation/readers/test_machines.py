import pytest

from ringside.sim.record import Record, RecordError
from ringside.topologies.machine import box_of, machine, machines
from ringside.validation.machines import domains, gpus_in, infer_machine, other_gpus, with_nodes
from ringside.validation.published import published


def record(gpu: str, ranks: int = 8, nodes: int = 1, cluster: str = "") -> Record:
    return Record(
        source="test", cluster=cluster or gpu, library="nccl", collective="all_reduce", num_nodes=nodes,
        ranks=ranks, nbytes=1024, time_s=1e-5, statistic="mean", fingerprint={"gpu": gpu} if gpu else {},
    )  # fmt: skip


def test_machines_that_are_alike_inside_name_one_of_the_catalogue_with_the_same_gpus() -> None:
    for name in machines():
        assert machine(name).inside == machine(machine(name).inside).inside
        assert len({gpus_in(mate) for mate in box_of(name)}) == 1
    assert box_of("aws-p5") == [
        *("dgx-h100", "aws-p5", "aws-p5en", "azure-ndv5-h200", "azure-ndv5", "dgx-h200", "gcp-a3mega")
    ]


@pytest.mark.parametrize(
    ("gpu", "ranks", "nodes", "machine"),
    [
        ("NVIDIA H100 80GB HBM3", 8, 1, "dgx-h100"),
        ("NVIDIA H200", 8, 1, "dgx-h200"),
        ("NVIDIA GB200", 144, 36, "gb200-nvl72"),
        ("NVIDIA A100-SXM4-40GB", 8, 1, "dgx-a100"),
        ("NVIDIA A100-SXM4-80GB", 8, 1, "dgx-a100"),
        ("NVIDIA B200", 2, 1, "dgx-b200"),
        ("NVIDIA GH200 120GB", 32, 8, "alps-gh200"),
        ("Tesla V100-SXM3-32GB", 12, 1, "dgx2-v100"),
        ("NVIDIA GeForce RTX 4090", 8, 1, "rtx4090-pcie"),
        ("NVIDIA A100-PCIE-40GB", 8, 2, "a100-pcie4"),
    ],
)
def test_the_one_machine_that_fits_is_taken(gpu: str, ranks: int, nodes: int, machine: str) -> None:
    assert infer_machine([record(gpu, ranks, nodes)])[0] == machine


@pytest.mark.parametrize(
    ("gpu", "ranks", "nodes", "complaint"),
    [
        ("NVIDIA H100 80GB HBM3", 4, 1, "4 a node, fits aws-p5, .*kestrel-h100; choose one with --cluster"),
        (
            "NVIDIA H100 80GB HBM3",
            16,
            2,
            "8 a node on 2 nodes, fits aws-p5, azure-ndv5, dgx-h100, gcp-a3mega;",
        ),
        ("NVIDIA H200", 16, 2, "fits aws-p5en, azure-ndv5-h200, dgx-h200;"),
        ("Tesla V100-SXM2-16GB", 8, 2, "fits abci-v100, dgx1-v100, summit-v100;"),
        ("NVIDIA GH200 120GB", 8, 1, "fits no named machine"),
        ("NVIDIA GB200", 8, 0, None),
        ("NVIDIA H100", 8, 0, "on an unknown number of nodes, fits"),
        ("NVIDIA GeForce RTX 4070", 2, 1, "no named machine has NVIDIA GeForce RTX 4070; add --cluster"),
        ("NVIDIA A100 + NVIDIA H100", 2, 1, "several GPUs"),
        ("", 2, 1, "unknown cluster: the measurements"),
    ],
)
def test_where_several_fit_or_none_the_cluster_is_asked_for(
    gpu: str, ranks: int, nodes: int, complaint: str | None
) -> None:
    if complaint is None:
        assert infer_machine([record(gpu, ranks, nodes)])[0] == "gb200-nvl72"
        return
    with pytest.raises(RecordError, match=complaint):
        infer_machine([record(gpu, ranks, nodes, cluster="somewhere")])


@pytest.mark.parametrize(
    ("machine", "nodes", "ranks", "counted"),
    [
        *[
            ("gb200-nvl72", hosts, 4 * hosts, racks)
            for hosts, racks in ((1, 1), (4, 1), (18, 1), (36, 2), (360, 20))
        ],
        *[("gb200-nvl72", racks, 72 * racks, racks) for racks in (1, 2, 20)],  # as NCCL counts
        ("gb200-nvl72", 19, 76, 2),
        ("dgx-h100", 4, 32, 4),
    ],
)
def test_hosts_of_one_nvlink_domain_are_one_machine(
    machine: str, nodes: int, ranks: int, counted: int
) -> None:
    assert domains(machine, nodes, ranks) == counted
    assert with_nodes(f"{machine}:3", nodes, ranks) == f"{machine}:{counted}"


def test_a_file_says_how_many_hosts_share_its_nvlinks(tmp_path) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text("machine: nvlink_switch\ngpu: b200\ngpus: 8\nsockets: 2\nnodes: 3\nnccl: {hosts: 2}\n")
    assert with_nodes(str(file), 4, 16) == f"{file}:2"


def test_published_records_name_their_machine_and_have_its_gpus() -> None:
    records = published()
    for cluster in {r.cluster for r in records}:
        mine = [r for r in records if r.cluster == cluster]
        assert infer_machine(mine) == (cluster, "which the records name")
        assert other_gpus(mine, f"{cluster}:2") == []


def test_other_gpus_than_the_clusters_are_named() -> None:
    assert other_gpus([record("NVIDIA GeForce RTX 4070")], "dgx-h100:1") == ["NVIDIA GeForce RTX 4070"]
    assert other_gpus([record("NVIDIA GeForce RTX 4070")], "star:2") == []
    assert other_gpus([record("")], "dgx-h100:1") == []
