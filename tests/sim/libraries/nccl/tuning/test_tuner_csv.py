import json
import random
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.libraries.nccl import Settings, communicator, cost_table
from ringside.sim.libraries.nccl.files.rules import (
    NEAR,
    changes,
    own_stretches,
    picked_stretches,
    tuner_csv,
    tuner_json,
)
from ringside.sim.libraries.nccl.library import Nccl
from ringside.sim.libraries.nccl.names import FUNCTIONS
from ringside.sim.libraries.nccl.tuner import launch
from ringside.sim.pick import pick, times_of

COUNTS = [1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512]
FEW = [1, 2, 16]
SIZES = [1 << power for power in range(10, 31, 4)]
COMMS = {nodes: communicator("dgx-a100", nodes) for nodes in COUNTS}

KINDS = {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"}
ALGORITHMS = {"tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"}


@dataclass
class Plugin:
    """The example tuner's reading of its file, and its answers, written from its description."""

    text: str
    nodes: int
    ranks: int

    def __post_init__(self):
        self.rules = list(self.read())

    def read(self):
        for line in self.text.split("\n"):
            for piece in [line[start : start + 255] for start in range(0, len(line), 255)]:
                if piece and not piece.startswith("#"):
                    fields = [field.strip(" \t") for field in piece.split(",") if field][:10]
                    if len(fields) >= 8:
                        kind = fields[0] if fields[0] in KINDS else "allreduce"
                        yield kind, *map(int, fields[1:3]), *fields[3:5], *map(int, fields[5:])

    def answer(self, kind, nbytes):
        for of, low, high, algorithm, protocol, channels, nodes, ranks, *rest in self.rules:
            here = nodes in (-1, self.nodes) and ranks in (-1, self.ranks)
            if of == kind and low <= nbytes <= high and here and all(field == -1 for field in rest):
                algorithm = algorithm if algorithm in ALGORITHMS else "ring"
                protocol = protocol if protocol in ("ll", "ll128", "simple") else "simple"
                return algorithm, protocol, channels if channels != -1 else 1
        return None, None, 1


def own(kind, counts=COUNTS):
    return {nodes: own_stretches(COMMS[nodes], kind, "float32", "sum") for nodes in counts}


TEXT = tuner_csv(COMMS, "all_reduce", own("all_reduce"))


@pytest.mark.parametrize("nodes", COUNTS)
def test_by_the_tuners_times_nothing_is_slower_than_nccls_default_at_any_byte(nodes):
    chance = random.Random(nodes)
    comm = COMMS[nodes]
    plugin, table = Plugin(TEXT, nodes, comm.ranks), cost_table(comm, "all_reduce")
    for _ in range(300):
        nbytes = int(2 ** chance.uniform(0, 40))
        choice = table.choose(nbytes)
        assert plugin.answer("allreduce", nbytes) == (choice.algorithm, choice.protocol, choice.channels)


@pytest.mark.parametrize("kind", list(FUNCTIONS))
def test_every_rule_begins_where_the_default_changes(kind):
    for nodes in FEW:
        comm = COMMS[nodes]
        plugin = Plugin(TEXT, nodes, comm.ranks)
        spelling = kind.replace("_", "")
        mine = [rule for rule in plugin.rules if rule[0] == spelling and rule[6] == nodes]
        table = cost_table(comm, kind)
        for _, least, *_ in mine:
            here = [table.choose(nbytes) for nbytes in (max(0, least - 1), least)]
            said = [plugin.answer(spelling, nbytes) for nbytes in (max(0, least - 1), least)]
            assert said == [(choice.algorithm, choice.protocol, choice.channels) for choice in here]
            assert least == 0 or said[0] != said[1]


def test_communicators_that_are_not_listed_keep_nccls_choice():
    assert Plugin(TEXT, 5, 40).answer("allreduce", 2**20) == (None, None, 1)
    assert Plugin(TEXT, 1, 4).answer("allreduce", 2**10) == (None, None, 1)
    assert "*nChannels = 0 in place of 1" in TEXT


@given(st.sampled_from(sorted(KINDS)), st.integers(0, 2**64 - 1), st.sampled_from(COUNTS))
def test_no_size_of_a_listed_communicator_ends_up_on_one_channel_by_accident(kind, nbytes, nodes):
    algorithm, protocol, channels = Plugin(TEXT, nodes, nodes * 8).answer(kind, nbytes)
    assert algorithm is not None
    assert channels == launch(COMMS[nodes], algorithm, protocol, nbytes)[0]


def test_by_other_times_rules_switch_near_where_the_winner_changes():
    comms = {nodes: COMMS[nodes] for nodes in (1, 2)}
    times = times_of(lambda nodes: Nccl(comms[nodes], clock="pipeline"), "all_reduce")
    picks = pick(times, list(comms), SIZES)
    for nodes, comm in comms.items():
        mine = [one for one in picks if one.nodes == nodes]

        def picked(sizes, nodes=nodes):
            return [one.pair for one in pick(times, [nodes], sizes)]

        stretches = picked_stretches(comm, "all_reduce", SIZES, picked, "float32", "sum")
        assert (stretches[0].min_bytes, stretches[-1].max_bytes) == (0, 2**60 - 1)
        for one in mine:
            (here,) = [s for s in stretches if s.min_bytes <= one.nbytes <= s.max_bytes]
            assert here.pair == one.pair
        for before, after in pairwise(stretches):
            assert before.max_bytes + 1 == after.min_bytes
            low, high = round(after.min_bytes / (1 + 1.01 * NEAR)), after.min_bytes
            if SIZES[0] < low and high < SIZES[-1]:
                table = times(nodes, [low, high])
                assert min(table, key=lambda pair: table[pair][1]) == after.pair
                assert min(table, key=lambda pair: table[pair][0]) == before.pair
        outside = cost_table(comm, "all_reduce").choose(2**36)
        assert stretches[-1].pair == (outside.algorithm, outside.protocol)


@given(st.lists(st.integers(1, 10**6), unique=True, max_size=6))
def test_halving_finds_every_change_of_a_function_that_never_comes_back(places):
    steps = sorted(places)

    def values(sizes):
        return [sum(place <= size for place in steps) for size in sizes]

    assert changes([(0, 2 * 10**6)], values, {}) == [(0, 0), *zip(steps, range(1, 99), strict=False)]


def test_every_line_is_a_comment_in_column_0_or_a_full_rule():
    for line in TEXT.splitlines():
        assert len(line) < 255
        assert line.isascii()
        assert "\r" not in line
        if not line.startswith("#"):
            kind, low, high, algorithm, protocol, channels, nodes, ranks, pipe_ops, reg_buff = line.split(",")
            assert kind in KINDS
            assert algorithm in ALGORITHMS
            assert protocol in ("ll", "ll128", "simple")
            assert int(low) <= int(high) < 2**64
            assert int(channels) >= 1
            assert int(ranks) == 8 * int(nodes)
            assert (pipe_ops, reg_buff) == ("-1", "-1")
    assert TEXT.endswith("\n")


def test_ranges_leave_no_gap_and_do_not_overlap():
    rules = [rule for rule in Plugin(TEXT, 0, 0).rules if rule[6] == 16 and rule[0] == "allreduce"]
    assert rules[0][1] == 0
    assert rules[-1][2] == 2**64 - 1
    for one, following in pairwise(rules):
        assert one[2] + 1 == following[1]


def test_clamped_channels_are_written_as_clamped():
    comm = communicator("dgx-a100", 2, settings=Settings(max_ctas=6))
    text = tuner_csv({2: comm}, "all_reduce", {2: own_stretches(comm, "all_reduce", "float32", "sum")})
    assert Plugin(text, 2, 16).answer("allreduce", 2**30)[2] == 6


def within(bounds, value):
    low, high = bounds.strip("[]()").split(",")
    return (not low or int(low) <= value) and (not high or value <= int(high))


def test_nccl_x_s_rules_hold_for_the_bytes_of_a_rank_and_leave_all_else_alone():
    picked = own("all_reduce", FEW)
    rules = json.loads(tuner_json(COMMS, "all_reduce", picked))["rules"]
    assert {rule["filter"]["collective"] for rule in rules} == {"allreduce"}
    assert all(set(rule["config"]) == {"algorithm", "protocol"} for rule in rules)
    for nodes in FEW:
        mine = [rule for rule in rules if rule["filter"]["nNodes"] == nodes]
        assert all(rule["filter"]["nLocalRanks"] == 8 for rule in mine)
        table = cost_table(COMMS[nodes], "all_reduce")
        for stretch in picked[nodes]:
            for nbytes in (stretch.min_bytes + 8 * nodes, min(stretch.max_bytes - 8 * nodes, 2**40)):
                (rule,) = [r for r in mine if within(r["filter"]["bytesPerRank"], nbytes // (8 * nodes))]
                choice = table.choose(nbytes)
                assert tuple(rule["config"].values()) == (choice.algorithm, choice.protocol)


@pytest.mark.parametrize("write", [tuner_csv, tuner_json])
def test_what_has_no_rules_is_refused(write):
    with pytest.raises(ValueError, match="not in NCCL's tuner"):
        write(COMMS, "all_to_all", own("all_reduce", [1]))
    with pytest.raises(ValueError, match="no picks to write rules of"):
        write(COMMS, "all_reduce", {})
