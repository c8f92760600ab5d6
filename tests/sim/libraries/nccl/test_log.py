import random
from contextlib import suppress

import pytest

from ringside.sim.libraries.nccl import parse_log


def said(message: str, rank: int = 0) -> str:
    return f"node{rank // 8}:{100 + rank}:{200 + rank} [{rank % 8}] NCCL INFO {message}"


def test_every_operation_and_its_choice_is_read_whatever_the_release_calls_it():
    text = "\n".join(
        [
            said("AllReduce: 1048576 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..7}"),
            "[2026-11-21 10:00:00] " + said("AllGather: 8 Bytes -> Algo 1 proto 0 time 12.5"),
            said("ReduceScatter: 64 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}"),
            "noise AllReduce: 1 Bytes -> Algo X proto Y",
        ]
    )
    log = parse_log(text)
    assert [(o.kind, o.nbytes, o.algorithm, o.protocol, o.channels) for o in log.operations] == [
        ("all_reduce", 1048576, "ring", "ll128", (0, 7)),
        ("all_gather", 8, "ring", "ll", None),
        ("reduce_scatter", 64, "nvls", "simple", (0, 15)),
    ]
    assert (log.version, log.communicators) == ("", ())


def test_ranks_of_communicators_made_at_once_are_told_apart_by_their_ids():
    lines = []
    for rank, own, identity in ((0, 0, "0xa"), (1, 1, "0xa"), (2, 1, "0xb"), (3, 0, "0xb")):
        begun = f"ncclCommInitRankConfig comm 0x1 rank {own} nranks 2 cudaDev 0 busId 1000"
        lines.append(said(f"{begun} commId {identity} - Init START", rank))
        lines.append(
            said(f"comm 0x1 rank {own} nRanks 2 nNodes 1 localRanks 2 localRank {own} MNNVL 0", rank)
        )
        lines.append(said(f"Trees [0] {rank}/-1/-1->{own}->-1", rank))
    first, second = parse_log("\n".join(lines)).communicators
    assert first.trees == {0: {0: (-1, (0, -1, -1)), 1: (-1, (1, -1, -1))}}
    assert second.trees == {0: {1: (-1, (2, -1, -1)), 0: (-1, (3, -1, -1))}}


def test_what_is_no_graph_is_passed_over():
    text = "\n".join(
        said(message)
        for message in (
            "Bootstrap: Using eth0:10.0.0.1<0>",
            "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
            "=== System : maxBw 48.0 totalBw 370.8 ===",
            "threadThresholds 8/8/64 | 128/8/64 | 512 | 512",
            "Enabled NCCL Func/Proto/Algo Matrix:",
        )
    )
    log = parse_log(text)
    assert (log.communicators, log.skipped) == ((), 0)


SHAPE = "comm 0x1 rank {} nRanks 2 nNodes 1 localRanks 2 localRank {} MNNVL 0"
HEADER = "  Algorithm   |" + f" {'':14}   {'PAT':>14}   {'':14} |"
GARBLED = [
    (["    AllReduce |     1.0/   1.0 |"], 1),
    ([HEADER, "    AllReduce |     1.0/   1.0 |     1.0/   1.0 |"], 1),
    ([HEADER, "    AllReduce |  1.0/ 1.0 |  1.0/ x.0 |  1.0/ 1.0 |"], 1),
    (["  Algorithm   |     Ting |"], 1),
    (["comm 0x1 rank 0 nRanks 8 nNodes one localRanks 8"], 1),
    (["comm 0x1 rank 8 nRanks 8 nNodes 1 localRanks 8"], 1),
    (["comm 0x1 rank 9 nranks 8 cudaDev 0 - Init COMPLETE"], 1),
    (["comm 0x1 rank - Init START"], 1),
    ([SHAPE.format(0, 0), "Channel 00/02 : 0 0"], 1),
    ([SHAPE.format(0, 0), "Channel 00/02 : 0 1 2"], 1),
    (["Channel 00/02 : 0 one"], 1),
    (["Trees [0] 1/-1->0->-1"], 1),
    (["Tree 0 : -1 -> 0 -> 1/-1"], 1),
    (["Ring 00 : 1 -> 0"], 1),
    (["AllReduce: 8 Bytes -> Algo RANG proto LL"], 1),
    (["AllReduce: 8 Bytes -> Algo RING proto LL64", "Ring 00 : 1"], 2),
]


@pytest.mark.parametrize(("messages", "skipped"), GARBLED)
def test_a_garbled_line_is_passed_over_and_counted(messages, skipped):
    good = [SHAPE.format(rank, rank) for rank in (0, 1)]
    lines = [said(message) for message in messages] + [said(m, rank) for rank, m in enumerate(good)]
    log = parse_log("\n".join(lines))
    assert log.skipped == skipped
    assert (log.communicators[0].ranks, log.communicators[0].nodes) == (2, 1)


