"""Topologies out of what NVIDIA's tools write about a machine; the text itself says which tool it was."""

from collections.abc import Callable
from functools import partial

from ringside.topologies.graph import Topology
from ringside.topologies.importers import nccl_xml, nvidia_smi


def importer(text: str) -> Callable[..., Topology] | None:
    """What makes a topology of this text, given a count of machines and settings, if anything does."""
    if text.lstrip().startswith("<"):
        return partial(nccl_xml.topology, text)
    if nvidia_smi.is_matrix(text):
        return partial(nvidia_smi.topology, text)
    return None
