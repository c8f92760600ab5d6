from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim.libraries.nccl import Settings, communicator, cost_table
from sim.libraries.nccl.files.plugin_csv import tuner_csv
from sim.libraries.nccl.library import CLOCKS, Nccl
from sim.libraries.nccl.names import FUNCTIONS
from sim.libraries.nccl.tuning.channels import launch
from sim.pick import pick, times_of

COUNTS = [1, 2, 4, 16, 512]
SIZES = [1 << power for power in range(3, 34)]
COMMS = {nodes: communicator("dgx-h100", nodes) for nodes in COUNTS}

KINDS = {"broadcast", "reduce", "allgather", "reducescatter", "allreduce"}
ALGORITHMS = {"tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"}


@dataclass
class Plugin:
    """The example tuner's reading of its file, and its answers, written from its description."""

    text: str
    nodes: int
    ranks: int

    def rules(self):
        for line in self.text.split("\n"):
            for piece in [line[start : start + 255] for start in range(0, len(line), 255)]:
                if piece and not piece.startswith("#"):
                    fields = [field.strip(" \t") for field in piece.split(",") if field][:10]
                    if len(fields) >= 8:
                        yield fields

    def answer(self, kind, nbytes, *, available=lambda algorithm: True):
        for name, low, high, algorithm, protocol, channels, nodes, ranks, *rest in self.rules():
            kind_read = name if name in KINDS else "allreduce"
            ranges = int(low) <= nbytes <= int(high)
            here = int(nodes) in (-1, self.nodes) and int(ranks) in (-1, self.ranks)
            anything = all(int(field) == -1 for field in rest)
            if kind_read == kind and ranges and here and anything:
                algorithm = algorithm if algorithm in ALGORITHMS else "ring"
                protocol = protocol if protocol in ("ll", "ll128", "simple") else "simple"
                if available(algorithm):
                    return algorithm, protocol, int(channels) if int(channels) != -1 else 1
        return None, None, 1


def picks(clock, kind, comms=COMMS, sizes=SIZES):
    return pick(times_of(lambda nodes: Nccl(comms[nodes], clock=clock), kind), list(comms), sizes)


@pytest.mark.parametrize("clock", CLOCKS)
@pytest.mark.parametrize("kind", list(FUNCTIONS))
def test_the_plugin_answers_what_was_picked_at_every_size_and_node_count(kind, clock):
    found = picks(clock, kind)
    text = tuner_csv(COMMS, kind, found)
    spelling = kind.replace("_", "")
    for one in found:
        comm = COMMS[one.nodes]
        channels, _ = launch(comm, *one.pair, one.nbytes)
        assert Plugin(text, one.nodes, comm.ranks).answer(spelling, one.nbytes) == (*one.pair, channels)


def test_other_collectives_keep_nccls_own_choice_with_its_channels():
    text = tuner_csv(COMMS, "all_reduce", picks("tuner", "all_reduce"))
    for nodes, comm in COMMS.items():
        for kind in ("broadcast", "reduce", "all_gather", "reduce_scatter"):
            for nbytes in SIZES[::5]:
                choice = cost_table(comm, kind).choose(nbytes)
                expected = choice.algorithm, choice.protocol, choice.channels
                assert Plugin(text, nodes, comm.ranks).answer(kind.replace("_", ""), nbytes) == expected


TEXT = tuner_csv(COMMS, "all_reduce", picks("pipeline", "all_reduce"))


@given(st.sampled_from(sorted(KINDS)), st.integers(0, 2**64 - 1), st.sampled_from([*COUNTS, 3, 700]))
def test_no_size_and_no_node_count_ends_up_on_one_channel_by_accident(kind, nbytes, nodes):
    algorithm, protocol, channels = Plugin(TEXT, nodes, nodes * 8).answer(kind, nbytes)
    assert algorithm is not None
    if nodes in COUNTS:
        ruled = max((size for size in SIZES if size <= nbytes), default=SIZES[0])
        assert channels == launch(COMMS[nodes], algorithm, protocol, ruled)[0]
    else:
        assert (algorithm, protocol, channels) == ("ring", "simple", 16)


def test_a_size_between_two_goes_with_the_smaller():
    for nbytes in SIZES[:-1]:
        plugin = Plugin(TEXT, 2, 16)
        assert plugin.answer("allreduce", 2 * nbytes - 1) == plugin.answer("allreduce", nbytes)


def test_what_is_not_available_falls_through_to_the_ring():
    text = tuner_csv(COMMS, "all_reduce", picks("tuner", "all_reduce"))
    plugin = Plugin(text, 1, 8)
    assert plugin.answer("allreduce", 2**30)[0] == "nvls"
    without = plugin.answer("allreduce", 2**30, available=lambda algorithm: algorithm != "nvls")
    assert without == ("ring", "simple", 16)


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
            assert int(nodes) == int(ranks) == -1 or int(ranks) == 8 * int(nodes)
            assert (pipe_ops, reg_buff) == ("-1", "-1")
    assert TEXT.endswith("\n")


def test_ranges_leave_no_gap_and_do_not_overlap():
    rules = [rule for rule in Plugin(TEXT, 0, 0).rules() if rule[6] == "16" and rule[0] == "allreduce"]
    assert rules[0][1] == "0"
    assert rules[-1][2] == str(2**64 - 1)
    for one, following in pairwise(rules):
        assert int(one[2]) + 1 == int(following[1])


def test_clamped_channels_are_written_as_clamped():
    comm = communicator("dgx-a100", 2, settings=Settings(max_ctas=6))
    found = picks("tuner", "all_reduce", {2: comm}, [2**30])
    assert ",6,2,16,-1,-1\n" in tuner_csv({2: comm}, "all_reduce", found)


def test_what_has_no_rules_is_refused():
    with pytest.raises(ValueError, match="not in NCCL's tuner"):
        tuner_csv(COMMS, "all_to_all", picks("tuner", "all_reduce"))
    with pytest.raises(ValueError, match="no picks to write rules of"):
        tuner_csv(COMMS, "all_reduce", [])