def test_lines_of_two_ranks_in_one_and_lines_without_a_beginning_find_their_ranks():
    first, second = said(SHAPE.format(0, 0)), said(SHAPE.format(1, 1), 1)
    cut = said("Trees [0] 1/-1/-1->0->-1")[2:]
    glued = said("threadThresholds 8/8/6") + said("Trees [0] -1/-1/-1->1->0", 1)
    log = parse_log("\n".join([first, second, cut, glued, said("3 coll channels, 2 p2p channels")]))
    (comm,) = log.communicators
    assert comm.trees == {0: {0: (-1, (1, -1, -1)), 1: (0, (-1, -1, -1))}}
    assert (comm.channels, log.skipped) == (3, 1)


@pytest.mark.parametrize(
    ("lines", "channels"),
    [
        (["Channel 00/08 : 0 1", "Channel 07/08 : 0 1"], (8, 0, 0)),
        (["Trees [0] 1/-1/-1->0->-1 [1] 1/-1/-1->0->-1 [2] 1/-1/-1->0->-1"], (3, 0, 0)),
        (["Channel 00/08 : 0 1", "12 coll channels, 16 p2p channels, 4 p2p channels per peer"], (12, 0, 0)),
        (["4 coll channels, 2 nvls channels, 8 p2p channels, 1 p2p channels per peer"], (4, 0, 2)),
        (["3 coll channels, 3 collnet channels, 0 nvls channels, 4 p2p channels"], (3, 3, 0)),
        (["24 coll channels, 24 collnet channels, 16 nvls channels, 32 p2p channels"], (24, 24, 16)),
    ],
)
def test_channels_are_counted_by_the_clearest_line_that_a_log_has(lines, channels):
    (comm,) = parse_log("\n".join(said(line) for line in [SHAPE.format(0, 0), *lines])).communicators
    assert (comm.channels, comm.collnet_channels, comm.nvls_channels) == channels


@pytest.mark.parametrize(
    "line",
    [
        "Channel 00/99999999 : 0 1",
        "Ring 99999999 : 0 -> 0 -> 1",
        "Trees [99999999] 1/-1/-1->0->-1",
        "99999999 coll channels, 16 p2p channels, 4 p2p channels per peer",
    ],
)
def test_more_channels_than_nccl_has_are_a_garbled_line(line):
    log = parse_log("\n".join([said(SHAPE.format(0, 0)), said("Channel 00/08 : 0 1"), said(line)]))
    assert (log.skipped, log.communicators[0].channels) == (1, 8)


def test_a_log_of_a_release_that_does_not_count_nodes_counts_hosts_if_every_rank_wrote():
    done = "comm 0x1 rank {} nranks 16 cudaDev {} busId 1000 - Init COMPLETE"
    lines = [said(done.format(rank, rank % 8), rank) for rank in range(16)]
    (comm,) = parse_log("\n".join(lines)).communicators
    assert (comm.ranks, comm.nodes, comm.gpus) == (16, 2, 8)
    (part,) = parse_log("\n".join(lines[:5])).communicators
    assert (part.ranks, part.nodes) == (16, 0)


def test_the_one_line_header_of_older_releases_is_read():
    header = "Latency/AlgBw |    Tree/    LL |    Tree/Simple | CollNet/Simple |"
    row = "    AllReduce |     4.4/  11.2 |     0.0/   5.5 |     0.0/   0.0 |"
    (comm,) = parse_log("\n".join(said(line) for line in (SHAPE.format(0, 0), header, row))).communicators
    assert comm.table["all_reduce", "tree", "ll"].latency_us == 4.4
    assert comm.table["all_reduce", "tree", "simple"].bandwidth == 5.5e9
    assert ("all_reduce", "collnet_direct", "simple") in comm.table


def test_lines_whose_beginnings_were_cut_off_are_one_ranks():
    lines = [
        SHAPE.format(0, 0),
        "Channel 00/02 : 0 1",
        "Trees [0] 1/-1/-1->0->-1 comm 0x1 nRanks 02 busId 1000",
    ]
    (comm,) = parse_log("\n".join(f"NCCL INFO {line}" for line in lines)).communicators
    assert (comm.ranks, comm.channels, comm.trees) == (2, 2, {0: {0: (-1, (1, -1, -1))}})


def test_a_rank_without_an_id_joins_the_communicator_that_lacks_it():
    begun = "ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 commId 0xa - Init START"
    text = "\n".join([said(begun), said(SHAPE.format(1, 1), 1), said(SHAPE.format(0, 0))])
    assert [comm.ranks for comm in parse_log(text).communicators] == [2]


@pytest.mark.parametrize("text", ["", "size count type\n8 2 float\n"])
def test_a_text_that_is_no_log_is_refused(text):
    with pytest.raises(ValueError, match="no line with NCCL INFO; run with NCCL_DEBUG=INFO"):
        parse_log(text)


def test_a_log_damaged_anywhere_is_read_or_refused_in_words():
    lines = [said(message) for messages, _ in GARBLED for message in messages]
    chance = random.Random(1)
    for _ in range(300):
        text = list("\n".join(chance.sample(lines, 3)))
        for _ in range(3):
            text[chance.randrange(len(text))] = chance.choice("0-> |:/[]x\x00é\n")
        with suppress(ValueError):
            assert parse_log("".join(text)).skipped >= 0
