"""A real network inside one Linux machine: a topology's hosts, cables and switches, made by the kernel.

Every rank's host becomes a network namespace, every switch a bridge, every cable a veth pair, and every
direction of a cable an htb queue that sends at the link's bandwidth. Programs inside a host use ordinary
sockets, with the queues, the sharing and the oversubscription of the topology.

    >>> from ringside.topologies import star
    >>> with emulate(star(4, bandwidth=12.5e6)) as network:  # doctest: +SKIP
    ...     with network.inside(0):
    ...         server = subprocess.Popen(["iperf3", "-s"])
    ...     with network.inside(1):
    ...         subprocess.run(["iperf3", "-c", network.hosts[0].address])

A link's latency is not emulated: kernels without netem cannot delay an idle link, and a veth hop takes some
0.1 ms between two Python programs. Measure it.
"""

from ringside.real.emulate.network import EmulatedNetwork, Host, available, emulate, sweep

__all__ = ["EmulatedNetwork", "Host", "available", "emulate", "sweep"]
