"""Topologies from the output of NVIDIA's tools; the tool is recognised by the text."""

from collections.abc import Callable
from functools import partial

from ringside.topologies.graph import Topology
from ringside.topologies.importers import nccl_xml, nvidia_smi


def importer(text: str) -> Callable[..., Topology] | None:
    """Return the maker of a topology from this text, given a count of machines and settings, or None."""
    if text.lstrip().startswith("<"):
        return partial(nccl_xml.topology, text)
    if nvidia_smi.is_matrix(text):
        return partial(nvidia_smi.topology, text)
    return None
