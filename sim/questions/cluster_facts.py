"""What a cluster consists of, and how data passes through it."""

import inspect
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ringside.sim.collective import Collective
from ringside.sim.effort import consider
from ringside.sim.libraries.find import default_library, find_library
from ringside.sim.libraries.library import Candidate
from ringside.sim.libraries.nccl.cluster import communicator_of
from ringside.sim.libraries.nccl.communicator import Settings
from ringside.sim.libraries.nccl.device.connect import Ints, Tree, rings, trees
from ringside.sim.proof import prove
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.question import (
    Question,
    QuestionError,
    argument,
    option,
    settings_option,
    without_count,
)
from ringside.sim.schedule import Links
from ringside.topologies import MAKERS, Topology, load, num_machines, ranks
from ringside.topologies.catalogue import settings as figures_of
from ringside.topologies.fabrics.refitting import FABRICS, keys_of

NBYTES = 64 << 20
"""The size of the all-reduce shown: large enough for NCCL to use all its channels."""


@dataclass(frozen=True, kw_only=True)
class ClusterFacts(Question):
    """What a cluster consists of; without ``cluster``, the list of named clusters.

    ``schedule`` shows the connections of an all-reduce instead, ``channels`` NCCL's rings and trees.
    """

    schema: ClassVar[str] = "topo"

    cluster: str | None = argument("List all without it.", metavar="[NAME[:COUNT]|FILE]", default=None)
    nodes: int | None = option("Number of machines, instead of :COUNT.", default=None)
    settings: Mapping[str, str] = settings_option()
    schedule: str | None = option("Show the connections of an all-reduce.", metavar="ALGORITHM", default=None)
    channels: bool = option("Print NCCL's rings and trees, with reasons.", default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cluster is None and self.changed("nodes", "settings", "schedule", "channels"):
            raise QuestionError("the cluster is missing; write its name first, for example star:4")
        if self.channels and self.schedule is not None:
            raise QuestionError("`channels` and `schedule` exclude each other; remove one of them")

    @property
    def machines(self) -> str:
        """The cluster's name with its count."""
        assert self.cluster is not None
        if self.nodes is None:
            return self.cluster
        return f"{without_count(self.cluster, (self.nodes,))}:{self.nodes}"

    def graph(self) -> Topology:
        """Return the cluster's graph."""
        return load(self.machines, self.settings)

    def ask(self) -> "Catalogue | ClusterLinks | Connections | Channels":
        """List, describe, or find connections or channels."""
        if self.cluster is None:
            return Catalogue(self)
        if self.channels:
            comm = communicator_of(self.machines, self.settings, None, Settings())
            if comm is None:
                raise ValueError(f"{self.machines} is one rank without peers; write more nodes")
            paths = [(_from_rank_0(ring), tree) for ring, tree in zip(rings(comm), trees(comm), strict=True)]
            return Channels(self, comm.ranks, paths, comm.channel_counts, comm.notes)
        graph = self.graph()
        return ClusterLinks(self, graph) if self.schedule is None else self._connections(self.schedule, graph)

    def _connections(self, algorithm: str, graph: Topology) -> "Connections":
        if len(ranks(graph)) == 1:
            raise ValueError(f"{self.machines} is one rank without peers; write more")
        library = find_library(None, self.machines, self.settings)
        collective = Collective("all_reduce", library.ranks, NBYTES, dtype="float32")
        plan = library.schedule(collective, Candidate(algorithm, "simple"))
        consider(plan, graph)
        prove(plan)
        return Connections(self, plan.ranks, plan.links())


@dataclass(frozen=True, slots=True)
class Catalogue(AnswerOnDemand):
    """The named clusters, and the fabrics that join any machines."""

    question: ClusterFacts
    notes: Sequence[str] = ()

    @property
    def headline(self) -> str:
        """The number of clusters, and how one is named."""
        return (
            f"{len(MAKERS)} clusters by name; --cluster NAME:COUNT, with --set KEY=VALUE to change a figure"
        )

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs."""
        return self.question.inputs()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Each cluster with its settings and the unit of its count."""
        return [
            {
                "cluster": name,
                "counts": next(iter(inspect.signature(maker).parameters)),
                "settings": figures_of(name),
                "what": (inspect.getdoc(maker) or "").partition("\n")[0],
            }
            for name, maker in MAKERS.items()
        ]

    @property
    def totals(self) -> dict[str, Any]:
        """The fabrics with their settings."""
        return {"fabrics": {name: keys_of(name) for name in FABRICS}}


class _OfCluster(AnswerOnDemand):
    """The base of answers about one cluster."""

    __slots__ = ()
    question: ClusterFacts

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs."""
        return self.question.inputs() | {"cluster": self.question.machines}


@dataclass(frozen=True, slots=True)
class ClusterLinks(_OfCluster):
    """A cluster's nodes and links."""

    question: ClusterFacts
    graph: Topology
    notes: Sequence[str] = ()

    @property
    def headline(self) -> str:
        """The number of ranks and machines, and the narrowest link between them."""
        totals = self.totals
        return f"{totals['name']}: {totals['ranks']} ranks, machines: {totals['machines']}"

    @property
    def grounds(self) -> str:
        """The nodes by kind, and the default library."""
        totals = self.totals
        nodes = ", ".join(f"{number} {kind}" for kind, number in totals["nodes"].items())
        return f"nodes {nodes}; library of collectives: {totals['library']} by default"

    @property
    def totals(self) -> dict[str, Any]:
        """The name, the counts of machines, ranks and nodes by kind, and the default library."""
        graph = self.graph
        return {
            "library": default_library(self.question.machines),
            "name": graph.graph["name"],
            "machines": num_machines(graph),
            "ranks": len(ranks(graph)),
            "nodes": dict(Counter(data["kind"] for _, data in graph.nodes(data=True))),
        }

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Each kind of link: bytes/s and seconds one way, and their number."""
        links = Counter(
            (data["kind"], data["bandwidth"], data["latency"]) for *_, data in self.graph.edges(data=True)
        )
        return [
            {"kind": kind, "bandwidth": bandwidth, "latency": latency, "count": count}
            for (kind, bandwidth, latency), count in links.items()
        ]


@dataclass(frozen=True, slots=True)
class Connections(_OfCluster):
    """The connections of an all-reduce by channel; those where the receiver adds are True."""

    question: ClusterFacts
    ranks: int
    links: Links
    notes: Sequence[str] = ()

    @property
    def headline(self) -> str:
        """The algorithm, and how its connections are written."""
        return (
            f"{self.question.schedule} all_reduce on {self.question.machines}, {self.ranks} ranks, proved; "
            "a>b: a sends to b, a+b: b adds"
        )

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Each channel's pairs of ranks."""
        return [{"channel": channel, "connections": list(pairs)} for channel, pairs in self.links.items()]


@dataclass(frozen=True, slots=True)
class Channels(_OfCluster):
    """NCCL's channels: the ring from rank 0 and the tree of each, and the reasons for their number."""

    question: ClusterFacts
    ranks: int
    paths: Sequence[tuple[list[int], Tree]]
    reasons: Sequence[tuple[int, str]]
    notes: Sequence[str]

    @property
    def headline(self) -> str:
        """The number of channels."""
        return f"{len(self.paths)} channels of NCCL on the {self.ranks} ranks of {self.question.machines}"

    @property
    def grounds(self) -> str:
        """The last reason for their number."""
        return "; ".join(f"{count} channels: {reason}" for count, reason in self.reasons[-1:])

    @property
    def totals(self) -> dict[str, Any]:
        """The reasons for the number of channels."""
        return {"reasons": [{"channels": count, "reason": reason} for count, reason in self.reasons]}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Each channel's ring, and each rank's parent in its tree."""
        return [
            {"channel": number, "ring": ring, "tree_parent": tree.parent.tolist()}
            for number, (ring, tree) in enumerate(self.paths)
        ]


def _from_rank_0(ring: Ints) -> list[int]:
    order: list[int] = ring.tolist()
    start = order.index(0)
    return order[start:] + order[:start]
