"""The queue in front of one direction of a cable.

htb rather than tbf: tbf cuts the large packets that TCP hands down into single frames and needs a timer for
each, so it misses its rate from some 500 Mb/s on and costs ten times the processor time. htb lets such a
packet through and goes into debt for it. The burst is small, two frames, so that a short message does not use
accumulated credit and appear faster than the link. Packets are limited to 16 KiB where TCP would make them 64
KiB, which is coarse compared with a collective's messages: connections that share a port would wait for each
other's packets as on no real port.

A connection's acknowledgements share a queue with the data that its host sends in the other direction; behind
a full queue they would slow their own direction down. They get a class of their own with priority.
"""

from typing import Any

MTU = 1500
"""Bytes of an Ethernet frame without its 14-byte header."""

BURST = 2 * (MTU + 14)
"""Bytes that may leave at once after an idle time."""

SEGMENT = 16 * 2**10
"""Bytes that TCP hands down, and a queue lets through, in one piece (gso_max_size)."""

SEND_WINDOW = 64 * 2**10
"""The maximum number of bytes that one connection has in flight (the maximum of net.ipv4.tcp_wmem).

Slightly more than TCP lets a busy connection have in its host's port, two segments and one that leaves
(tcp_small_queue_check in Linux's tcp_output.c): an idle one would otherwise have its whole window there for a
while, and so more of the port than others.
"""

CONNECTIONS_PER_HOST = 8
"""Connections per host that one port queues without loss."""

_ROOT, _LINK, _ACKS, _DATA, _QUEUE = 0x10000, 0x10001, 0x10010, 0x10020, 0x200000
_ACK_SHARE = 0.05  # one 66-byte acknowledgement for every second 1514-byte frame needs 2.2 %
_ACK_KEY = "0x0000/0xffc0+2"  # IPv4 total length, two bytes from byte 2 of the header, under 64


def shape(ip: Any, index: int, rate: float, hosts: int) -> None:
    """Make interface ``index`` send at ``rate`` bytes/s, with a queue for the data of ``hosts`` hosts.

    ``ip`` is the `pyroute2.IPRoute` of the interface's namespace. The rate counts whole Ethernet frames, so a
    long TCP stream carries 1448/1514 of it.
    """
    size = {"ceil": round(rate), "burst": BURST, "cburst": BURST, "quantum": BURST}
    acks = round(rate * _ACK_SHARE)
    ip.tc("add", "htb", index, handle=_ROOT, default=_DATA & 0xFFFF)
    ip.tc("add-class", "htb", index, parent=_ROOT, handle=_LINK, rate=round(rate), **size)
    ip.tc("add-class", "htb", index, parent=_LINK, handle=_ACKS, rate=acks, prio=0, **size)
    ip.tc("add-class", "htb", index, parent=_LINK, handle=_DATA, rate=round(rate) - acks, prio=1, **size)
    limit = hosts * CONNECTIONS_PER_HOST * SEND_WINDOW // MTU
    ip.tc("add", "pfifo", index, parent=_DATA, handle=_QUEUE, limit=limit)
    ip.tc("add-filter", "u32", index, parent=_ROOT, prio=1, protocol=0x0800, target=_ACKS, keys=[_ACK_KEY])
