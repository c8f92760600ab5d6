"""Picks as rules for the tuner that is built into NCCLX.

The first rule that matches wins. Where no rule matches NCCL's choice holds, as do its channels for
rules that name none. So only picked sizes have rules. Sizes there are bytes per rank: a boundary is met
to within one byte per rank (github.com/meta-pytorch/torchcomms, comms/ncclx/meta/tuner/README.md).
"""

import json
from collections.abc import Mapping, Sequence

from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.files.rules import MOST, Stretch
from ringside.sim.libraries.nccl.tuner import check_function


def tuner_json(comms: Mapping[int, Communicator], kind: str, picked: Mapping[int, Sequence[Stretch]]) -> str:
    """Return the file's text for NCCLX_TUNER_CONFIG_FILE; ``comms`` and ``picked`` pairs by node count."""
    check_function(kind)
    if not picked:
        raise ValueError("no picks to write rules of; pick for at least one node count and size")
    rules = [
        rule for nodes, stretches in sorted(picked.items()) for rule in _rules(comms[nodes], kind, stretches)
    ]
    return json.dumps({"rules": rules}, indent=2) + "\n"


def _rules(comm: Communicator, kind: str, stretches: Sequence[Stretch]) -> list[dict[str, object]]:
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
