"""Predict how long collective communication and distributed training take on a GPU cluster."""

from importlib import import_module
from typing import Any

_HOME = {
    "Collective": "sim.collective",
    "Prediction": "sim.predict",
    "Record": "sim.record",
    "Schedule": "sim.schedule",
    "load": "topologies",
    "predict": "sim.predict",
    "schedule": "sim.algorithms",
    "star": "topologies",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    """The public names, fetched when first asked for: ``import ringside`` stays quick."""
    if name not in _HOME:
        raise AttributeError(f"module 'ringside' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)
