"""The rendezvous of ranks on one machine: torch's stores, listening on the loopback address alone.

``python -m ringside.real.launch.loopback`` is torchrun with such stores; ranks call `join`.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore
from torch.distributed import run
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousParameters,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import C10dRendezvousBackend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import create_handler

from ringside.real.launch.torchrun import LOOPBACK


class _Backend(C10dRendezvousBackend):
    """Torch's own backend, under the name passed to torchrun."""

    NAME = "loopback"

    @property
    def name(self) -> str:
        return self.NAME


def main() -> None:
    """Run torchrun with the arguments of the command line."""
    rendezvous_handler_registry.register(_Backend.NAME, _meet)
    run.main()


@contextmanager
def joined(backend: str, timeout_s: float, device: torch.device | None = None) -> Iterator[None]:
    """Be in the process group that torchrun's environment variables describe."""
    join(backend, timeout_s, device)
    try:
        yield
    finally:
        dist.destroy_process_group()


def join(backend: str, timeout_s: float, device: torch.device | None = None) -> None:
    """Join the process group that torchrun's environment variables describe."""
    timeout = timedelta(seconds=timeout_s)
    own: dict[str, Any] = {}
    if os.environ["MASTER_ADDR"] == LOOPBACK and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        rank, ranks, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
        store = (_asked if rank else _hosted)(port, world_size=ranks, timeout=timeout)
        own = {"store": store, "rank": rank, "world_size": ranks}
    dist.init_process_group(backend, timeout=timeout, device_id=device, **own)


def _meet(parameters: RendezvousParameters) -> RendezvousHandler:
    """Return torch's rendezvous of agents, which the first one hosts, along with the store of the ranks."""
    port = int(parameters.endpoint.rpartition(":")[2])
    try:
        store = _hosted(port, multi_tenant=True)
    except OSError:  # another agent of this machine has the port
        store = _asked(port)
    handler = create_handler(store, _Backend(store, parameters.run_id), parameters)
    vars(handler)["_create_tcp_store_server"] = lambda _, port: _hosted(port, multi_tenant=True)
    return handler


def _hosted(port: int, **settings: Any) -> TCPStore:
    """Return a store hosted by this process, on any port for 0. Raise OSError where the port is in use."""
    listener = socket.create_server((LOOPBACK, port))
    port = listener.getsockname()[1]
    return TCPStore(LOOPBACK, port, is_master=True, master_listen_fd=listener.detach(), **settings)


def _asked(port: int, **settings: Any) -> TCPStore:
    """Return a store that another process hosts."""
    return TCPStore(LOOPBACK, port, is_master=False, **settings)


if __name__ == "__main__":
    main()
