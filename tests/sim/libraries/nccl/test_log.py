import random

import pytest

from sim.libraries.nccl import parse_log


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
            "comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 7000 commId 0xab - Init COMPLETE",
            "=== System : maxBw 48.0 totalBw 370.8 ===",
            "threadThresholds 8/8/64 | 128/8/64 | 512 | 512",
        )
    )
    assert parse_log(text).communicators == ()


HEADER = "  Algorithm   |" + f" {'':14}   {'PAT':>14}   {'':14} |"
BROKEN = [
    (["    AllReduce |     1.0/   1.0 |"], "line 1: 1 cells under a header of 0"),
    ([HEADER, "    AllReduce |     1.0/   1.0 |     1.0/   1.0 |"], "line 2: 2 cells under a header of 3"),
    ([HEADER, "    AllReduce |  1.0/ 1.0 |  1.0/ x.0 |  1.0/ 1.0 |"], "line 2: .* breaks off or is garbled"),
    (["  Algorithm   |     Ting |"], "line 1: 'Ting' is none of tree, ring"),
    (["comm 0x1 rank 0 nRanks 8 nNodes one localRanks 8"], "line 1: .* garbled"),
    (["comm 0x1 rank 8 nRanks 8 nNodes 1 localRanks 8"], "line 1: rank 8 of 8 on 1 nodes"),
    (["comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2", "Channel 00/02 : 0 0"], "line 2: a ring is not"),
    (["comm 0x1 rank 0 nRanks 2 nNodes 1 localRanks 2", "Channel 00/02 : 0 1 2"], "line 2: a ring is not"),
    (["Channel 00/02 : 0 one"], "line 1: 'Channel 00/02 : 0 one' breaks off or is garbled"),
    (["Trees [0] 1/-1->0->-1"], "line 1: .* garbled"),
    (["Tree 0 : -1 -> 0 -> 1/-1"], "line 1: .* garbled"),
    (["Ring 00 : 1 -> 0"], "line 1: .* garbled"),
    (["AllReduce: 8 Bytes -> Algo RANG proto LL"], "line 1: 'RANG' is none of tree, ring"),
    (["AllReduce: 8 Bytes -> Algo RING proto LL64"], "line 1: 'LL64' is none of ll, ll128, simple"),
]


@pytest.mark.parametrize(("messages", "complaint"), BROKEN)
def test_a_broken_line_is_refused_with_its_number(messages, complaint):
    with pytest.raises(ValueError, match=f"NCCL log, {complaint}.*take the broken line out"):
        parse_log("\n".join(said(message) for message in messages))


@pytest.mark.parametrize("text", ["", "size count type\n8 2 float\n"])
def test_a_text_that_is_no_log_is_refused(text):
    with pytest.raises(ValueError, match="no line with NCCL INFO; run with NCCL_DEBUG=INFO"):
        parse_log(text)


def complaint(text: str) -> str:
    try:
        parse_log(text)
    except ValueError as error:
        return str(error)
    return ""


def test_a_log_damaged_anywhere_is_read_or_refused_in_words():
    lines = [said(message) for messages, _ in BROKEN for message in messages]
    chance = random.Random(1)
    for _ in range(300):
        text = list("\n".join(chance.sample(lines, 3)))
        for _ in range(3):
            text[chance.randrange(len(text))] = chance.choice("0-> |:/[]x\x00é\n")
        assert complaint("".join(text)).startswith("NCCL log") or parse_log("".join(text))
