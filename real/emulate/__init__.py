"""A real network inside one Linux machine: a topology's hosts, cables and switches, made by the kernel.

Every rank's host becomes a network namespace, every switch a bridge, every cable a veth pair, and every
direction of a cable an htb queue that sends at the link's bandwidth. Programs inside a host use ordinary
sockets and meet the queues, the sharing and the oversubscription of the topology.


"""

from ringside.real.emulate.network import Host, Network, available, emulate, sweep

__all__ = ["Host", "Network", "available", "emulate", "sweep"]
