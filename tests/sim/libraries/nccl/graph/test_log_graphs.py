from dataclasses import replace

import numpy as np
import pytest

from ringside.sim.libraries.nccl import (
    SYSTEMS,
    Communicator,
    Graphs,
    PathClass,
    Pins,
    SearchChannel,
    Settings,
    communicator,
    cost_table,
    logged_communicator,
    parse_log,
    rings,
    trees,
)
from ringside.sim.libraries.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS
from ringside.sim.libraries.nccl.releases import DEFAULT_VERSION

GB = 1e9


def said(message: str, rank: int = 0) -> str:
    return f"node{rank // 8}:{100 + rank}:{200 + rank} [{rank % 8}] NCCL INFO {message}"


def table(comm: Communicator) -> list[str]:
    names = list(ALGORITHMS)
    lines = []
    for first in range(0, len(names), 3):
        block = names[first : first + 3]
        lines.append(
            "  Algorithm   |" + "".join(f" {'':14}   {ALGORITHMS[a]:>14}   {'':14} |" for a in block)
        )
        lines.append("  Protocol    |" + "".join(f" {p:>14} |" for _ in range(3) for p in PROTOCOLS.values()))
        lines.append(" Max NThreads |" + f" {640:14} |" * (3 * len(block)))
        for kind in reversed(FUNCTIONS):
            costs = cost_table(comm, kind)
            cells = zip(
                costs.latency_us[first : first + 3].ravel(),
                costs.bandwidth[first : first + 3].ravel(),
                strict=True,
            )
            lines.append(f"{FUNCTIONS[kind]:>13} |" + "".join(f"{a:8.1f}/{b / GB:6.1f} |" for a, b in cells))
    return lines


def written(comm: Communicator, *, cut: int = 10**6, graph_lines: bool = False) -> str:
    """Return the log of a communicator, with every rank's lines, as NCCL writes it."""
    lines = [f"NCCL version {comm.settings.version}.7+cuda13.0"]
    for rank in range(comm.ranks):
        shape = f"nRanks {comm.ranks} nNodes {comm.nodes} localRanks {comm.gpus} localRank {rank % comm.gpus}"
        lines.append(said(f"comm 0x{rank:x}5d rank {rank} {shape} MNNVL 0", rank))
    for channel, ring in enumerate(rings(comm)):
        order = [int(rank) for rank in from_rank_0(ring)]
        text = f"Channel {channel:02}/{comm.channels:02} :" + "".join(f" {rank:3}" for rank in order)
        lines.append(said(text if len(text) <= cut else text[:cut] + "..."))
        if graph_lines:
            for place, rank in enumerate(order):
                before, after = order[place - 1], order[(place + 1) % len(order)]
                lines.append(said(f"Ring {channel:02} : {before} -> {rank} -> {after}", rank))
    found = trees(comm)
    for rank in range(comm.ranks):
        groups = []
        for channel, tree in enumerate(found):
            down = [*tree.children(rank), -1, -1, -1][:3]
            below = "/".join(map(str, down))
            groups.append(f"[{channel}] {below}->{rank}->{tree.parent[rank]}")
            if graph_lines:
                lines.append(said(f"Tree {channel} : {tree.parent[rank]} -> {rank} -> {below}", rank))
        if not graph_lines:
            lines.append(said("Trees " + " ".join(groups), rank))
    lines += [said(line) for line in table(comm)]
    counts = f"{comm.channels} coll channels, 0 collnet channels, {comm.nvls_channels} nvls channels"
    lines += [said(f"{counts}, 32 p2p channels, 2 p2p channels per peer", rank) for rank in range(comm.ranks)]
    return "\n".join(lines) + "\n"


def changed(comm: Communicator, **by_graph: dict[str, object]) -> Communicator:
    graphs = {name: replace(getattr(comm.graphs, name), **change) for name, change in by_graph.items()}
    return replace(comm, graphs=replace(comm.graphs, **graphs))


