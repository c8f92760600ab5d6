import csv
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.libraries.nccl import (
    SYSTEMS,
    Graph,
    Graphs,
    PathClass,
    SearchChannel,
    Settings,
    System,
    communicator,
    cost_table,
    format_graphs,
    parse_graphs,
    system_of,
)
from ringside.sim.libraries.nccl.device.connect import ordered
from ringside.sim.libraries.nccl.files.graph_file import GraphFileError
from ringside.sim.libraries.nccl.graph.graph import PATTERNS
from ringside.sim.libraries.nccl.graph.system import nvlink_as_nccl_reckons

GB = 1e9
DATA = Path(__file__).parents[1] / "data"
ROWS_OF = {
    "dgx1v": "dgx1-v100",
    "dgx2": "dgx2-v100",
    "dgxa100": "dgx-a100",
    "dgxh100": "dgx-h100",
    "dgxb200": "dgx-b200",
    "pcie4a100": "a100-pcie4",
    "h100x1": "h100-1gpu",
}


def rows():
    lines = [line for line in (DATA / "nccl_graphs.csv").read_text().splitlines() if line[0] != "#"]
    return list(csv.DictReader(lines))


def figures(graph):
    return graph and (graph.channels, graph.bw_intra / GB, graph.bw_inter / GB)


@pytest.mark.parametrize("machine", sorted(ROWS_OF))
def test_the_search_finds_what_nccls_own_code_finds(machine):
    mine = [row for row in rows() if row["system"] == machine]
    assert mine
    for row in mine:
        comm = communicator(ROWS_OF[machine], int(row["nNodes"]), int(row["ppn"]))
        assert (comm.channels, comm.nvls_channels) == (int(row["collChannels"]), int(row["nvlsChannels"]))
        graph = getattr(comm.graphs, row["graph"])
        if row["nChannels"] == "0":
            assert graph is None
            continue
        assert figures(graph) == (int(row["nChannels"]), float(row["bwIntra"]), float(row["bwInter"]))
        assert (graph.pattern, graph.type_intra.name) == (row["pattern"], row["typeIntra"])
        assert (graph.type_inter.name, graph.cross_nic) == (row["typeInter"], int(row["crossNic"]))
        assert graph.same_channels == (row["sameChannels"] == "1")
        assert graph.latency_inter_us == float(row["latencyInter"])


def read(name):
    return (DATA / "files" / name).read_text()


def test_a_public_b200s_topology_file_has_the_graphs_that_its_nccl_dumped():
    b200 = system_of(read("simllm-b200-topo.xml"))
    found = communicator(b200, settings=Settings("2.27.3")).graphs
    dumped = parse_graphs(read("simllm-b200-graph.xml"))
    for graph, other in ((found.ring, dumped.ring), (found.tree, dumped.tree), (found.nvls, dumped.nvls)):
        assert figures(graph) == figures(other)
        assert [channel.gpus for channel in graph.order] == [channel.gpus for channel in other.order]


def test_slow_nvlinks_make_more_channels_of_a_lower_speed():
    """Eight of Hopper's 18 links: logs of such machines count 16 channels (github.com/zy-uestc/yccl)."""
    comm = communicator(system_of(read("h800-topo.xml")))
    assert (figures(comm.graphs.ring), comm.channels) == ((8, 20, 20), 16)


def test_pairs_of_gpus_that_nvlinks_join_do_not_make_a_mesh_of_them():
    pairs = replace(
        SYSTEMS["a100-pcie4"], name="pairs", nvlink=240 * GB, mesh=((0, 1, 12), (2, 3, 12)), cpu="amd"
    )
    found = communicator(pairs, gpus=4).graphs
    assert found.ring.channels * found.ring.bw_intra <= 24 * GB
    assert found.ring.type_intra is PathClass.SYS
    pair = communicator(pairs, gpus=2).graphs.ring
    assert pair.channels * pair.bw_intra > 200 * GB


