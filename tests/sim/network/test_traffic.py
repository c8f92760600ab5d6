"""No answer is below its own algorithm's traffic: some by hand, many by a plain count.

The plain count adds up the transfers of the schedule one by one: for NCCL those that leave a GPU, a machine
by its cards, and the machines under one leaf by its uplinks.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ringside.sim.collective import Collective
from ringside.sim.libraries.find import Options, find_library
from ringside.sim.libraries.library import Candidate, Library, Prediction, answer
from ringside.sim.libraries.nccl.cluster import communicator_of
from ringside.sim.libraries.nccl.communicator import Settings
from ringside.sim.libraries.nccl.device.traffic import cable_bytes
from ringside.sim.libraries.nccl.library import LAUNCH_S, Nccl
from ringside.sim.program.libraries import Libraries
from ringside.sim.schedule import Schedule
from ringside.topologies import load, ranks

MIB, GIB = 2**20, 2**30
ROUNDING = 1e-9
UNEVEN = 1e-4
"""Elements that do not divide evenly; parts are counted as if they did."""


@dataclass(frozen=True)
class Question:
    """A collective on a cluster, by a library's way."""

    cluster: str
    kind: str
    nbytes: int
    library: str = "nccl"
    algorithm: str = "auto"
    protocol: str = "auto"
    count: int | None = None
    times: str | None = None
    values: dict[str, str] = field(default_factory=dict)

    def bound(self) -> tuple[Library, Collective]:
        """Return the library, and the collective on all of its ranks."""
        is_nccl = self.library == "nccl"
        options = Options(self.algorithm, self.protocol, times=self.times if is_nccl else None)
        found = find_library(self.library, self.cluster, self.values, ranks=self.count, options=options)
        return found, Collective(self.kind, found.ranks, self.nbytes, dtype="float32")

    def answer(self) -> Prediction:
        """Return the choice and its time."""
        return answer(*self.bound())


def on(cluster: str, kind: str, nbytes: int, *way: Any, count: int | None = None, **values: str) -> Question:
    library, algorithm, protocol = (*way, *("nccl", "auto", "auto")[len(way) :])
    return Question(cluster, kind, nbytes, library, algorithm, protocol, count, values=values)


