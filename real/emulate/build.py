"""Build a plan: namespaces, bridges and veth pairs, each end with its queue.

Nothing is created in the caller's namespace: cables are created in the fabric, the namespace that holds all
bridges, with their far ends in the hosts.
"""

from collections.abc import Callable
from errno import EACCES, EPERM
from fcntl import ioctl
from ipaddress import IPv4Address
from pathlib import Path
from socket import AF_INET, SOCK_DGRAM, if_nametoindex, socket
from struct import Struct
from typing import Any

from pyroute2 import IPRoute, NetlinkError  # type: ignore[import-untyped]

from ringside.real.emulate import namespaces
from ringside.real.emulate.plan import SUBNET, NetworkPlan, Port, address, hardware_address
from ringside.real.emulate.queues import MTU, SEGMENT, SEND_WINDOW, shape

_SETTINGS = {
    # The sender bounds the data under way; a short receiver window instead makes whole segments drop when
    # several senders meet, and TCP then waits 200 ms.
    "ipv4/tcp_wmem": f"4096 16384 {SEND_WINDOW}",
    "ipv4/tcp_rmem": f"4096 131072 {2**20}",
    # delays the short end of a message until earlier data has left the host
    "ipv4/tcp_autocorking": "0",
    # bbr estimates the link itself; some distributions have it as the default
    "ipv4/tcp_congestion_control": "reno",
    # connections share a port equally only with equal data in it; an idle one would restart with 14
    # KiB
    "ipv4/tcp_slow_start_after_idle": "0",
    "ipv6/conf/all/disable_ipv6": "1",
    "ipv6/conf/default/disable_ipv6": "1",
}

_SIOCSARP = 0x8955
_ARPREQ = Struct("=H2x4s8xH6s8xi16x16s")


def build(plan: NetworkPlan) -> None:
    """Create the planned network in namespaces of this process, named by `host` and `fabric`."""
    homes = {node: host(rank) for rank, node in enumerate(plan.hosts)}
    for name in (fabric(), *homes.values()):
        _make_namespace(name)
    with namespaces.inside(fabric()), IPRoute() as ip:
        for bridge in plan.bridges.values():
            ip.link("add", kind="bridge", ifname=bridge, br_stp_state=0, br_mcast_snooping=0, state="up")
        for a, b in plan.cables:
            ip.link("add", kind="veth", **_end(a, homes), peer=_end(b, homes))
        for port in (port for cable in plan.cables for port in cable if port.node in plan.bridges):
            index = if_nametoindex(port.interface)
            shape(ip, index, port.rate, len(plan.hosts))
            ip.link("set", index=index, master=if_nametoindex(plan.bridges[port.node]), state="up")
    ports = {port.node: port for cable in plan.cables for port in cable}
    for rank, node in enumerate(plan.hosts):
        with namespaces.inside(homes[node]), IPRoute() as ip:
            ip.link("set", index=if_nametoindex("lo"), state="up")
            if node in ports:
                _configure_host(ip, rank, ports[node], len(plan.hosts))


def host(rank: int) -> str:
    """Return the name of a rank's namespace."""
    return namespaces.own(f"rank{rank}")


def fabric() -> str:
    """Return the name of the namespace that holds the bridges."""
    return namespaces.own("fabric")


def missing() -> str | None:
    """Return what this machine lacks for an emulated network, found by trying; None if nothing."""
    name = namespaces.own("probe")
    features: dict[str, Callable[[Any], object]] = {
        "veth pairs (CONFIG_VETH)": lambda ip: ip.link(
            "add", kind="veth", ifname="eth0", peer={"ifname": "eth1"}
        ),
        "bridges (CONFIG_BRIDGE)": lambda ip: ip.link("add", kind="bridge", ifname="bridge0"),
        "htb queues with u32 filters (CONFIG_NET_SCH_HTB, CONFIG_NET_CLS_U32)": lambda ip: shape(
            ip, if_nametoindex("eth0"), 12.5e6, 1
        ),
    }
    try:
        _make_namespace(name)
        with namespaces.inside(name), IPRoute() as ip:
            for feature, attempt in features.items():
                try:
                    attempt(ip)
                except NetlinkError as error:
                    if error.code in (EPERM, EACCES):
                        return "no right to configure networks: it needs root, or CAP_NET_ADMIN"
                    return f"the kernel has no {feature}: {error.args[1]}"
    except OSError as error:
        return (
            f"no right to make network namespaces ({error.strerror}): it needs root, or in a "
            "container CAP_NET_ADMIN and CAP_SYS_ADMIN with a writable /proc/sys/net"
        )
    finally:
        namespaces.remove([name])
    return None


def _make_namespace(name: str) -> None:
    namespaces.create(name)
    with namespaces.inside(name):
        for setting, value in _SETTINGS.items():
            file = Path("/proc/sys/net", setting)
            if file.exists():  # the kernel may lack IPv6
                file.write_text(value, encoding="ascii")


def _end(port: Port, homes: dict[str, str]) -> dict[str, object]:
    home = homes.get(port.node, fabric())
    return {"ifname": port.interface, "mtu": MTU, "gso_max_size": SEGMENT, "net_ns_fd": home}


def _configure_host(ip: Any, rank: int, port: Port, hosts: int) -> None:
    index = if_nametoindex(port.interface)
    shape(ip, index, port.rate, hosts)
    ip.link("set", index=index, address=hardware_address(rank), state="up")
    ip.addr("add", index=index, address=address(rank), prefixlen=SUBNET.prefixlen)
    _introduce(rank, port.interface, hosts)


def _introduce(rank: int, interface: str, hosts: int) -> None:
    """Add permanent entries for all neighbours to a host, so that it resolves no address.

    The kernel's table of learned neighbours is shared by all namespaces, and 64 hosts overflow it. An ioctl
    (arp(7)) takes microseconds where a netlink message takes a millisecond, and there is one entry per pair
    of hosts.
    """
    device, permanent = interface.encode("ascii"), 0x02 | 0x04  # ATF_COM | ATF_PERM
    with socket(AF_INET, SOCK_DGRAM) as control:
        for other in set(range(hosts)) - {rank}:
            protocol = IPv4Address(address(other)).packed
            hardware = bytes.fromhex(hardware_address(other).replace(":", ""))
            ioctl(control, _SIOCSARP, _ARPREQ.pack(AF_INET, protocol, 1, hardware, permanent, device))
