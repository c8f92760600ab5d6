"""Which of NCCL's and NVIDIA's files a text is, by its content."""

import re
from typing import Literal

from ringside.topologies.importers import nvidia_smi

Kind = Literal["topology", "graphs", "table", "log"]

WHAT: dict[Kind, str] = {
    "topology": "a topology file (NCCL_TOPO_DUMP_FILE)",
    "graphs": "a graph file (NCCL_GRAPH_DUMP_FILE)",
    "table": "a table of nvidia-smi topo -m",
    "log": "a log (NCCL_DEBUG=INFO)",
}

_ROOT = re.compile(r"<(\w[\w.:-]*)")
_ROOTS: dict[str, Kind] = {"system": "topology", "graphs": "graphs"}


def is_amds(text: str) -> bool:
    """Return whether a topology file is of a machine with AMD GPUs, on which RCCL runs and not NCCL."""
    return re.search(r"<xgmi\b|<gpu\b[^>]*\sgcn=", text) is not None


def file_kind(text: str) -> Kind | None:
    """Return the kind of file, ``None`` if it is none of them; a table in a job's log makes it a table."""
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        root = _ROOT.search(text)
        return _ROOTS.get(root[1]) if root else None
    if nvidia_smi.is_matrix(text):
        return "table"
    return "log" if re.search(r"\bNCCL (INFO|WARN|TRACE) ", text) else None
