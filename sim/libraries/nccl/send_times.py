"""How long sends and receives take: a message to the next rank, or one to every rank.

    launch + setup + max(inside, between)

Inside a node there is a latency for each peer, the first chunk's copy into a buffer, and the slower of a part
by its own channel and of all messages by the GPU's links. A channel is a thread block, which copies about as
much on every generation of GPU, so it carries all of an NVLink before Blackwell and half of one there. Small
messages go by LL: no chunks, but slower.
Between nodes there is the network's latency, and one for each peer, because the host's proxy serves them one
after another. Then counts the slower of two: one message by its channels' connections, where each further one
adds less; or all messages by the cards, whose share falls with the number of nodes. Microseconds throughout.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringside.sim.libraries.nccl.device.p2p import KINDS

Floats = NDArray[np.float64]

SEND_KINDS = KINDS
SENDS = "p2p", "simple"

SEND_PARAMETERS = (
    *("launch_us", "host_us", "thread_us", "torch_us", "call_us", "setup_us"),
    *("peer_inside_us", "simple_us", "channel_GBps", "first_inside", "inside", "channel_ll", "inside_ll"),
    *("net_us", "peer_between_us", "tiny_us", "connection_GBps", "connections", "cards", "growth"),
)
"""The parameters of a machine's sends; `ringside.validation.nccl.priors` defines each."""

TINY = 192.0
"""Bytes up to which libfabric sends a message within its command on Slingshot; the host first fetches them
from the GPU (fi_cxi(7), "inject")."""


@dataclass(frozen=True, eq=False, slots=True)
class SendArrays:
    """What the form needs of tasks, one figure per task.

    ``message`` are the bytes that one channel carries of a message, ``channels`` those that carry one.
    ``peers_inside`` and ``peers_between`` are the peers of the busiest rank, ``lanes`` the channels that they
    share, ``chunk`` the bytes of a chunk and ``low`` those up to which a message goes by LL. ``lane``,
    ``link`` and ``card`` are NCCL's bytes per microsecond of a channel inside a node, and of a rank's links
    and cards.
    """

    nodes: Floats
    channels: Floats
    message: Floats
    launch_gpus: Floats
    launch_torch: Floats
    peers_inside: Floats
    peers_between: Floats
    lanes: Floats
    chunk: Floats
    low: Floats
    lane: Floats
    link: Floats
    card: Floats

    @property
    def one(self) -> NDArray[np.bool_]:
        """Whether there is a single node."""
        return np.equal(self.nodes, 1)


def sends_us(work: SendArrays, values: Mapping[str, float | Floats]) -> Floats:
    """Return the microseconds after the launch."""
    part, whole = work.message, work.message * work.channels
    link, lane = work.link * values["inside"], np.minimum(work.lane, values["channel_GBps"] * 1e3)
    active = np.minimum(work.channels * work.peers_inside, work.lanes)
    first = np.minimum(part, work.chunk)
    simple = (
        values["simple_us"]
        + values["first_inside"] * np.maximum(first / lane, active * first / link)
        + np.maximum(part / lane, work.peers_inside * whole / link)
    )
    link_ll = link * values["inside_ll"] * lane / work.lane
    low = np.maximum(part / (lane * values["channel_ll"]), work.peers_inside * whole / link_ll)
    inside = work.peers_inside * values["peer_inside_us"] + np.where(whole <= work.low, low, simple)
    # cards that a machine lacks carry nothing
    card = np.where(work.card > 0, work.card, 1.0) * values["cards"] * (2 / work.nodes) ** values["growth"]
    together = values["connection_GBps"] * 1e3 * work.channels ** np.minimum(values["connections"], 1.0)
    tiny = np.where(whole <= TINY, values["tiny_us"], 0.0)
    between = (
        values["net_us"]
        + work.peers_between * (values["peer_between_us"] + tiny)
        + np.maximum(whole / together, work.peers_between * whole / card)
    )
    times: Floats = values["setup_us"] + np.maximum(
        np.where(work.peers_inside > 0, inside, 0.0), np.where(work.one, 0.0, between)
    )
    return times


def calls_us(work: SendArrays, values: Mapping[str, float | Floats]) -> Floats:
    """Return the time in which one thread calls all sends and receives of its GPUs."""
    times: Floats = 2 * work.launch_gpus * (work.peers_inside + work.peers_between) * values["call_us"]
    return times
