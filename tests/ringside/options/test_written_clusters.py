"""A file of ``topo -o`` gives exactly the answers of its cluster."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ringside.sim.collective import Collective
from ringside.sim.libraries.find import Options, default_library, find_library
from ringside.sim.libraries.library import answer
from ringside.sim.program.libraries import Libraries
from ringside.sim.workload.devices import device_of
from ringside.topologies import MAKERS, Routes, TopologyError, dragonfly, fat_tree, load, ranks, torus
from ringside.topologies.file import write

DUMP = Path(__file__).parents[2] / "sim/libraries/nccl/data/files/h800-topo.xml"
TABLE = "        GPU0 GPU1 NIC0\nGPU0 X NV12 PIX\nGPU1 NV12 X PIX\nNIC0 PIX PIX X\n"
TEN_LINES = "machine: {machine}\ngpu: {gpu}\ngpus: {gpus}\nnics: {nics}\nnodes: {nodes}\n"

OF_FABRIC = {
    "rail_optimized": {"radix": ["16", "64"], "oversubscription": ["1", "2"], "ecmp": ["hash"]},
    "fat_tree": {"radix": ["16", "64"], "oversubscription": ["1", "2"], "ecmp": ["hash"]},
    "leaf_spine": {"hosts_per_leaf": ["1", "2"], "oversubscription": ["1", "4"]},
    "torus": {"oversubscription": ["1", "3"], "dimensions": ["2", "3"]},
    "dragonfly": {"hosts_per_router": ["1", "2"], "routers": ["2", "4"], "ecmp": ["hash"]},
}
RATES = {"nic": ["12.5GB/s", "100Gb/s"], "network_latency": ["5us"], "hop_latency": ["1us"]}

KINDS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "sendrecv"]
LIBRARIES = ["ideal", "gloo", "nccl", "mpi"]


def some(draw: st.DrawFn, choices: dict[str, list[str]]) -> dict[str, str]:
    return {key: draw(st.sampled_from(values)) for key, values in choices.items() if draw(st.booleans())}


@st.composite
def clusters(draw: st.DrawFn) -> tuple[str, dict[str, str]]:
    """Draw a cluster's name with settings; ``dump``, ``table`` and ``ten:...`` are files to be made."""
    named = draw(st.sampled_from([*MAKERS, "dump", "table", "ten"] + list(OF_FABRIC) * 4))
    fabric = {}
    if named in OF_FABRIC:
        fabric = {"fabric": named, **some(draw, OF_FABRIC[named])}
        named = draw(st.sampled_from(["dgx-h100", "dgx-a100", "a100-pcie4", "aws-p4d", "dump", "ten"]))
    if named == "ten":
        machine = draw(st.sampled_from(["pcie-server", "nvlink_switch", "nvlink_mesh"]))
        gpus, nics = draw(st.sampled_from([(2, 2), (4, 1), (8, 4)]))
        named = f"ten:{machine},{draw(st.sampled_from(['a100', 'h100']))},{gpus},{nics}"
    count = draw(st.integers(2, 13 if named in ("star", "torus", "fat-tree", "dragonfly") else 3))
    if named == "gb200-nvl72":
        count = 1
    values = fabric | (some(draw, {"processes": ["2", "3"]}) if named in ("leonardo", "mare-nostrum") else {})
    return f"{named}/{count}", values | some(draw, RATES)


def named_in(folder: Path, drawn: str) -> str:
    """Return the cluster's name on the command line; write its file first if it is one."""
    kind, _, count = drawn.rpartition("/")
    match kind.partition(":"):
        case "dump", "", "":
            return f"{DUMP}:{count}"
        case "table", "", "":
            (folder / "table.txt").write_text(TABLE)
            return f"{folder / 'table.txt'}:{count}"
        case "ten", ":", keys:
            words = dict(zip(("machine", "gpu", "gpus", "nics"), keys.split(","), strict=True))
            (folder / "ten.yaml").write_text(TEN_LINES.format(**words, nodes=1))
            return f"{folder / 'ten.yaml'}:{count}"
    return f"{kind}:{count}"


def told(ask: Callable[[], Any]) -> Any:
    """Return the answer, or that it is refused."""
    try:
        return ask()
    except ValueError:
        return "refused"


