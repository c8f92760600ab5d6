"""What other simulators take for the same all-reduce on the same star: measured once, kept here.

Measured in November 2026 on a machine with 2 cores, each project built from its source (SimGrid is Debian's
package) and run from its command line: 25e9 B/s a rank, 5 us a message, no time for additions. Wall seconds,
start included, and peak RSS are of single runs: read them to a factor of two. ASTRA-sim 2 is its analytical
backend, congestion unaware; SimGrid is SMPI's replay with its correction factors off. LogGOPSim's sort of
ready operations was made stable, without which it stops at such sizes; its seconds at 256 and 1,024 ranks
include making the schedule.
"""

from typing import NamedTuple


class Peer(NamedTuple):
    """One run: its seconds and MB, and the time in us that it predicts."""

    project: str
    algorithm: str
    ranks: int
    seconds: float
    megabytes: float
    predicted_us: float


SIZE = 1 << 30
"""Bytes of all of them."""

PEERS = (
    Peer("ASTRA-sim 2", "ring", 64, 0.03, 13, 86134),
    Peer("SimGrid 3.32", "ring", 64, 2.52, 2084, 85187),
    Peer("LogGOPSim", "ring", 64, 0.03, 5, 85187),
    Peer("ASTRA-sim 2", "ring", 256, 0.19, 35, 89072),
    Peer("SimGrid 3.32", "ring", 256, 4.84, 2100, 88114),
    Peer("LogGOPSim", "ring", 256, 0.65, 39, 88113.8),
    Peer("ASTRA-sim 2", "ring", 1024, 5.78, 354, 97008),
    Peer("SimGrid 3.32", "ring", 1024, 26.7, 2280, 96047),
    Peer("LogGOPSim", "ring", 1024, 12.4, 575, 96045),
    Peer("ASTRA-sim 2", "ring", 4096, 120.2, 5449, 127789),
    Peer("SimGrid 3.32", "ring", 4096, 869, 4831, 126834),
    Peer("ASTRA-sim 2", "double_binary_tree", 4096, 20.8, 7690, 1053028),
)
