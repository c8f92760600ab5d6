"""Which ranks of a job are recorded, and which of them do the same."""

from dataclasses import replace

import pytest

from ringside.real.record import job as jobs
from ringside.real.record.part import FlatShards, RankPart, ShardedExtent
from ringside.real.record.processes import RecordingError, environment
from ringside.real.record.roles import difference, roles
from ringside.sim.recorded.job import (
    Entry,
    GroupCall,
    Operator,
    PeerMessage,
    RecordedGroup,
    RecordedRank,
    Shaped,
)

WORLD = RecordedGroup("world", (tuple(range(8)),))
PIPELINE = RecordedGroup("pp", tuple((one, one + 2, one + 4, one + 6) for one in range(2)))
TENSOR = RecordedGroup("tp", tuple((one, one + 1) for one in range(0, 8, 2)))


def part(rank, *actions, groups=(WORLD, PIPELINE, TENSOR), uneven=()):
    """Return the part of a rank that does these actions in turn."""
    entries = tuple(Entry(action) for action in range(len(actions)))
    recorded = RecordedRank(rank, (rank,), tuple(actions), entries, held={})
    return RankPart(rank=rank, torch="2.13.0", steps=3, recorded=recorded, groups=groups, uneven=uneven)


def product(rows=16):
    return Operator("aten.mm", (Shaped((rows, 4), "float32"), Shaped((4, 4), "float32")))


def reduced(group="world", nbytes=64, **more):
    return GroupCall(group, "all_reduce", "all_reduce", nbytes, "float32", **more)


def test_without_messages_all_ranks_do_the_same():
    assert roles({0: part(0, product(), reduced())}, 8) == {0: tuple(range(8))}


@pytest.mark.parametrize("group", ["pp", "world"])
def test_each_stage_of_a_pipeline_is_a_role(group):
    first = part(0, PeerMessage(group, 2, 64, is_send=True))
    assert roles({0: first}, 8) == {0: (0, 1), 2: (2, 3), 4: (4, 5), 6: (6, 7)}


@pytest.mark.parametrize(
    ("chunks", "sizes", "expected"),
    [
        (ShardedExtent(16, 8), [2] * 8, {0: tuple(range(8))}),
        (ShardedExtent(13, 8), [2, 2, 2, 2, 2, 2, 1, 0], {0: tuple(range(6)), 6: (6,), 7: (7,)}),
        (ShardedExtent(3, 4), [1, 1, 1, 0], {0: (0, 1, 2, 3, 4, 5), 6: (6, 7)}),
        (ShardedExtent(3, 2), [2, 1], {0: (0, 2, 4, 6), 1: (1, 3, 5, 7)}),
        (ShardedExtent(10, 3), [4, 4, 2], {0: tuple(range(8))}),
    ],
)
def test_ranks_with_smaller_or_empty_chunks_have_roles_of_their_own(chunks, sizes, expected):
    assert [chunks.of(place) for place in range(chunks.among)] == sizes
    assert roles({0: part(0, product(), uneven=(chunks,))}, 8) == expected


def test_parts_of_parameters_in_a_flat_one_are_roles_of_their_own():
    flat = FlatShards((20, 8, 4), 8)
    assert [flat.of(place) for place in (0, 4, 5, 6, 7)] == [*[((0, 4),)] * 2, *[((1, 4),)] * 2, ((2, 4),)]
    assert roles({0: part(0, product(), uneven=(flat,))}, 8) == {0: (0, 1, 2, 3, 4), 5: (5, 6), 7: (7,)}
    assert FlatShards((20, 8, 4), 4).of(2) == ((0, 4), (1, 4))
    assert FlatShards((2, 1, 4), 3).of(0) == ((0, 2), (1, 1))


def test_chunks_of_a_stage_are_no_matter_of_others():
    first = part(0, PeerMessage("pp", 2, 64, is_send=True), uneven=(ShardedExtent(3, 2),))
    assert roles({0: first}, 8) == {0: (0,), 1: (1,), 2: (2, 3), 4: (4, 5), 6: (6, 7)}


def test_messages_outside_of_groups_say_nothing_of_roles():
    lonely = part(0, PeerMessage("world", 3, 64, is_send=True))
    assert roles({0: lonely}, 8) is None


