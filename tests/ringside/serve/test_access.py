"""Who may ask: this machine, with the token, from the explorer's own pages."""

import os
import signal
import socket
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

pytestmark = pytest.mark.slow

ASK = "collective/answer?collective=all_reduce&cluster=star&nodes=4&size=1M"


def test_the_token_opens_every_address_and_nothing_else_does(served):
    token = urlsplit(served.address).path
    assert served.get(f"{token}collective")[0] == 200
    assert served.get(f"{token}{ASK}")[0] == 200
    for path in ("", "collective", ASK, "explorer.js", "nothing"):
        for wrong in ("/", f"/{'x' * 22}/", token.upper(), f"//{token}", f"{token[:-2]}/"):
            if f"{wrong}{path}" != f"{token}{path}":
                status, _, text = served.get(f"{wrong}{path}")
                assert status == 403
                assert token.strip("/") not in text


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://example.com"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1"},
        {"Host": "example.com"},
        {"Host": "localhost:{port}"},
        {"Host": "127.0.0.1"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "empty"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Dest": "iframe"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document", "Origin": "http://example.com"},
    ],
    ids=str,
)
def test_another_origin_or_host_name_is_refused_with_the_token_too(served, headers):
    port = served.host.partition(":")[2]
    headers = {name: value.format(port=port) for name, value in headers.items()}
    for path in ("collective", ASK, "explorer.js"):
        status, answered, text = served.get(f"{urlsplit(served.address).path}{path}", **headers)
        assert status == 403
        assert "all_reduce" not in text
        assert "Access-Control-Allow-Origin" not in answered


def test_a_page_may_not_be_framed_nor_ask_another_server(served):
    _, headers, text = served.get(f"{urlsplit(served.address).path}collective")
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["referrer-policy"] == "no-referrer"
    assert "http://" not in text.replace("http://www.w3.org", "")


def test_only_this_machine_is_listened_to(served):
    port = int(served.host.partition(":")[2])
    rows = Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:]
    listening = [row.split()[1] for row in rows if row.split()[3] == "0A"]
    assert [one for one in listening if one.endswith(f":{port:04X}")] == [f"0100007F:{port:04X}"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_server_and_its_workers(started, number):
    server = started()
    server.ask("collective", "answer", collective="all_reduce", cluster="star", nodes="4", size="1M")
    children = processes_of(server.process.pid)
    assert len(children) >= 4
    assert server.end(number) == (0, "")
    until = time.monotonic() + 5
    while (left := [one for one in children if Path(f"/proc/{one}").exists()]) and time.monotonic() < until:
        time.sleep(0.05)
    assert left == []


def test_workers_end_with_a_server_that_is_killed(started):
    server = started()
    server.ask("collective", "answer", collective="all_reduce", cluster="star", nodes="4", size="1M")
    children = processes_of(server.process.pid)
    server.end(signal.SIGKILL)
    until = time.monotonic() + 10
    while (left := [one for one in children if is_alive(one)]) and time.monotonic() < until:
        time.sleep(0.05)
    assert left == []


def processes_of(session):
    """Return the processes of a session, but for its first."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if os.getsid(int(entry.name)) == session and int(entry.name) != session:
                    found.append(int(entry.name))
            except ProcessLookupError:
                continue
    return found


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").split()[2] != "Z"
    except FileNotFoundError:
        return False


def test_two_servers_at_once_and_a_port_that_is_taken(started, refused):
    one, two = started(), started()
    assert one.address != two.address
    assert urlsplit(one.address).path != urlsplit(two.address).path
    assert two.get(urlsplit(one.address).path)[0] == 403
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"--port {port}: Address already in use" in refused(f"serve --port {port}")
    assert "not a regular file" in refused("serve /dev/zero")
