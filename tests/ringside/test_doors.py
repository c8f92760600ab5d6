"""The same question has the same answer by every command and function, to the last bit."""

from dataclasses import replace
from pathlib import Path

import pytest

from ringside.sim.collective import Collective
from ringside.sim.libraries.find import LIBRARIES, Options, default_library, find_library
from ringside.sim.parameters import Parameters
from ringside.sim.predict import predict
from ringside.sim.program.groups import TimedGroup, process_group
from ringside.sim.record import write
from ringside.topologies import dgx_h100, load, make, star
from ringside.topologies.file import write as write_graph
from ringside.validation.compare import compare
from tests.made_up import RECORD, calibration

M = 2**20

QUESTIONS = [
    # collective, cluster, bytes, library, algorithm, protocol, dtype
    ("all_reduce", "dgx-h100:2", M, "nccl", "auto", "auto", "float32"),
    ("sendrecv", "dgx-h100:2", M, "nccl", "auto", "auto", "float32"),
    ("all_to_all", "dgx-h100:2", 16 * M, "nccl", "auto", "auto", "float32"),
    ("all_reduce", "dgx-h100:2", 8, "nccl", "auto", "auto", "float32"),
    ("all_reduce", "dgx-h100:2", 512 * M, "nccl", "auto", "auto", "bfloat16"),
    ("all_reduce", "dgx-h100:1", 64 * M, "nccl", "ring", "simple", "float32"),
    ("all_reduce", "dgx-a100:16", 25 * M, "nccl", "auto", "auto", "float16"),
    ("all_gather", "dgx-a100:4", M, "nccl", "auto", "auto", "float32"),
    ("reduce_scatter", "dgx2-v100:2", M, "nccl", "auto", "auto", "float32"),
    ("broadcast", "a100-pcie4:2", M, "nccl", "auto", "auto", "int32"),
    ("reduce", "dgx1-v100:1", M, "nccl", "auto", "auto", "float32"),
    ("gather", "h100-1gpu:4", M, "nccl", "auto", "auto", "float32"),
    ("all_reduce", "star:8", M, "ideal", "ring", "auto", "float32"),
    ("all_reduce", "star:9", 1000, "ideal", "tree", "auto", "float32"),
    ("all_reduce", "leaf-spine:2", M, "ideal", "halving_doubling", "auto", "float64"),
    ("all_gather", "dgx-h100:2", M, "ideal", "ring", "auto", "float32"),
    ("sendrecv", "star:4", M, "ideal", "direct", "auto", "float32"),
    ("all_reduce", "star:128", 64 * M, "ideal", "ring", "auto", "float32"),
    ("all_reduce", "star:4", M, "gloo", "auto", "auto", "float32"),
    ("all_gather", "star:4", M, "gloo", "auto", "auto", "float32"),
    ("all_to_all", "star:5", M, "gloo", "auto", "auto", "float32"),
    ("sendrecv", "star:4", M, "gloo", "auto", "auto", "float32"),
    ("all_reduce", "leonardo:32", M, "mpi", "auto", "auto", "float32"),
    ("all_gather", "mare-nostrum:8", M, "mpi", "neighbor", "auto", "int32"),
    ("broadcast", "star:12", M, "mpi", "auto", "rendezvous", "float64"),
]


@pytest.fixture
def rows(json_of):
    return lambda *argv: json_of(*argv)["rows"]


def record(collective, nbytes, graph, library, algorithm, protocol, dtype):
    ranks, nodes = row_ranks(graph), graph.graph.get("nodes", 1)
    of = {"library": library, "algorithm": algorithm, "protocol": protocol, "dtype": dtype}
    return replace(RECORD, collective=collective, num_nodes=nodes, ranks=ranks, nbytes=nbytes, **of)