def test_ranks_of_a_role_have_peers_and_roots_at_the_same_distance():
    first = part(2, PeerMessage("pp", 4, 64, is_send=True), reduced("tp", root=2))
    second = part(3, PeerMessage("pp", 5, 64, is_send=True), reduced("tp", root=2))
    assert difference(first, second) == ""
    assert difference(first, part(3, PeerMessage("pp", 1, 64, is_send=True), reduced("tp", root=2)))


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (
            (product(), reduced(nbytes=32)),
            "its entry 1 is all_reduce of 32 bytes in group world",
        ),
        ((product(8), reduced()), "its entry 0 is aten.mm([8, 4], [4, 4]), that of rank 0"),
        ((product(),), "it has 1 entries, rank 0 has 2"),
        ((product(), reduced(waits=False)), "its entry 1 is all_reduce"),
    ],
)
def test_what_differs_is_said(other, says):
    assert difference(part(0, product(), reduced()), part(7, *other)).startswith(says)


class Recorded:
    """Processes that would record given parts."""

    def __init__(self, parts):
        self.all = parts
        self.parts = {}

    def record(self, ranks, like=None):
        self.parts.update({rank: self.all[rank] for rank in ranks})


def script(ranks):
    return jobs.ScriptJob(
        script="train.py", is_module=False, arguments=(), ranks=ranks, per_node=8, steps=6, timeout_s=1.0,
        with_source=False,
    )  # fmt: skip


def recorded_roles(ranks, parts):
    processes = Recorded(parts)
    return jobs._record_roles(script(ranks), processes), set(processes.parts)


def test_the_first_and_the_last_rank_are_recorded():
    parts = {rank: part(rank, product(), reduced()) for rank in range(8)}
    assert recorded_roles(8, parts) == ({0: tuple(range(8))}, {0, 7})


def test_a_first_rank_that_does_more_stands_for_itself():
    parts = {rank: part(rank, product(), reduced()) for rank in range(1, 8)}
    parts[0] = part(0, product(), reduced(), product())
    assert recorded_roles(8, parts) == ({0: (0,), 1: tuple(range(1, 8))}, {0, 1, 7})


def uneven(rank, *more):
    """Return one of 64 ranks; the first 40 have a row. ``more`` are its further actions."""
    world = RecordedGroup("world", (tuple(range(64)),))
    return part(rank, product(rank < 40), *more, groups=(world,), uneven=(ShardedExtent(40, 64),))


def test_a_large_job_is_recorded_by_its_sizes_and_the_most_frequent_one_is_checked():
    alike, ranks = recorded_roles(64, {rank: uneven(rank) for rank in range(64)})
    assert alike == {0: tuple(range(40)), 40: tuple(range(40, 64))}
    assert ranks == {0, 40, 39}


def test_a_first_rank_of_a_small_role_that_logs_is_found_by_what_others_do():
    world = RecordedGroup("world", (tuple(range(64)),))
    chunks = (ShardedExtent(24, 64),)
    parts = {rank: part(rank, product(rank < 24), groups=(world,), uneven=chunks) for rank in range(64)}
    parts[0] = part(0, product(), reduced(), groups=(world,), uneven=chunks)
    alike, ranks = recorded_roles(64, parts)
    assert alike == {0: (0,), 1: tuple(range(1, 24)), 24: tuple(range(24, 64))}
    assert ranks == {0, 1, 23, 24, 63}


def test_roles_by_size_that_do_not_hold_are_refused():
    parts = {rank: uneven(rank) for rank in range(64)}
    parts[39] = uneven(39, reduced())
    with pytest.raises(RecordingError, match="rank 39 does not as rank 0: it has 2 entries, rank 0 has 1"):
        recorded_roles(64, parts)


def test_small_jobs_whose_ranks_differ_are_recorded_whole_and_large_ones_refused():
    parts = {rank: part(rank, product(16 + rank), reduced()) for rank in range(8)}
    alike, ranks = recorded_roles(8, parts)
    assert alike == {rank: (rank,) for rank in range(8)}
    assert ranks == set(range(8))
    world = RecordedGroup("world", (tuple(range(64)),))
    large = {rank: part(rank, product(16 + rank), groups=(world,)) for rank in range(64)}
    with pytest.raises(RecordingError, match=r"rank 63 does not as rank 0: .*record at most 16 ranks"):
        recorded_roles(64, large)


def test_the_environment_is_that_of_torchrun(tmp_path):
    order = replace(script(32), ranks=32).order(tmp_path, 19)
    own = environment(order)
    assert {name: own[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK")} == {
        "RANK": "19", "WORLD_SIZE": "32", "LOCAL_RANK": "3", "GROUP_RANK": "2",
    }  # fmt: skip


def test_arguments_lose_their_folders():
    given = ["--data=/home/me/set/train.bin", "/home/me/config.json", "--lr", "1e-3"]
    assert jobs._without_folders(given) == ["--data=train.bin", "config.json", "--lr", "1e-3"]
