import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from ringside.real.emulate import EmulatedNetwork, available, emulate, sweep
from ringside.real.emulate.queues import SEND_WINDOW
from ringside.topologies import star
from ringside.topologies.fabrics import leaf_spine

pytestmark = pytest.mark.netadmin

RATE = 12.5e6
GOODPUT = 1448 / 1514  # of a link's rate: TCP payload of a full frame, with timestamps

OWNER = """
import subprocess, time
from ringside.real.emulate import emulate
from ringside.topologies import star
with emulate(star(3, bandwidth=12.5e6)) as network:
    with network.inside(1):
        child = subprocess.Popen(["sleep", "600"])
    print(child.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def machine() -> Iterator[None]:
    if reason := available():
        pytest.skip(reason)
    from ringside.real.emulate import namespaces

    before = outside()
    yield
    assert outside() == before
    assert namespaces.ours() == []


def outside() -> tuple[list[tuple[int, str]], set[str], str]:
    """Return the machine's interfaces, named namespaces and TCP settings.

    Of our own namespaces only those of dead owners count: other programs may emulate at the same time.
    """
    from ringside.real.emulate import namespaces

    directory = Path("/var/run/netns")
    names = {path.name for path in directory.iterdir()} if directory.is_dir() else set()
    names = {name for name in names if not name.startswith("ringside-")} | set(namespaces.orphaned())
    settings = ("tcp_congestion_control", "tcp_wmem", "tcp_rmem", "tcp_slow_start_after_idle")
    values = "".join(Path("/proc/sys/net/ipv4", name).read_text() for name in settings)
    return socket.if_nameindex(), names, values


def goodput(network: EmulatedNetwork, flows: list[tuple[int, int]], nbytes: int) -> list[float]:
    """Return the bytes/s of each flow of ``nbytes``, with all flows at once."""
    rates: dict[int, float] = {}

    def receive(flow: int, listener: socket.socket) -> None:
        connection = listener.accept()[0]
        with closing(connection):
            got = 0
            while got < 2**18:  # the first packet is let through at once, on credit
                got += len(connection.recv(2**16))
            start, first = time.monotonic(), got
            while chunk := len(connection.recv(2**16)):
                got += chunk
            assert got == nbytes
            rates[flow] = (got - first) / (time.monotonic() - start)

    def send(src: int, address: tuple[str, int]) -> None:
        with network.inside(src), closing(socket.create_connection(address)) as connection:
            connection.sendall(bytes(nbytes))

    with ExitStack() as stack:
        threads = []
        for flow, (src, dst) in enumerate(flows):
            with network.inside(dst):
                listener = stack.enter_context(socket.create_server((network.hosts[dst].address, 0)))
            threads.append(threading.Thread(target=receive, args=(flow, listener)))
            threads.append(threading.Thread(target=send, args=(src, listener.getsockname())))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return [rates[flow] for flow in range(len(flows))]


def drops(network: EmulatedNetwork) -> int:
    """Return the number of packets dropped by all queues."""
    from pyroute2 import IPRoute, netns  # type: ignore[import-untyped]

    dropped = 0
    for name in (network.fabric, *(host.namespace for host in network.hosts)):
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            netns.setns(f"/var/run/netns/{name}", flags=0)
            with IPRoute() as ip:
                queues = [queue.get_attr("TCA_STATS2") for queue in ip.get_qdiscs()]
                dropped += sum(queue.get_attr("TCA_STATS_QUEUE")["drops"] for queue in queues)
        finally:
            netns.setns(home)
            os.close(home)
    return dropped


def best_goodput(network: EmulatedNetwork, *flows: tuple[int, int], nbytes: int = 2**21) -> list[float]:
    """Return the best of a few attempts, since other programs can only slow one down."""
    return max((goodput(network, list(flows), nbytes) for _ in range(6)), key=sum)


def test_a_star_carries_tcp_at_the_rate_of_its_links() -> None:
    with emulate(star(4, bandwidth=RATE)) as network:
        assert [host.rank for host in network.hosts] == [0, 1, 2, 3]
        assert best_goodput(network, (0, 3)) == [pytest.approx(RATE * GOODPUT, rel=0.05)]
        assert drops(network) == 0


@pytest.mark.slow
def test_a_slower_port_slows_only_its_own_direction() -> None:
    graph = star(3, bandwidth=RATE)
    graph.edges["gpu1", "switch"]["bandwidth"] = RATE / 4
    with emulate(graph) as network:
        assert best_goodput(network, (1, 0), nbytes=2**20) == [pytest.approx(RATE / 4 * GOODPUT, rel=0.05)]
        assert best_goodput(network, (0, 1)) == [pytest.approx(RATE * GOODPUT, rel=0.05)]


def test_both_directions_of_a_cable_carry_the_full_rate_at_once() -> None:
    with emulate(star(2, bandwidth=RATE)) as network:
        assert best_goodput(network, (0, 1), (1, 0)) == [pytest.approx(RATE * GOODPUT, rel=0.05)] * 2


@pytest.mark.slow
def test_an_oversubscribed_uplink_is_shared() -> None:
    with emulate(leaf_spine(2, 2, bandwidth=RATE, oversubscription=2)) as network:
        assert best_goodput(network, (0, 1)) == [pytest.approx(RATE * GOODPUT, rel=0.05)]
        assert best_goodput(network, (0, 2)) == [pytest.approx(RATE * GOODPUT, rel=0.05)]
        shares = goodput(network, [(0, 2), (1, 3)], 2**22)
        assert sum(shares) == pytest.approx(RATE * GOODPUT, rel=0.15)


def test_many_senders_to_one_port_lose_nothing() -> None:
    with emulate(star(6, bandwidth=RATE)) as network:
        goodput(network, [(src, 0) for src in range(1, 6)] * 2, 2**19)
        assert drops(network) == 0


def test_every_host_has_the_stated_settings_and_knows_its_neighbours() -> None:
    with emulate(star(3, bandwidth=RATE)) as network, network.inside(1):
        assert Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text() == "reno\n"
        assert Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2] == str(SEND_WINDOW)
        assert Path("/proc/sys/net/ipv4/tcp_slow_start_after_idle").read_text().strip() == "0"
        assert int(Path("/proc/sys/net/ipv4/tcp_rmem").read_text().split()[2]) >= 2**20
        assert Path("/proc/sys/net/ipv4/tcp_autocorking").read_text() == "0\n"
        assert socket.if_nameindex() == [(1, "lo"), (2, "eth0")]
        link = subprocess.run(["ip", "-details", "link", "show", "eth0"], capture_output=True, text=True)
        assert "gso_max_size 16384" in link.stdout
        neighbours = Path("/proc/thread-self/net/arp").read_text().splitlines()[1:]
        assert {line.split()[0] for line in neighbours} == {
            host.address for host in network.hosts if host.rank != 1
        }
        assert all(line.split()[2] == "0x6" for line in neighbours)  # permanent


def test_a_command_and_a_forked_child_live_in_their_host() -> None:
    with emulate(star(2, bandwidth=RATE)) as network:
        home = f"/var/run/netns/{network.hosts[1].namespace}"
        expected = os.stat(home).st_ino
        with network.inside(1):
            command = subprocess.run(["readlink", "/proc/self/ns/net"], capture_output=True, text=True)
        assert command.stdout == f"net:[{expected}]\n"
        child = os.fork()
        if child == 0:
            network.enter(1)
            os._exit(0 if os.stat("/proc/self/ns/net").st_ino == expected else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert os.stat("/proc/self/ns/net").st_ino != expected


def test_an_exception_takes_the_network_and_its_processes_down() -> None:
    processes = []

    def fail() -> None:
        with emulate(star(2, bandwidth=RATE)) as network, network.inside(0):
            processes.append(subprocess.Popen(["sleep", "600"]))
            raise RuntimeError("of the user")

    with pytest.raises(RuntimeError, match="of the user"):
        fail()
    assert processes[0].wait(5) == -signal.SIGKILL


@pytest.mark.slow
def test_a_forked_child_that_leaves_the_block_takes_nothing_down() -> None:
    script = """
