"""What ``--cluster NAME[:COUNT]|FILE --set key=value`` means: a topology by name, or from a file."""

import inspect
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from topologies import described
from topologies.catalogue import made, make, maker_of, split
from topologies.disk import regular
from topologies.file import read
from topologies.graph import Topology, TopologyError
from topologies.importers import importer


def load(
    cluster: str,
    values: Mapping[str, str] | None = None,
    *,
    ranks: int | None = None,
    nodes: int | None = None,
) -> Topology:
    """The topology that ``--cluster`` names: ``star:64``, ``dgx-h100``, a YAML file or a machine's file.

    In place of a YAML file's own count of machines, ``FILE:4`` counts where the file describes one machine
    (`topologies.described`); ``values`` change its keys.
    A machine's file is NCCL_TOPO_DUMP_FILE's XML or the table of ``nvidia-smi topo -m``, known by what
    is in it; ``FILE:4`` joins four such machines. Where the name carries no count, ``ranks`` or
    ``nodes`` gives it, whichever the topology counts.
    """
    name, count = split(cluster)
    if name.endswith((".yaml", ".yml")) or Path(name).is_file():
        return _from_file(Path(name), count, nodes, values)
    counted = next(iter(inspect.signature(maker_of(name)).parameters))
    implied = {"ranks": ranks, "nodes": nodes}.get(counted) if counted not in (values or {}) else None
    return make(name, implied if count is None else count, values)


def _from_file(
    path: Path, count: int | None, nodes: int | None, values: Mapping[str, str] | None
) -> Topology:
    text = ""
    with suppress(OSError):  # what cannot be read is refused below, in words
        text = regular(path).read_bytes().decode("utf-8", "replace")
    maker = importer(text)
    if maker:
        graph = made(str(path), maker, nodes if count is None else count, values)
        graph.graph.update(name=path.stem, file=str(path))
        return graph
    if (content := described.content_of(text)) is not None:
        return described.topology(content, str(path), count, values)
    if values:
        raise TopologyError(f"{path}: a file has no settings; change the file in place of --set")
    if count is not None:
        raise TopologyError(f"{path}: a YAML file holds all its machines; leave the count {count} out")
    return read(path)
