"""The settings of a logged job: its release, and the variables that it had in its environment."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ringside.sim.libraries.nccl.communicator import MAX_CHANNELS, Settings
from ringside.sim.libraries.nccl.pins import Pins


def _channels(text: str) -> int:
    return min(max(int(text), 1), MAX_CHANNELS)


_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "NCCL_MIN_NCHANNELS": ("min_ctas", _channels),
    "NCCL_MAX_NCHANNELS": ("max_ctas", _channels),
    "NCCL_MIN_CTAS": ("min_ctas", _channels),
    "NCCL_MAX_CTAS": ("max_ctas", _channels),
    "NCCL_NVLS_ENABLE": ("nvls", lambda text: text != "0"),
    "NCCL_PAT_ENABLE": ("pat", lambda text: {"0": False, "1": True}.get(text)),
    "NCCL_NET_OVERHEAD": ("net_overhead_us", lambda text: float(text) / 1e3),
    "NCCL_COLLNET_NODE_THRESHOLD": ("collnet_node_threshold", int),
}
"""The field of `Settings` that a variable sets, and how its text is read."""

_PINS = {"NCCL_ALGO": "algorithm", "NCCL_PROTO": "protocol"}

_LEFT_OUT = ("NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_NTHREADS")
"""Variables that change times and that the model does not know."""


def logged_settings(variables: Mapping[str, str], version: str, given: Settings) -> tuple[Settings, str]:
    """Return the settings, the log's where ``given`` has NCCL's defaults, and a sentence about them."""
    usual, used = Settings(), []
    changed: dict[str, Any] = {}
    if version and given.version == usual.version:
        changed["version"] = version
        used.append(f"NCCL {version}")
    pins = {field: getattr(given.pins, field) or variables.get(name, "") for name, field in _PINS.items()}
    used += [
        f"{name}={variables[name]}" for name, field in _PINS.items() if pins[field] == variables.get(name)
    ]
    for name, (field, read) in _FIELDS.items():
        if name in variables and getattr(given, field) == getattr(usual, field):
            try:
                changed[field] = read(variables[name])
            except ValueError:
                raise ValueError(
                    f"the log has {name}={variables[name]}; expected a number: leave the line out"
                ) from None
            used.append(f"{name}={variables[name]}")
    left = [f"{name}={variables[name]}" for name in _LEFT_OUT if name in variables]
    texts = [f"settings of the log: {', '.join(used)}" if used else ""]
    texts += [f"not modelled of the log's settings: {', '.join(left)}"] if left else []
    return replace(given, pins=Pins(**pins), **changed), "; ".join(filter(None, texts))
