"""``ringside topo --channels``: NCCL's rings and trees as in its log, and the reasons for their number."""

from ringside import console
from ringside.sim.libraries.nccl.cluster import communicator_of
from ringside.sim.libraries.nccl.communicator import Settings
from ringside.sim.libraries.nccl.device.connect import Ints, Tree, rings, trees
from ringside.topologies import parse_settings


def show_channels(cluster: str, settings: list[str], *, as_json: bool) -> None:
    """Print every channel's ring and tree on the cluster."""
    comm = communicator_of(cluster, parse_settings(settings), None, Settings())
    if comm is None:
        raise ValueError(f"{cluster} is one rank without peers; write more nodes")
    pairs = [(_from_rank_0(ring), tree) for ring, tree in zip(rings(comm), trees(comm), strict=True)]
    if as_json:
        content = {
            "cluster": cluster,
            "settings": settings,
            "notes": list(comm.notes),
            "reasons": [{"channels": count, "reason": reason} for count, reason in comm.channel_counts],
            "channels": [
                {"channel": number, "ring": ring, "tree_parent": tree.parent.tolist()}
                for number, (ring, tree) in enumerate(pairs)
            ],
        }
        console.print_json("channels", content)
        return
    console.print_comments(comm.notes)
    console.print_comments(f"{count} channels: {reason}" for count, reason in comm.channel_counts)
    for number, (ring, _) in enumerate(pairs):
        console.print_wrapped(f"Channel {number:02}/{len(pairs):02} : " + " ".join(map(str, ring)))
    for rank in range(comm.ranks):
        around = (f"[{n}] {_around(tree, rank)}" for n, (_, tree) in enumerate(pairs))
        console.print_wrapped("Trees " + " ".join(around))


def _from_rank_0(ring: Ints) -> list[int]:
    ranks: list[int] = ring.tolist()
    start = ranks.index(0)
    return ranks[start:] + ranks[:start]


def _around(tree: Tree, rank: int) -> str:
    """Format a rank's children, the rank and its parent, as NCCL logs a tree."""
    below = [*tree.children(rank), -1, -1, -1][:3]
    return f"{'/'.join(map(str, below))}->{rank}->{tree.parent[rank]}"
