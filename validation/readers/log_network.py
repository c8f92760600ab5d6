"""The network that carried NCCL's traffic, from the NET lines of its log (NCCL_DEBUG=INFO) and of plugins."""

import re
from dataclasses import dataclass

KINDS = {
    "socket": "sockets",
    "efa": "EFA",
    "cxi": "Slingshot",
    "tcp": "sockets",
    "tcpx": "GPUDirect-TCPX",
    "fastrak": "FasTrak",
    "gib": "RoCE",
}
"""Networks by the names of providers and plugins."""

_CARDS = re.compile(r"NET/IB(?:ext\w*)? ?: Using (?P<cards>(?:\[\d+\]\S+ ?)+)")
_CARD = re.compile(r"\[\d+\]\S+?:\d+/(IB|RoCE)\b")
_SPEED = re.compile(r"NET/IB ?: \[\d+\] .*\bspeed=(\d{3,7})\b")
_OFI = re.compile(r"NET/OFI Selected [Pp]rovider is (?P<provider>\w+)")
_USED = re.compile(r"(?:Using network|Initialized NET plugin) (?P<network>\S.*)")
_INSTANCE = re.compile(r"NET/OFI Running on (?P<instance>\w+\.\w+) platform")
_TOPOLOGY = re.compile(r"NCCL_TOPO_FILE set by environment to \S*microsoft/(?P<instance>\w+)-topo\b")
_CLOUDS = {
    "AWS": re.compile(r"NET/OFI Selected [Pp]rovider is efa|\bip-\d+-\d+-\d+-\d+\b"),
    "GCP": re.compile(r"NET/(?:FasTrak|GPUDirectTCPX|gIB)|NCCL_(?:FASTRAK|GPUDIRECTTCPX)_", re.IGNORECASE),
    "Azure": re.compile(r"NCCL_TOPO_FILE(?:=| set by environment to )\S*microsoft/"),
}
CLOUDS = tuple(_CLOUDS)
"""Clouds that are known by what only their instances write."""


@dataclass(slots=True)
class LoggedNetwork:
    """What a log says of the network; empty and 0 where it says nothing.

    ``kind`` is the network that NCCL uses. ``cards`` are a node's cards of InfiniBand or RoCE, whichever are
    more: the others carry storage. ``gbps`` is the rate of one in Gb/s. ``instance`` is one of ``cloud``.
    """

    kind: str = ""
    cards: int = 0
    gbps: float = 0.0
    cloud: str = ""
    instance: str = ""

    def hear(self, text: str) -> None:
        """Take what a line says."""
        if not self.cloud:
            self.cloud = next((name for name, written in _CLOUDS.items() if written.search(text)), "")
        if "NCCL INFO" not in text:
            return
        if match := _CARDS.search(text):
            layers = _CARD.findall(match["cards"])
            more = max(("IB", "RoCE"), key=layers.count)
            if layers.count(more) > self.cards:
                self.cards = layers.count(more)
                self.kind = "InfiniBand" if more == "IB" else more
        if match := _SPEED.search(text):
            self.gbps = max(self.gbps, float(match[1]) / 1e3)
        if match := _OFI.search(text):
            self.kind = KINDS.get(match["provider"], self.kind)
        if match := _INSTANCE.search(text) or _TOPOLOGY.search(text):
            self.instance = match["instance"]
        if match := _USED.search(text):
            plugin = re.sub(r"_v\d+$", "", match["network"].lower()).removeprefix("gpudirect")
            self.kind = KINDS.get(plugin, self.kind)

    @property
    def facts(self) -> dict[str, str]:
        """What is known, as entries of a record's fingerprint."""
        known = {
            "network": self.kind,
            "cards": str(self.cards or "") if self.kind in ("InfiniBand", "RoCE") else "",
            "card_gbps": f"{self.gbps:g}" if self.gbps and self.cards else "",
            "cloud": self.cloud,
            "instance": self.instance,
        }
        return {name: text for name, text in known.items() if text}