LEAVES = {"fabric": "leaf_spine", "hosts_per_leaf": "4", "oversubscription": "16"}
BY_HAND = {
    # At 8:1 a leaf of 64 ports has 7 up and 56 down: 7 machines of 8 cards. What these 56 GPUs send to others
    # passes 7 cables, shared out by the destination's port modulo 7. Of 4096 ports 586 have remainder 0, 8 of
    # them under the leaf itself: that cable carries (586 - 8) * 56 messages of 1 GiB / 4096 = 256 KiB.
    "all to all under an oversubscribed fat tree": (
        on("dgx-h100:512", "all_to_all", GIB, fabric="fat-tree", oversubscription="8"),
        578 * 56 * 256 * 1024 / 50e9,
    ),
    # Each of 16 GPUs has 1 GiB / 16 for every other. Card j carries what 8 GPUs send to GPU j of the other
    # machine, 8 * 64 MiB, as PXN has it.
    "all to all on two machines": (on("dgx-h100:2", "all_to_all", GIB), 8 * 64 * MIB / 50e9),
    # A ring passes 2 * 15/16 of the size over every edge between machines, dealt out to 8 cards.
    "a ring on two machines": (
        on("dgx-h100:2", "all_reduce", GIB, "nccl", "ring", "simple"),
        2 * 15 / 16 * GIB / 8 / 50e9,
    ),
    # On four machines each is an inner node of one of the two trees, with a parent and two children, and a
    # leaf of the other: half of the data passes 3 times, half once, each way. 2 * 1 GiB over 8 cards.
    "a double tree on four machines": (
        on("dgx-h100:4", "all_reduce", GIB, "nccl", "tree", "simple"),
        2 * GIB / 8 / 50e9,
    ),
    # On two machines 1 GiB goes up and down one edge, 1/8 of it over a card at 50 GB/s: 2.7 ms. Longer is a
    # GPU's port busy: it is the end of a chain in 2 of 8 channels, which sends once, and sends up and down in
    # the other 6: 2/8 + 2 * 6/8 = 1.75 GiB at 450 GB/s.
    "a double tree on two machines": (
        on("dgx-h100:2", "all_reduce", GIB, "nccl", "tree", "simple"),
        1.75 * GIB / 450e9,
    ),
    # Every GPU sends all its data to the switch, which adds; the head of an eighth gets that sum and sends it
    # once more, to be handed out: 9/8 GiB through a port of 450 GB/s.
    "sums in the switch": (
        on("dgx-h100:1", "all_reduce", GIB, "nccl", "nvls", "simple"),
        9 / 8 * GIB / 450e9,
    ),
    # One GPU of each of two machines has one card, whatever the machine has: 2 * 1/2 of 1 GiB over it.
    "few GPUs have their own cards": (
        on("dgx-h100:2", "all_reduce", GIB, "nccl", "ring", "simple", count=2),
        GIB / 50e9,
    ),
    # 16 machines, four under a leaf whose uplink has 4 * 8 * 50 GB/s / 16 = 100 GB/s: all rings leave by it.
    "a ring over narrow uplinks": (
        on("dgx-h100:16", "all_reduce", GIB, "nccl", "ring", "simple", **LEAVES),
        2 * 127 / 128 * GIB / 100e9,
    ),
    # Doubling on 16 ranks, four under a leaf: at distances 4 and 8 all four send all their data to other
    # leaves, over an uplink of 4 * 25 GB/s / 4.
    "recursive doubling of MPI's": (
        on("leaf-spine:4", "all_reduce", 16 * MIB, "mpi", "recursive_doubling", oversubscription="4"),
        2 * 4 * 16 * MIB / 25e9,
    ),
    # The root's port takes four of five parts in.
    "a gather of Gloo's": (on("star:5", "gather", 5 * MIB, "gloo"), 4 * MIB / 25e9),
    # A rank sends 15 of 16 parts by its port.
    "the textbook's ring": (on("star:16", "all_gather", 16 * MIB, "ideal", "ring"), 15 * MIB / 25e9),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_traffic_is_what_a_hand_counts_and_no_answer_is_below_it(name: str) -> None:
    question, seconds = BY_HAND[name]
    library, collective = question.bound()
    # what the host adds, and cells of some KiB in which data are dealt out to channels
    assert library.bound(collective, library.choose(collective)) == pytest.approx(seconds, rel=2e-3, abs=3e-6)
    assert answer(library, collective).time_s >= seconds * (1 - 1e-3)


@pytest.mark.parametrize(
    "seed", [*range(60), *(pytest.param(seed, marks=pytest.mark.proof) for seed in range(60, 2060))]
)
def test_no_answer_is_below_its_own_traffic(seed: int) -> None:
    question = drawn(np.random.default_rng(seed))
    library, collective = question.bound()
    candidate = library.choose(collective)
    found = answer(library, collective)
    counted = dict(counts(question, library, library.schedule(collective, candidate)))
    assert counted
    for part, seconds in counted.items():
        assert found.time_s >= seconds * (1 - UNEVEN), (question, candidate, part, seconds)
    assert found.time_lo_s >= library.bound(collective, candidate) * (1 - ROUNDING), question


RANKS = ("star:5", "star:16", "leaf-spine:3", "leaf-spine:4", "fat-tree:16", "torus:12", "torus:16",
         "dragonfly:24", "rail-optimized:16")  # fmt: skip
SETTINGS: dict[str, tuple[dict[str, str], ...]] = {
    "leaf-spine": ({}, {"oversubscription": "4"}, {"oversubscription": "24", "hosts_per_leaf": "3"}),
    "fat-tree": ({"radix": "4"}, {"radix": "8", "oversubscription": "3"}, {"radix": "4", "ecmp": "hash"}),
    "dragonfly": ({"hosts_per_router": "2", "routers": "3", "global_links": "1"},),
    "rail-optimized": ({"rails": "4", "radix": "8"}, {"rails": "4", "radix": "8", "oversubscription": "3"}),
}
MACHINES = ("dgx-h100", "dgx-a100", "dgx-b200", "aws-p4d", "aws-p5", "mn5-h100", "polaris-a100", "alps-gh200",
            "h100-1gpu", "dgx1-v100", "summit-v100", "a100-pcie4")  # fmt: skip
FABRICS: tuple[dict[str, str], ...] = (
    {},
    *(
        {"fabric": "leaf_spine", "hosts_per_leaf": "2", "oversubscription": ratio}
        for ratio in ("1", "6", "40")
    ),
    {"fabric": "leaf_spine", "hosts_per_leaf": "1", "oversubscription": "12"},
    {"fabric": "fat_tree", "radix": "16", "oversubscription": "3"},
    {"fabric": "rail_optimized", "radix": "16", "tiers": "3", "oversubscription": "3"},
    {"fabric": "torus", "oversubscription": "20"},
    {"fabric": "dragonfly", "hosts_per_router": "1", "routers": "2", "global_links": "2"},
)
KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "all_to_all", "gather",
         "scatter", "sendrecv")  # fmt: skip