def same_tables(found: Communicator, truth: Communicator) -> None:
    for kind in FUNCTIONS:
        a, b = cost_table(found, kind), cost_table(truth, kind)
        np.testing.assert_allclose(a.latency_us, b.latency_us, atol=1e-9)
        np.testing.assert_allclose(a.bandwidth, b.bandwidth, atol=0.11 * GB)
        np.testing.assert_array_equal(a.bandwidth > 0, b.bandwidth > 0)


def from_rank_0(ring: np.ndarray) -> np.ndarray:
    return np.roll(ring, -int(np.flatnonzero(ring == 0)[0]))


def same_orders(found: Communicator, truth: Communicator) -> None:
    assert found.channels == truth.channels
    for a, b in zip(rings(found), rings(truth), strict=True):
        np.testing.assert_array_equal(from_rank_0(a), from_rank_0(b))
    for c, d in zip(trees(found), trees(truth), strict=True):
        np.testing.assert_array_equal(c.parent, d.parent)


MACHINES = ("dgx1-v100", "dgx-a100", "dgx-h100", "dgx-b200", "a100-pcie4", "h100-1gpu", "alps-gh200")
CASES = [(name, nodes) for name in MACHINES for nodes in (1, 2, 4) if nodes * SYSTEMS[name].gpus > 1]


@pytest.mark.parametrize(("name", "nodes"), CASES)
def test_a_log_of_a_known_machine_gives_its_communicator_back(name, nodes):
    truth = communicator(name, nodes)
    (logged,) = parse_log(written(truth)).communicators
    assert (logged.ranks, logged.nodes, logged.gpus) == (truth.ranks, nodes, truth.gpus)
    assert (logged.channels, logged.nvls_channels) == (truth.channels, truth.nvls_channels)
    found = logged_communicator(logged, name)
    assert found.graphs.ring.channels == truth.graphs.ring.channels
    assert found.graphs.ring.bw_intra == truth.graphs.ring.bw_intra
    same_tables(found, truth)
    same_orders(found, truth)


SLOWER = communicator("dgx-h100", 4)
SHUFFLED = tuple(SearchChannel(gpus) for gpus in [(3, 1, 0, 2, 4, 7, 6, 5), (5, 6, 7, 4, 2, 0, 1, 3)] * 2)
OTHERS = [
    changed(
        SLOWER,
        ring={"channels": 4, "bw_intra": 24 * GB, "bw_inter": 24 * GB, "cross_nic": 0, "order": SHUFFLED},
        tree={"channels": 4, "bw_inter": 24 * GB, "order": SHUFFLED},
    ),
    changed(
        communicator("dgx-h100", 2),
        ring={"channels": 4, "bw_intra": 22 * GB, "bw_inter": 22 * GB, "cross_nic": 2, "order": SHUFFLED},
        tree={"channels": 4, "bw_intra": 22 * GB, "order": SHUFFLED[::-1]},
    ),
    changed(
        communicator("dgx-a100", 1),
        ring={"channels": 2, "bw_intra": 10 * GB, "bw_inter": 10 * GB, "type_intra": PathClass.SYS},
        tree={"channels": 2, "bw_intra": 10 * GB, "bw_inter": 10 * GB, "type_intra": PathClass.SYS},
    ),
    changed(
        communicator("dgx-a100", 3),
        ring={"type_inter": PathClass.SYS},
        tree={"type_inter": PathClass.SYS, "bw_inter": 12 * GB},
    ),
]


@pytest.mark.parametrize("truth", OTHERS)
def test_a_log_of_another_machine_sets_the_graphs(truth):
    name = truth.system.name
    known = communicator(name, truth.nodes)
    nvls = truth.graphs.nvls is not None
    (logged,) = parse_log(written(truth)).communicators
    found = logged_communicator(logged, name)
    assert found.graphs != known.graphs
    assert found.graphs.ring.channels == truth.graphs.ring.channels
    assert found.graphs.ring.bw_inter == truth.graphs.ring.bw_inter
    assert (found.graphs.nvls is not None) == nvls
    same_tables(found, truth)
    same_orders(found, truth)
    chosen = [cost_table(comm, "all_reduce").choose(2**20) for comm in (found, truth)]
    assert (chosen[0].algorithm, chosen[0].protocol) == (chosen[1].algorithm, chosen[1].protocol)