def test_azures_own_graphs_of_its_gpus_in_pairs_are_what_is_run_on():
    machine = system_of(read("az-ncv4-topo.xml"))
    assert figures(communicator(machine).graphs.ring) == (1, 12, 12)
    given_graphs = parse_graphs(read("az-ncv4-graph.xml"))
    assert figures(communicator(machine, graphs=given_graphs).graphs.ring) == (2, 12, 12)


@pytest.mark.slow
def test_cards_of_different_speeds_count_each_for_itself():
    text = read("h800-topo.xml")
    slow = communicator(system_of(text.replace('speed="400000"', 'speed="25000"', 1)), 2).graphs.ring
    whole = communicator(system_of(text), 2).graphs.ring
    assert slow.channels * slow.bw_inter < whole.channels * whole.bw_inter
    assert slow.bw_inter > 3 * GB


@pytest.mark.parametrize(
    ("machine", "change", "nodes", "gpus", "ring", "tree", "nvls"),
    [
        ("dgx-h100", {}, 1, 4, (12, 30, 30), (12, 30, 30), (4, 60, 60)),
        ("dgx-h100", {"nics": 1, "nic": 1.25 * GB}, 2, 1, (1, 1.2, 1.2), (1, 2.4, 1.2), (1, 2.4, 1.2)),
        ("dgx-a100", {}, 2, 1, (1, 24, 24), (1, 48, 24), None),
        ("alps-gh200", {}, 2, 4, (4, 24, 24), (4, 48, 24), None),
        ("aws-p4d", {}, 2, 8, (4, 12, 12), (4, 24, 12), None),
    ],
)
def test_the_search_goes_by_the_gpus_and_cards_that_are_there(machine, change, nodes, gpus, ring, tree, nvls):
    found = communicator(replace(SYSTEMS[machine], **change), nodes, gpus).graphs
    assert (figures(found.ring), figures(found.tree), figures(found.nvls)) == (ring, tree, nvls)


def test_a_changed_machine_has_graphs_of_its_own():
    slow = replace(SYSTEMS["dgx-h100"], nic=12.5 * GB)
    assert communicator(slow, 2).graphs.ring.bw_inter == 12 * GB


systems = st.builds(
    System,
    name=st.just("any"),
    compute_capability=st.sampled_from([60, 70, 80, 86, 89, 90, 100, 103, 120]),
    gpus=st.integers(2, 6),
    nics=st.integers(1, 6),
    nic=st.floats(1e8, 1e11),
    nvlink=st.one_of(st.just(0.0), st.floats(5e9, 1.8e12)),
    pcie=st.floats(3e9, 9.6e10),
    socket=st.floats(6e9, 4e10),
    nvswitch=st.booleans(),
    cpu=st.sampled_from(["intel", "amd", "arm", "power", "mixed"]),
    gpus_per_switch=st.integers(0, 4),
    sockets=st.integers(1, 4),
)


@pytest.mark.slow
@settings(max_examples=15)
@given(systems, st.integers(1, 64), st.data())
def test_any_machine_has_graphs_and_a_choice_and_stays_within_its_cards(system, nodes, data):
    gpus = data.draw(st.integers(2, system.gpus))
    comm = communicator(system, nodes, gpus)
    for graph in (comm.graphs.ring, comm.graphs.tree, comm.graphs.nvls):
        if graph is not None:
            assert 1 <= graph.channels <= 32
            assert graph.bw_intra > 0 < graph.bw_inter
    if nodes > 1 and system.nic_path > 1e9:
        used = comm.graphs.ring.channels * comm.graphs.ring.bw_inter
        assert used <= system.nics * system.nic_path * (1 + 1e-9)
    assert cost_table(comm, "all_reduce").choose(2**20).time_us > 0


def test_nodes_without_a_nic_cannot_be_joined():
    lonely = replace(SYSTEMS["dgx-h100"], nics=0)
    assert communicator(lonely).graphs.ring.channels == 12
    with pytest.raises(ValueError, match="dgx-h100 has no NIC, so 2 nodes cannot be joined"):
        communicator(lonely, 2)


