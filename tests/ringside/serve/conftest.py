"""A server of the explorer in a process of its own, as a person starts it."""

import http.client
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from urllib.parse import urlencode, urlsplit

import pytest


@dataclass
class Served:
    """A started server, with its address."""

    process: subprocess.Popen
    address: str

    @property
    def host(self):
        return urlsplit(self.address).netloc

    def get(self, path, **headers):
        """Return the status, the headers and the text of a request to this host."""
        connection = http.client.HTTPConnection(self.host, timeout=60)
        connection.request("GET", path, headers={"Host": self.host} | headers)
        response = connection.getresponse()
        answer = response.status, dict(response.getheaders()), response.read().decode()
        connection.close()
        return answer

    def ask(self, screen, view, **state):
        """Return the messages about a view of a state."""
        path = f"{urlsplit(self.address).path}{screen}/{view}?{urlencode(state)}"
        status, _, text = self.get(path)
        assert status == 200, text
        return [json.loads(line) for line in text.splitlines()]

    def end(self, number=signal.SIGINT):
        """Send a signal; return the exit code and what stands on stderr."""
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=15)
        return self.process.returncode, err


def start(*words, cwd=None):
    """Start a server; return it once it has printed its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ringside", "serve", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
        env={**os.environ, "PYTHONUNBUFFERED": "1"}, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # which nohup has ignored
    )  # fmt: skip
    address = process.stdout.readline().strip()
    assert address.startswith("http://127.0.0.1:"), process.stderr.read()
    return Served(process, address)


@pytest.fixture(scope="session")
def served():
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra serve)")
    server = start()
    yield server
    server.end()


@pytest.fixture
def started():
    """Start servers that end with the test."""
    pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra serve)")
    servers = []

    def begin(*words, **settings):
        servers.append(start(*words, **settings))
        return servers[-1]

    yield begin
    for server in servers:
        if server.process.poll() is None:
            server.end(signal.SIGKILL)