def test_a_log_without_nvls_channels_takes_nvls_away():
    truth = communicator("dgx-h100", 1, settings=Settings(nvls=False))
    (logged,) = parse_log(written(truth)).communicators
    found = logged_communicator(logged, "dgx-h100")
    assert found.graphs.nvls is None
    same_tables(found, truth)


def test_the_channels_of_a_job_with_a_limit_are_read_with_that_limit():
    limited = Settings(max_ctas=8)
    truth = communicator("dgx-h100", 1, settings=limited)
    (logged,) = parse_log(written(truth)).communicators
    assert logged.channels == 8
    same_tables(logged_communicator(logged, "dgx-h100", limited), truth)


def test_pinned_jobs_leave_what_they_do_not_show_as_it_is_known():
    truth = communicator("dgx-h100", 2, settings=Settings(pins=Pins("tree;allgather:ring", "simple")))
    (logged,) = parse_log(written(truth)).communicators
    found = logged_communicator(logged, "dgx-h100")
    known = communicator("dgx-h100", 2)
    assert found.graphs.ring.bw_intra == known.graphs.ring.bw_intra
    same_tables(found, known)


def test_rings_that_are_cut_off_are_pieced_together_from_every_ranks_neighbours():
    truth = OTHERS[0]
    (cut,) = parse_log(written(truth, cut=60)).communicators
    assert not cut.rings
    assert logged_communicator(cut, "dgx-h100").graphs.ring.order == ()
    (whole,) = parse_log(written(truth, cut=60, graph_lines=True)).communicators
    assert whole.rings == parse_log(written(truth)).communicators[0].rings
    same_orders(logged_communicator(whole, "dgx-h100"), truth)


def test_the_example_of_nccls_own_code_is_two_dgx_h100():
    text = written(communicator("dgx-h100", 2, settings=Settings("2.30")))
    (logged,) = parse_log(text).communicators
    cells = {
        ("tree", "ll"): (25.2, 16.6),
        ("tree", "ll128"): (48.5, 124.8),
        ("tree", "simple"): (92.4, 140.8),
        ("ring", "ll"): (40.0, 20.8),
        ("ring", "ll128"): (75.2, 156.6),
        ("ring", "simple"): (131.6, 204.8),
        ("nvls_tree", "simple"): (66.8, 246.2),
    }
    for (algorithm, protocol), (latency, bandwidth) in cells.items():
        cell = logged.table["all_reduce", algorithm, protocol]
        assert (cell.latency_us, cell.bandwidth) == (latency, pytest.approx(bandwidth * GB))


def test_communicators_of_one_log_are_kept_apart():
    small, large = communicator("dgx-a100", 1, 4), communicator("dgx-a100", 1)
    log = parse_log(written(large) + written(small) + written(large))
    assert log.version == f"{DEFAULT_VERSION}.7"
    assert [comm.ranks for comm in log.communicators] == [8, 4, 8]
    assert [len(comm.trees[0]) for comm in log.communicators] == [8, 4, 8]
    assert log.communicators[0].table == log.communicators[2].table != log.communicators[1].table


def test_few_channels_whose_rings_repeat_late_are_slower_ones():
    """Eight channels are four doubled, or two doubled twice; here the third ring differs from the first."""
    orders = [
        (0, 1, 2, 3, 4, 5, 6, 7),
        (1, 2, 3, 4, 5, 6, 7, 0),
        (2, 3, 4, 5, 6, 7, 0, 1),
        (3, 4, 5, 6, 7, 0, 1, 2),
    ]
    lines = [said("comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0")]
    for channel in range(8):
        order = orders[channel % 4]
        ring = [0, *order[order.index(0) + 1 :], *(8 + gpu for gpu in order), *order[: order.index(0)]]
        lines.append(said(f"Channel {channel:02}/08 : " + " ".join(map(str, ring))))
    (logged,) = parse_log("\n".join(lines)).communicators
    found = logged_communicator(logged, "dgx-h100")
    assert (found.graphs.ring.channels, found.graphs.ring.bw_intra, found.channels) == (4, 45 * GB, 8)