import os, sys
from ringside.real.emulate import emulate
from ringside.topologies import star
with emulate(star(2, bandwidth=12.5e6)) as network:
    if os.fork() == 0:
        sys.exit(3)
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 3
    with network.inside(1):
        print("up")
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.stdout == "up\n"
    assert result.returncode == 0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, -signal.SIGINT), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_takes_the_network_and_its_processes_down(number: signal.Signals, code: int) -> None:
    def heard() -> None:
        signal.signal(number, signal.SIG_DFL)  # which nohup has its children ignore

    command = [sys.executable, "-c", OWNER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=heard) as owner:
        inhabitant = int(first_line(owner))
        owner.send_signal(number)
        assert owner.wait(10) == code
    assert is_gone(inhabitant)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("delay", [0.05, 0.15, 0.25, 0.35])
def test_a_signal_while_the_network_is_made_leaves_nothing(number: signal.Signals, delay: float) -> None:
    script = f"import ringside.real.emulate.build, ringside.real.emulate.stopping; print(flush=True)\n{OWNER}"
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as owner:
        first_line(owner)
        time.sleep(delay)
        owner.send_signal(number)
        assert owner.wait(10) == -number
    sweep()  # which the fixture holds to have removed all there was


def test_what_a_killed_owner_leaves_its_guard_removes() -> None:
    from ringside.real.emulate import namespaces

    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        inhabitant = int(first_line(owner))
        owner.kill()
    deadline = time.monotonic() + 20
    while not is_gone(inhabitant) or namespaces.orphaned():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_a_killed_owner_and_its_guard_leave_is_swept_with_its_processes() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        inhabitant = int(first_line(owner))
        assert sweep() == []  # its owner lives
        for guard in children(owner.pid) - {inhabitant}:
            os.kill(guard, signal.SIGKILL)
        owner.kill()
    assert not is_gone(inhabitant)
    names = sweep()
    assert sorted(name.rpartition("-")[2] for name in names) == ["fabric", "rank0", "rank1", "rank2"]
    assert is_gone(inhabitant)


def test_the_next_network_sweeps_what_a_killed_owner_leaves() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        inhabitant = int(first_line(owner))
        owner.kill()
    with emulate(star(1, bandwidth=RATE)):
        assert is_gone(inhabitant)


def test_a_second_network_in_one_process_is_refused_and_leaves_the_first() -> None:
    with emulate(star(2, bandwidth=RATE)) as network:
        with pytest.raises(ValueError, match="already"), emulate(star(2, bandwidth=RATE)):
            pass
        assert Path("/var/run/netns", network.fabric).exists()


def test_without_privileges_the_message_says_what_is_needed() -> None:
    # the other user may not read the checkout, so everything is read before
    script = f"""
import os, ringside.real.emulate.build, ringside.real.emulate.stopping
from ringside.topologies import check, star
check(star(3, bandwidth=12.5e6))
os.setuid(65534)
{OWNER}"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert result.returncode == 1
    assert "ValueError: no emulated network on this machine" in result.stderr
    assert "CAP_NET_ADMIN" in result.stderr


def first_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def children(process: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()}


def is_gone(process: int) -> bool:
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"