QUICK = settings(
    phases=(Phase.explicit, Phase.generate), max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip


@pytest.mark.slow
@given(
    clusters(), st.sampled_from([None, *LIBRARIES]), st.sampled_from(KINDS), st.integers(0, 25),
    st.sampled_from(["auto", "auto", "simpy", "fast"]), st.sampled_from(["fifo", "fifo", "fair"]),
)  # fmt: skip
@QUICK
def test_a_file_answers_as_the_cluster_it_was_written_from(
    tmp_path: Path, cluster: Any, library: Any, kind: str, power: int, engine: str, network: str
) -> None:
    name, values = named_in(tmp_path, cluster[0]), cluster[1]
    try:
        graph = load(name, values)
    except TopologyError:
        return  # settings that do not fit one another, or the cluster
    file = tmp_path / "written.yaml"
    write(graph, file)
    nbytes = 3 * 2**power if engine == "auto" else 3 * 2 ** min(power, 18)
    options = Options(network=network, algorithm="ring" if engine == "simpy" else "auto")

    def asked(cluster: str, values: dict[str, str]) -> Any:
        found = find_library(library, cluster, values, options=options)
        one = answer(found, Collective(kind, found.ranks, nbytes, dtype="float32"), engine)
        return (
            *(found.name, found.nodes, one.time_s, one.time_lo_s, one.time_hi_s, one.algorithm),
            *(one.protocol, one.engine, one.caveat, one.channels),
        )

    assert told(lambda: asked(str(file), {})) == told(lambda: asked(name, values))
    assert default_library(str(file)) == default_library(name)
    assert told(lambda: device_of(str(file))) == told(lambda: device_of(name, values))


@pytest.mark.slow
@given(clusters(), st.integers(0, 2**16))
@QUICK
def test_a_cluster_that_is_written_twice_or_changed_keeps_its_ways(
    tmp_path: Path, cluster: Any, chosen: int
) -> None:
    """One cable may be slower, as a user makes it by hand: messages go as they would in the same graph."""
    try:
        graph = load(named_in(tmp_path, cluster[0]), cluster[1])
    except TopologyError:
        return
    links = sorted(graph.edges)
    a, b = links[chosen % len(links)]
    graph.edges[a, b]["bandwidth"] /= 2
    once, again = tmp_path / "once.yaml", tmp_path / "again.yaml"
    write(graph, once)
    write(load(str(once)), again)
    assert once.read_text() == again.read_text()
    read, routes = Routes(load(str(again))), Routes(graph)
    pairs = [(src, (src + chosen) % len(ranks(graph))) for src in range(len(ranks(graph)))]
    assert all(read.route(*pair) == routes.route(*pair) for pair in pairs if pair[0] != pair[1])


def test_a_call_of_a_maker_with_figures_of_its_own_survives_a_file(tmp_path: Path) -> None:
    for graph in (
        fat_tree(13, radix=4, oversubscription=1.0, bandwidth=1e10 / 3, latency=1e-6 / 3),
        dragonfly(23, hosts_per_router=2, ecmp="hash"),
        torus(ranks=12, hop_latency=0.0),
    ):
        write(graph, tmp_path / "called.yaml")
        again = load(str(tmp_path / "called.yaml"))
        pairs = [(src, dst) for src in range(12) for dst in range(12) if src != dst]
        assert all(Routes(again).route(*pair) == Routes(graph).route(*pair) for pair in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dgx-h100", "ten:nvlink_switch,h100,8,8", "dump"])
def test_a_file_takes_a_count_and_settings_as_its_cluster_does(tmp_path: Path, name: str) -> None:
    named, file = named_in(tmp_path, f"{name}/4"), tmp_path / "written.yaml"
    write(load(named, {"fabric": "fat_tree"}), file)
    asked = Collective("all_reduce", 16, 3 << 20, dtype="float32")
    figures = {"radix": "8"} if name == "dump" else {"radix": "8", "nic": "25GB/s"}
    other = find_library("nccl", f"{named.rpartition(':')[0]}:2", {"fabric": "fat_tree", **figures})
    same = find_library("nccl", f"{file}:2", figures)
    assert same.time(asked, same.choose(asked)) == other.time(asked, other.choose(asked))


def test_a_group_of_a_files_ranks_has_the_library_that_its_cluster_has(tmp_path: Path) -> None:
    file = tmp_path / "written.yaml"
    write(load("dgx-a100:4"), file)
    asked = Collective("all_gather", 8, 1 << 20)
    groups = [Libraries("nccl", name, {}, 32).of(tuple(range(8, 16))) for name in ("dgx-a100:4", str(file))]
    first, second = (one.time(asked, one.choose(asked)) for one in groups)
    assert first == second


def test_a_machine_that_a_hand_has_changed_is_none_that_was_measured(tmp_path: Path) -> None:
    graph, file = load("leonardo:2"), tmp_path / "changed.yaml"
    write(graph, file)
    assert getattr(find_library("mpi", str(file)), "measured", None)
    file.write_text(file.read_text().replace("bandwidth: 25 GB/s", "bandwidth: 5 GB/s"))
    assert not getattr(find_library("mpi", str(file)), "measured", None)


def test_a_file_may_end_as_it_likes(tmp_path: Path) -> None:
    write(load("dgx-h100:2"), tmp_path / "cluster.txt")
    assert default_library(str(tmp_path / "cluster.txt")) == "nccl"
    assert find_library(None, str(tmp_path / "cluster.txt")).nodes == 2


def test_a_file_without_a_recipe_is_read_as_before(tmp_path: Path) -> None:
    """Such are those that were written before there were any, and those that somebody drew."""
    for name, values, library in (("dgx-h100:2", {}, "nccl"), ("leonardo:2", {"processes": "2"}, "mpi")):
        graph, file = load(name, values), tmp_path / "old.yaml"
        del graph.graph["recipe"]
        write(graph, file)
        assert "recipe" not in file.read_text()
        asked = Collective("all_reduce", len(ranks(graph)), 3 << 20, dtype="float32")
        found, known = find_library(library, str(file)), find_library(library, name, values)
        assert found.time(asked, found.choose(asked)) == known.time(asked, known.choose(asked))
    with pytest.raises(TopologyError, match="holds all its machines"):
        load(f"{file}:4")


def test_a_recipe_that_makes_nothing_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    write(load("star:2"), file)
    text = file.read_text()
    for recipe, message in (("{maker: sun}", "unknown cluster 'sun'"), ("{dump: words}", "is neither NCCL")):
        file.write_text(text.replace("{maker: star, ranks: 2}", recipe))
        with pytest.raises(TopologyError, match=f"wrong.yaml: recipe: .*{message}"):
            load(str(file))
