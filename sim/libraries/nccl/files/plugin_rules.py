"""Picks as rules of tuner plugins: NCCL's example plugin, and the tuner that is built into NCCLX.

NCCL's example plugin (plugins/tuner/example/plugin.c, v2.30.7) reads CSV:

    collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks,pipe_ops,reg_buff

The first rule that matches wins. Pitfalls:

- The plugin requests one channel if no rule matches or a rule has -1. So every rule names
  NCCL's own number of channels, and the other collectives of the same communicators get rules with NCCL's
  own choice. Communicators without rules keep NCCL's algorithm, but have one channel until the
  plugin is built with ``*nChannels = 0``, which leaves the number to NCCL.
- It knows no header, reads unknown names as allreduce, ring or simple, and breaks lines at 255 characters.
- Ranges include both ends and leave no gap: from 0 to the largest unsigned 64-bit number.

NCCLX reads JSON (github.com/meta-pytorch/torchcomms, comms/ncclx/meta/tuner/README.md). Where no rule
matches, NCCL's choice holds, as do its channels for rules that name none. So only picked sizes have rules.
Sizes there are bytes per rank: a boundary is exact to one byte per rank.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.files.rules import MOST, Stretch, own_stretches, with_channels
from ringside.sim.libraries.nccl.names import FUNCTIONS
from ringside.sim.libraries.nccl.tuner import check_function

MAX_BYTES = 2**64 - 1

ANY = -1


def tuner_csv(
    comms: Mapping[int, Communicator],
    kind: str,
    picked: Mapping[int, Sequence[Stretch]],
    dtype: str = "float32",
    redop: str = "sum",
) -> str:
    """Return the file's text for NCCL_TUNER_CONFIG_FILE; ``comms`` and ``picked`` pairs by node count."""
    check_function(kind)
    if not picked:
        raise ValueError("no picks to write rules of; pick for at least one node count and size")
    lines = list(_header(next(iter(comms.values())), kind))
    for nodes, stretches in sorted(picked.items()):
        comm = comms[nodes]
        lines += _csv_rules(comm, kind, stretches)
        for other in FUNCTIONS:
            if other != kind:
                lines += _csv_rules(comm, other, own_stretches(comm, other, dtype, redop))
    return "".join(f"{line}\n" for line in lines)


def _header(comm: Communicator, kind: str) -> Iterator[str]:
    yield f"# {kind} as picked by Ringside for {comm.system.name[:80]}, {comm.gpus} GPUs a node."
    yield "# The other collectives keep NCCL's own choice, and so do communicators without rules here; for"
    yield "# their channels build the plugin with *nChannels = 0 in place of 1 in pluginGetCollInfo."


def _csv_rules(comm: Communicator, kind: str, stretches: Sequence[Stretch]) -> Iterator[str]:
    for stretch in with_channels(comm, stretches):
        most = MAX_BYTES if stretch.max_bytes == MOST - 1 else stretch.max_bytes
        where = kind.replace("_", ""), stretch.min_bytes, most
        yield ",".join(map(str, (*where, *stretch.pair, stretch.channels, comm.nodes, comm.ranks, ANY, ANY)))


def tuner_json(comms: Mapping[int, Communicator], kind: str, picked: Mapping[int, Sequence[Stretch]]) -> str:
    """Return the file's text for NCCLX_TUNER_CONFIG_FILE; ``comms`` and ``picked`` pairs by node count."""
    check_function(kind)
    if not picked:
        raise ValueError("no picks to write rules of; pick for at least one node count and size")
    rules = [
        rule
        for nodes, stretches in sorted(picked.items())
        for rule in _json_rules(comms[nodes], kind, stretches)
    ]
    return json.dumps({"rules": rules}, indent=2) + "\n"


def _json_rules(comm: Communicator, kind: str, stretches: Sequence[Stretch]) -> list[dict[str, object]]:
    rules = []
    for stretch in stretches:
        least = (stretch.min_bytes + comm.ranks // 2) // comm.ranks
        end = (stretch.max_bytes + 1 + comm.ranks // 2) // comm.ranks
        if end == least:
            continue
        bounds = f"[{least},)" if stretch.max_bytes == MOST - 1 else f"[{least},{end - 1}]"
        algorithm, protocol = stretch.pair
        rules.append(
            {
                "filter": {
                    "collective": kind.replace("_", ""),
                    "bytesPerRank": bounds,
                    "nNodes": comm.nodes,
                    "nLocalRanks": comm.gpus,
                },
                "config": {"algorithm": algorithm, "protocol": protocol},
            }
        )
    return rules