def test_collnets_channels_are_half_as_many_again():
    lines = [
        said("NCCL_COLLNET_ENABLE set by environment to 1."),
        said("comm 0x1 rank 0 nRanks 8 nNodes 4 localRanks 2 localRank 0"),
        said("Channel 00/03 : 0 1 2 3 4 5 6 7"),
        said("3 coll channels, 3 collnet channels, 0 nvls channels, 4 p2p channels, 1 p2p channels per peer"),
    ]
    (logged,) = parse_log("\n".join(lines)).communicators
    found = logged_communicator(logged, "dgx-a100")
    assert (found.settings.collnet, found.graphs.ring.channels, found.channels) == (True, 1, 3)


def test_the_logs_own_release_is_the_communicators():
    text = "NCCL version 2.21.5+cuda12.4\n" + said(
        "comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0"
    )
    (logged,) = parse_log(text).communicators
    assert logged_communicator(logged, "dgx-h100", Settings("2.30")).settings.version == "2.21.5"
    (old,) = parse_log(text.replace("2.21.5", "2.7.8")).communicators
    with pytest.raises(
        ValueError, match=r"the log is of NCCL 2\.7\.8, which is too old: logs are read from 2\.8"
    ):
        logged_communicator(old, "dgx-h100")


def test_a_log_brings_the_settings_that_its_user_does_not_write():
    environment = {
        "NCCL_ALGO": "Ring", "NCCL_PROTO": "LL", "NCCL_MAX_NCHANNELS": "4.",
        "NCCL_NVLS_ENABLE": "0.", "NCCL_BUFFSIZE": "8388608.",
    }  # fmt: skip
    lines = [
        "NCCL version 2.21.5+cuda12.4",
        *(said(f"{name} set by environment to {value}") for name, value in environment.items()),
        said("comm 0x1 rank 0 nRanks 8 nNodes 1 localRanks 8 localRank 0"),
    ]
    (logged,) = parse_log("\n".join(lines)).communicators
    own = logged_communicator(logged, "dgx-h100")
    assert own.settings == Settings("2.21.5", Pins("Ring", "LL"), max_ctas=4, nvls=False)
    assert own.notes[0].endswith(
        "settings of the log: NCCL 2.21.5, NCCL_ALGO=Ring, NCCL_PROTO=LL, NCCL_MAX_NCHANNELS=4, "
        "NCCL_NVLS_ENABLE=0; not modelled of the log's settings: NCCL_BUFFSIZE=8388608"
    )
    mine = logged_communicator(logged, "dgx-h100", Settings("2.27", Pins(protocol="simple"), max_ctas=16))
    assert mine.settings == Settings("2.27", Pins("Ring", "simple"), max_ctas=16, nvls=False)


def test_a_log_that_does_not_say_enough_sets_nothing():
    (logged,) = parse_log("\n".join(said(line) for line in table(communicator("dgx-h100")))).communicators
    with pytest.raises(ValueError, match="lacks the numbers of ranks"):
        logged_communicator(logged, "dgx-h100")
    uneven = parse_log(said("comm 0x1 rank 0 nRanks 12 nNodes 2 localRanks 8 localRank 0")).communicators[0]
    with pytest.raises(ValueError, match="12 ranks on 2 nodes, 8 on the first"):
        logged_communicator(uneven, "dgx-h100")
    bare = parse_log(said("comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0")).communicators[0]
    assert isinstance(logged_communicator(bare, "dgx-h100").graphs, Graphs)
    same_tables(logged_communicator(bare, "dgx-h100"), communicator("dgx-h100", 2))