def drawn(rng: np.random.Generator) -> Question:
    """Return a question by a seed; half of them are NCCL's."""

    def one(of: Any) -> Any:
        return of[int(rng.integers(len(of)))]

    library, kind = one(("nccl", "nccl", "nccl", "ideal", "gloo", "mpi")), one(KINDS)
    nbytes = 4 * int(2 ** rng.uniform(8, 22))
    if library != "nccl":
        cluster = one(RANKS)
        values = one(SETTINGS.get(cluster.partition(":")[0], ({},)))
        question = Question(cluster, kind, nbytes, library, values=values)
        return _by_some_way(question, one) if library != "gloo" else question
    machine, nodes, values = one(MACHINES), int(rng.integers(1, 9)), one(FABRICS)
    values = values if nodes > 1 and not (machine == "h100-1gpu" and nodes < 3) else {}
    nodes = max(nodes, 2) if machine == "h100-1gpu" else nodes
    question = Question(f"{machine}:{nodes}", kind, nbytes * 16, values=values)
    if kind == "all_to_all" and rng.random() < 0.2:
        return question
    return _by_some_way(question, one)


def _by_some_way(question: Question, one: Any) -> Question:
    """Return the same with one of the algorithms that have a schedule."""
    library, collective = question.bound()
    ways = []
    for candidate in library.candidates(collective):
        try:
            library.schedule(collective, candidate)
        except ValueError:
            continue
        ways.append(candidate)
    way = one(ways)
    if way.algorithm == "p2p":
        return question
    times = one((None, "tuner", "pipeline")) if way.algorithm in ("ring", "tree") else one((None, "tuner"))
    return Question(
        question.cluster, question.kind, question.nbytes, question.library, way.algorithm,
        way.protocol if question.library == "nccl" else "auto", times=times, values=question.values,
    )  # fmt: skip