@pytest.mark.parametrize(
    ("collective", "cluster", "nbytes", "library", "algorithm", "protocol", "dtype"), QUESTIONS
)
def test_every_door_says_the_same(rows, collective, cluster, nbytes, library, algorithm, protocol, dtype):
    words = ["--library", library, "--algorithm", algorithm, "--protocol", protocol, "--dtype", dtype]
    (row,) = rows("simulate", collective, "--cluster", cluster, "--size", str(nbytes), *words)

    graph = load(cluster)
    asked = Collective(collective, row_ranks(graph), nbytes, dtype=dtype)
    options = {"library": library, "algorithm": algorithm, "protocol": protocol}
    assert predict(asked, graph, **options).time_s == row["time_s"]

    found = find_library(library, cluster, options=Options(algorithm, protocol))
    group = process_group(found)
    if isinstance(group, TimedGroup):
        assert group.time(asked) == row["time_s"]

    (compared,) = compare([record(collective, nbytes, graph, library, algorithm, protocol, dtype)], cluster)
    assert compared.predicted_s == row["time_s"]

    if library == "nccl" and row["algorithm"] != "p2p":
        name, _, nodes = cluster.partition(":")
        question = f"pick {collective} --cluster {name} --nodes {nodes} --size {nbytes}"
        (picked,) = rows(*question.split(), *words)
        assert picked["default"] == f"{row['algorithm']}/{row['protocol']}"
        assert picked["time_s"] * (1 + picked["default_loss"]) == pytest.approx(row["time_s"], rel=1e-12)


def row_ranks(graph):
    return sum("rank" in data for _, data in graph.nodes(data=True))


@pytest.mark.slow
def test_of_its_own_accord_the_textbook_takes_what_pick_picks_and_train_waits_for(rows):
    for cluster, nodes in (("star", 4), ("leaf-spine", 2), ("dgx-h100", 2)):
        words = ("--cluster", f"{cluster}:{nodes}", "--library", "ideal")
        (row,) = rows("simulate", "all_reduce", *words, "--size", "3M")
        sizes = ("-b", "3M", "-e", "3M")
        (picked,) = rows(
            "pick", "all_reduce", "--cluster", cluster, "--nodes", str(nodes), *words[2:], *sizes
        )
        assert (picked["algorithm"], picked["time_s"]) == (row["algorithm"], row["time_s"])
        found = find_library("ideal", f"{cluster}:{nodes}")
        asked = Collective("all_reduce", found.ranks, 3 * M, dtype="float32")
        assert process_group(found).time(asked) == row["time_s"]


def test_a_send_is_answered_in_a_training_step_too():
    group = process_group(find_library("nccl", "dgx-h100:2"))
    assert group.time(Collective("sendrecv", 16, M, dtype="float32")) > 20e-6


def test_settings_mean_the_same_to_nccl_by_name_and_on_a_topology():
    slow = {"nic": "100Gb/s", "nvlink": "300GB/s"}
    asked = Collective("all_reduce", 16, 64 * M, dtype="float32")
    by_name = find_library("nccl", "dgx-h100:2", slow)
    on_graph = find_library("nccl", load("dgx-h100:2", slow))
    times = [library.time(asked, library.choose(asked)).time_s for library in (by_name, on_graph)]
    assert times[0] == times[1] > 2 * predict(asked, dgx_h100(2), library="nccl").time_s


def test_nccl_follows_a_topology_that_was_changed_by_hand():
    changed = make("dgx-h100", 2)
    changed.edges["node1/nic0", "rail0"]["bandwidth"] /= 2
    asked = Collective("all_reduce", 16, 64 * M, dtype="float32")
    slower = predict(asked, load("dgx-h100:2", {"nic": "25GB/s"}), library="nccl", calibration=None)
    assert predict(asked, changed, library="nccl").time_s == slower.time_s


def test_machines_of_which_every_card_was_redrawn_are_those_with_other_cards():
    changed = make("dgx-h100", 2)
    for *_, link in changed.edges(data=True):
        if link["kind"] == "ib":
            link["bandwidth"] /= 2
    asked = Collective("all_reduce", 16, 64 * M, dtype="float32")
    assert predict(asked, changed) == predict(asked, load("dgx-h100:2", {"nic": "25GB/s"}))


def test_nccl_refuses_a_topology_that_tells_of_no_gpus():
    with pytest.raises(ValueError, match="NCCL's choices on star depend on its GPUs"):
        predict(Collective("all_reduce", 16, M), star(16), library="nccl")