@pytest.mark.parametrize(
    ("name", "datasheet"),
    [("dgx2-v100", 150), ("dgx-a100", 300), ("dgx-h100", 450), ("dgx-b200", 900), ("gb200-nvl72", 900)],
)
def test_data_sheet_bandwidth_becomes_nccls(name, datasheet):
    system = SYSTEMS[name]
    assert nvlink_as_nccl_reckons(datasheet * GB, system.compute_capability) == pytest.approx(system.nvlink)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("gpus", 0, "gpus is 0; write 1 or more"),
        ("nics", -1, "nics is -1; write 0 or more"),
        ("nic", float("nan"), "nic is nan; write bytes/s, 0 or more"),
        ("cpu", "sparc", "cpu is 'sparc'; write one of intel, amd"),
    ],
)
def test_a_machine_that_cannot_be_is_refused(field, value, message):
    with pytest.raises(ValueError, match=message):
        replace(SYSTEMS["dgx-h100"], **{field: value})


EXAMPLE = """<graphs version="1">
  <graph id="0" pattern="4" crossnic="0" nchannels="1" speedintra="30" speedinter="30" latencyinter="0" \
typeintra="NVL" typeinter="PIX" samechannels="1">
    <channel>
      <gpu dev="0x0" rank="8"/>
      <gpu dev="0x1" rank="9"/>
    </channel>
  </graph>
  <graph id="1" pattern="1" crossnic="0" nchannels="2" speedintra="30" speedinter="15" latencyinter="2.5" \
typeintra="NVL" typeinter="PXB" samechannels="0">
    <channel>
      <net dev="1"/>
      <gpu dev="0x1" rank="9"/>
      <gpu dev="0x0" rank="8"/>
      <net dev="0"/>
    </channel>
    <channel>
      <gpu dev="0x0" rank="8"/>
      <gpu dev="0x1" rank="9"/>
    </channel>
  </graph>
  <graph id="3" pattern="5" crossnic="0" nchannels="0" speedintra="0" speedinter="0" latencyinter="0" \
typeintra="LOC" typeinter="LOC" samechannels="0"/>
</graphs>
"""


def test_a_graph_file_is_read_and_its_graphs_levelled():
    found = parse_graphs(EXAMPLE)
    order = (SearchChannel((0, 1)),)
    assert found.ring == Graph("ring", 1, 30 * GB, 30 * GB, PathClass.NVL, PathClass.PIX, 0, True, 0, order)
    assert (found.tree.channels, found.tree.bw_inter, found.tree.latency_inter_us) == (1, 15 * GB, 2.5)
    assert found.tree.order == (SearchChannel((1, 0), (1, 0)),)
    assert found.nvls is None


def test_graphs_from_a_file_are_what_the_communicator_runs_on():
    two = replace(SYSTEMS["dgx-a100"], name="two", gpus=2)
    comm = communicator(two, graphs=parse_graphs(EXAMPLE))
    assert comm.channels == 2
    assert cost_table(comm, "all_reduce").rate("ring", "simple") == pytest.approx(30 * GB)
    with pytest.raises(ValueError, match="for 2 GPUs a node, but 8 are in use"):
        communicator("dgx-a100", graphs=parse_graphs(EXAMPLE))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("</graphs>", "", "line 22: not XML"),
        ('<graphs version="1">', "<graphs", "line 2: not XML"),
        ("graphs", "system", "line 1: the root is 'system', not 'graphs'"),
        ('id="1"', 'id="7"', "line 8: id is '7'; allowed: 0, 1, 2, 3, 4"),
        ('pattern="1"', 'pattern="9"', "line 8: pattern is '9'"),
        ('speedinter="15"', 'speedinter="fast"', "line 8: speedinter is 'fast', not a number"),
        ('speedinter="15"', 'speedinter="-15"', "line 8: speedinter is '-15'; allowed: 0 or more"),
        ('nchannels="2"', 'nchannels="1.5"', "line 8: nchannels is '1.5', not a whole number"),
        ('nchannels="2"', 'nchannels="3"', "line 8: nchannels is 3, but 2 channels follow"),
        ('typeinter="PXB"', 'typeinter="FAR"', "line 8: typeinter is 'FAR'; allowed: LOC, NVL"),
        ('typeinter="PXB" ', "", "line 8: graph has no typeinter"),
        ('<gpu dev="0x1" rank="9"/>\n      <gpu dev="0x0" rank="8"/>', "<gpu/>", "line 11: gpu has no dev"),
        ('<net dev="0"/>', '<nic dev="0"/>', "line 13: a channel contains gpu and net, not 'nic'"),
        ('rank="9"', 'rank="8"', "line 3: a channel has the same GPU twice"),
        ('id="0"', 'id="4"', "line 1: no channels of ring"),
    ],
)
def test_a_malformed_graph_file_is_refused_by_line(old, new, message):
    assert old in EXAMPLE
    with pytest.raises(GraphFileError, match=f"graph file, {message}"):
        parse_graphs(EXAMPLE.replace(old, new))