def counts(question: Question, library: Library, plan: Schedule) -> Iterator[tuple[str, float]]:
    """Return the seconds for which each part carries the schedule's transfers."""
    sent: Counter[tuple[int, int]] = Counter()
    for step in plan.steps():
        columns = (step.src.tolist(), step.dst.tolist(), plan.nbytes(step).tolist())
        for src, dst, nbytes in zip(*columns, strict=True):
            sent[src, dst] += nbytes
    if question.library != "nccl":
        carried: Counter[Any] = Counter()
        for (src, dst), nbytes in sent.items():
            for hop in library.routes.route(src, dst):
                if question.library != "mpi" or library.graph.nodes[hop[1]]["kind"] == "switch":
                    carried[hop] += nbytes
        edges = library.graph.edges
        yield "links", max((total / edges[hop]["bandwidth"] for hop, total in carried.items()), default=0.0)
        return
    comm = library.comm
    out: defaultdict[int, float] = defaultdict(float)
    for (src, _), nbytes in sent.items():
        out[src] += nbytes if src < comm.ranks else 0
    # a GPU has its NVLinks as in the data sheet, at the most 25/18 of what NCCL reckons, its slot, and Grace
    yield (
        "gpu",
        max(out.values()) / (comm.system.nvlink * 25 / 18 + comm.system.pcie * 63 / 48 + comm.system.c2c),
    )
    if comm.nodes == 1:
        return
    cards = comm.system.nics * comm.system.nic
    groups = {"machine": (1, cards)}
    if question.values.get("fabric") == "leaf_spine":
        hosts = int(question.values["hosts_per_leaf"])
        groups["leaf"] = hosts, hosts * cards / float(question.values["oversubscription"])
    for part, (size, rate) in groups.items():
        leaving: Counter[int] = Counter()
        for (src, dst), nbytes in sent.items():
            here, there = (end // comm.gpus // size for end in (src, dst))
            if here != there and max(src, dst) < comm.ranks:  # what switches add has other ways
                leaving[here] += nbytes
        yield part, max(leaving.values(), default=0) / rate


@pytest.mark.parametrize(
    ("kind", "algorithm", "up", "down"),
    [
        # 6 machines of 8 GPUs, two under each leaf. The heads have eighths of 48 MiB, whose sums pass its
        # uplink once each way.
        ("all_reduce", "collnet_direct", 48, 48),
        ("all_reduce", "collnet_chain", 48, 48),
        ("all_reduce", "nvls", 48, 48),
        # Every rank has 1 MiB: 16 ranks under the leaf, 32 elsewhere.
        ("all_gather", "collnet_direct", 16, 32),
        ("reduce_scatter", "nvls", 32, 16),
    ],
)
def test_switches_that_add_pass_on_one_sum(kind: str, algorithm: str, up: int, down: int) -> None:
    values = {"fabric": "leaf_spine", "hosts_per_leaf": "2", "oversubscription": "8"}
    comm = communicator_of("dgx-h100:6", values, None, Settings(collnet=True))
    assert comm
    collective = Collective(kind, 48, 48 * MIB, dtype="float32")
    want = {
        ends: mib * MIB
        for leaf in ("leaf0", "leaf1", "leaf2")
        for ends, mib in (((leaf, "spine0.0"), up), (("spine0.0", leaf), down))
    }
    assert cable_bytes(comm, collective, algorithm, "simple") == pytest.approx(want)
    candidate = Candidate(algorithm, "simple", 8, 1.0)
    least = Nccl(comm).bound(collective, candidate)
    uplink = 2 * 8 * 50e9 / 8  # bytes/s
    assert least - LAUNCH_S == pytest.approx(max(up, down) * MIB / uplink)
    assert Nccl(comm).time(collective, candidate).time_s >= least


def test_groups_and_messages_of_a_program_have_the_traffic_of_where_they_stand() -> None:
    # two machines under a leaf, whose uplink has 2 * 8 * 50 GB/s / 64 = 12.5 GB/s; machine 4 is under another
    values = {"fabric": "leaf_spine", "hosts_per_leaf": "2", "oversubscription": "64"}
    libraries = Libraries("nccl", "dgx-h100:8", values, 64)
    near, far = (libraries.message(0, host, 64 * MIB)[0] for host in (8, 32))
    assert near < far == pytest.approx(64 * MIB / 12.5e9, rel=1e-3)
    reduced = [
        answer(libraries.of(hosts), Collective("all_reduce", 2, 64 * MIB)).time_s
        for hosts in ((0, 8), (0, 32))
    ]
    assert reduced[0] < reduced[1]
    assert reduced[1] >= 64 * MIB / 12.5e9


def test_ports_and_cables_carry_what_routes_say() -> None:
    for cluster, values in (("fat-tree:16", {"radix": "4"}), ("dgx-a100:3", {"fabric": "rail_optimized"})):
        graph = load(cluster, values)
        hosts, rng = ranks(graph), np.random.default_rng(1)
        src, dst = rng.integers(0, len(hosts), (2, 500))
        nbytes = rng.integers(1, 1000, 500).astype(float)
        structure = graph.graph["structure"]
        want: Counter[Any] = Counter()
        for a, b, size in zip(src.tolist(), dst.tolist(), nbytes.tolist(), strict=True):
            way = structure.way(hosts[a], hosts[b]) if a != b else []
            for hop in pairwise(way):
                if any(graph.nodes[end]["kind"] == "switch" for end in hop):
                    want[hop] += size
        assert structure.carried(hosts, [(src, dst, nbytes)]) == pytest.approx(dict(want))