def test_a_calibrated_answer_is_the_same_at_every_door(rows, tmp_path):
    parameters = Parameters(alpha=9e-6, beta=1.1e-9, gamma=1e-10, launch=2e-5)
    calibration({"parameters": parameters}).write(tmp_path / "c.yaml")
    write([record("all_reduce", M, star(4), "ideal", "ring", "auto", "float32")], tmp_path / "m.jsonl")
    words = ("--calibration", "c.yaml", "--cluster", "star:4")
    (row,) = rows("simulate", "all_reduce", "--size", "1M", "--algorithm", "ring", *words)
    (compared,) = rows("compare", "m.jsonl", *words)
    ends = ("predicted_s", "predicted_lo_s", "predicted_hi_s")
    assert [compared[end] for end in ends] == [row[end] for end in ("time_s", "time_lo_s", "time_hi_s")]


@pytest.mark.slow
def test_many_ranks_leave_out_what_takes_long_and_say_so():
    for cluster, ranks, left in (("star:1024", 1024, ("tree",)), ("dgx-a100:128", 1024, ("ring", "direct"))):
        library = find_library("ideal", cluster)
        candidate = library.choose(Collective("all_reduce", ranks, 25 * M, dtype="float32"))
        message = candidate.caveat.partition(" left out, more than 100,000 transfers to simulate")[0]
        assert set(left) <= set(message.split(", "))


FILES = Path(__file__).parents[1] / "sim/libraries/nccl/data/files"
TABLE = "        GPU0 GPU1 NIC0\nGPU0 X NV12 PIX\nGPU1 NV12 X PIX\nNIC0 PIX PIX X\n"


@pytest.fixture
def shown(tmp_path):
    """Make a topology file and a table, with colons in their names."""
    files = tmp_path / "10:30" / "h800:8.xml", tmp_path / "10:30" / "table:2"
    files[0].parent.mkdir()
    files[0].write_text((FILES / "h800-topo.xml").read_text())
    files[1].write_text(TABLE)
    return [str(file) for file in files]


def test_what_nccl_or_nvidia_smi_wrote_means_nccl_at_every_door(rows, shown):
    for file in shown:
        words = ("--cluster", f"{file}:2", "--size", "64K")
        (row,) = rows("simulate", "all_reduce", *words)
        assert row == rows("simulate", "all_reduce", *words, "--library", "nccl")[0]
        graph = load(f"{file}:2")
        asked = Collective("all_reduce", row_ranks(graph), 2**16, dtype="float32")
        assert predict(asked, graph).time_s == row["time_s"]
        sizes = ("-b", "64K", "-e", "64K")
        (picked,) = rows("pick", "all_reduce", "--cluster", file, "--nodes", "2", *sizes)
        assert (picked["algorithm"], picked["protocol"]) == (row["algorithm"], row["protocol"])
        made = record("all_reduce", 2**16, graph, "nccl", "auto", "auto", "float32")
        (compared,) = compare([made], file)
        assert compared.predicted_s == row["time_s"]
    words = ("--model", "resnet50", "--cluster", f"{shown[1]}:2")
    (step,), (same,) = rows("train", *words), rows("train", *words, "--library", "nccl")
    assert step["communication_s"] == same["communication_s"]


def test_a_graph_file_beside_a_cluster_means_nccl():
    options = Options(nccl_graph=FILES / "simllm-b200-graph.xml")
    assert default_library("star:4", options) == "nccl"
    assert find_library(None, str(FILES / "simllm-b200-topo.xml"), options=options).name == "nccl"


def test_graphs_that_promise_more_than_the_machines_file_are_believed(rows):
    words = ("--cluster", str(FILES / "az-ncv4-topo.xml"), "--nccl-graph", str(FILES / "az-ncv4-graph.xml"))
    for engine in ("auto", "simpy"):
        (row,) = rows("simulate", "all_reduce", *words, "--size", "64M", "--engine", engine)
        assert row["channels"] == 4


def test_a_topology_from_a_file_that_was_changed_by_hand_is_followed(shown):
    graph = load(f"{shown[0]}:2")
    asked = Collective("all_reduce", 16, 64 * M, dtype="float32")
    before = predict(asked, graph).time_s
    for *_, link in graph.edges(data=True):
        if link["kind"] == "ib":
            link["bandwidth"] /= 4
    assert predict(asked, graph).time_s > 1.2 * before