def test_what_a_graph_file_lacks_is_searched_for_as_nccl_does():
    ring = EXAMPLE[: EXAMPLE.index('  <graph id="1"')] + "</graphs>\n"
    two = communicator(replace(SYSTEMS["dgx-a100"], name="two", gpus=2)).graphs
    found = parse_graphs(ring, two)
    assert (figures(found.ring), found.tree.bw_intra) == ((1, 30, 30), two.tree.bw_intra)
    with pytest.raises(GraphFileError, match="no channels of tree"):
        parse_graphs(ring)


def test_a_file_is_not_written_without_orders():
    found = communicator("dgx-a100").graphs
    with pytest.raises(ValueError, match="the ring graph has the order of 0 of 12 channels"):
        format_graphs(replace(found, ring=replace(found.ring, order=())))


@pytest.mark.parametrize("machine", SYSTEMS)
@pytest.mark.parametrize("nodes", [1, 2])
def test_the_graphs_of_every_machine_survive_a_file(machine, nodes):
    if nodes * SYSTEMS[machine].gpus == 1:
        nodes = 3
    found = ordered(communicator(machine, nodes))
    assert parse_graphs(format_graphs(found)) == found


paths = st.sampled_from(PathClass)
speeds = st.sampled_from([0.12, 1.2, 2.4, 12, 17.5, 20, 45.1, 48, 96]).map(lambda speed: speed * GB)


@st.composite
def drawn_graphs(draw):
    gpus = draw(st.integers(1, 9))
    channels = draw(st.integers(1, 5))

    def graph(pattern, order):
        rest = (st.integers(0, 2), st.booleans(), st.sampled_from([0.0, 1.5]))
        drawn = map(draw, (speeds, speeds, paths, paths, *rest))
        return Graph(pattern, len(order), *drawn, tuple(order))

    def orders():
        nics = st.sampled_from([(), (0, 0), (1, 0)])
        return [SearchChannel(tuple(draw(st.permutations(range(gpus)))), draw(nics)) for _ in range(channels)]

    heads = [SearchChannel((head,)) for head in range(gpus)]
    return Graphs(
        graph("ring", orders()),
        graph(draw(st.sampled_from(PATTERNS[:3])), orders()),
        draw(st.sampled_from([None, graph("nvls", heads)])),
        draw(st.sampled_from([None, graph("collnet_direct", heads)])),
    )


@given(drawn_graphs())
def test_any_graphs_survive_a_file(found):
    assert parse_graphs(format_graphs(found)) == found


@given(st.text(max_size=200), st.integers(0, len(EXAMPLE)), st.integers(0, 40))
def test_no_damage_to_a_graph_file_ends_in_anything_but_a_clear_error(noise, start, length):
    with suppress(GraphFileError):
        parse_graphs(EXAMPLE[:start] + noise + EXAMPLE[start + length :])