def test_no_library_is_unknown_to_the_door():
    with pytest.raises(
        ValueError, match=rf"unknown library 'mpich'; write mpi .known: {', '.join(LIBRARIES)}"
    ):
        find_library("mpich", "star:4")


@pytest.mark.parametrize(
    ("cluster", "library"),
    [
        ("dgx-h100:2", "nccl"),
        ("a100-pcie4:2", "nccl"),
        ("nvlink_switch:8", "nccl"),
        ("mi300x:2", "ideal"),
        ("star:4", "ideal"),
    ],
)
def test_a_name_its_graph_and_its_drawing_are_one_machine(rows, cluster, library, tmp_path):
    graph, file = load(cluster), tmp_path / "drawn.yaml"
    write_graph(graph, file)
    (row,) = rows("simulate", "all_reduce", "--cluster", cluster, "--size", "64K")
    assert [default_library(one) for one in (cluster, graph, str(file))] == [library] * 3
    asked = Collective("all_reduce", row_ranks(graph), 2**16, dtype="float32")
    assert predict(asked, graph).time_s == predict(asked, load(str(file))).time_s == row["time_s"]
    assert rows("simulate", "all_reduce", "--cluster", str(file), "--size", "64K") == [row]
    made = record("all_reduce", 2**16, graph, library, row["algorithm"], row["protocol"], "float32")
    (compared,) = compare([made], str(file))
    assert compared.predicted_s == row["time_s"]


def test_gpus_without_machines_around_them_are_the_textbooks():
    graph = star(4)
    graph.graph["device"] = "a100"  # for `train`
    assert default_library(graph) == "ideal"


def test_a_record_of_fewer_machines_than_a_graph_draws_is_refused(tmp_path):
    graph = load("dgx-h100:4")
    del graph.graph["recipe"]
    write_graph(graph, tmp_path / "drawn.yaml")
    made = record("all_reduce", M, load("dgx-h100:2"), "nccl", "auto", "auto", "float32")
    with pytest.raises(ValueError, match=r"measured on 2 nodes, but .* has 4 machines; write a graph"):
        compare([made], str(tmp_path / "drawn.yaml"))


@pytest.mark.parametrize("settings", [{"nic": "100Gb/s"}, {"fabric": "leaf_spine"}, {"nvlink": "300GB/s"}])
def test_changed_figures_mean_the_same_beside_a_record(rows, settings):
    words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    (row,) = rows("simulate", "all_reduce", "--cluster", "dgx-h100:4", "--size", "16M", *words)
    made = record("all_reduce", 16 * M, load("dgx-h100:4"), "nccl", "auto", "auto", "float32")
    (compared,) = compare([made], "dgx-h100", settings)
    assert compared.predicted_s == row["time_s"]


def test_a_collective_without_a_type_is_of_floats_at_every_door(rows):
    for library in LIBRARIES:
        cluster = "dgx-h100:1" if library == "nccl" else "star:7"
        words = ("--cluster", cluster, "--library", library, "--size", "1001")
        (row,) = rows("simulate", "all_reduce", *words)
        graph = load(cluster)
        asked = Collective("all_reduce", row_ranks(graph), 1001)
        assert predict(asked, graph, library=library).time_s == row["time_s"]


@pytest.mark.parametrize("library", ["ideal", "nccl"])
def test_nvlink_is_all_of_a_gpus_links_to_every_library(shown, library):
    asked = Collective("all_reduce", 2, 256 * M)
    took = {}
    for settings in ({}, {"nvlink": "300GB/s"}, {"nvlink": "150GB/s"}):
        found = find_library(library, f"{shown[1]}:1", settings, calibration=None)
        took[settings.get("nvlink")] = found.time(asked, found.choose(asked)).time_s
    assert took["150GB/s"] > 1.9 * took[None]
    assert took["300GB/s"] == pytest.approx(took[None], rel=1e-12)


@pytest.mark.parametrize("library", ["ideal", "nccl"])
def test_nvlinks_that_are_not_there_have_no_rate(tmp_path, library):
    (tmp_path / "pairs").write_text(TABLE.replace("NV12", "PHB"))
    for cluster in (str(tmp_path / "pairs"), "a100-pcie4:1"):
        with pytest.raises(ValueError, match=r"(?i)nvlink.*(leave|not known)"):
            find_library(library, cluster, {"nvlink": "300GB/s"})
