"""Picks as rules for NCCL's example tuner plugin (plugins/tuner/example/plugin.c, v2.30.7).

    collective,min_bytes,max_bytes,algorithm,protocol,channels,nodes,ranks,pipe_ops,reg_buff

The first rule that matches wins. What to avoid:

- The plugin asks for one channel wherever no rule matches or a rule says -1. So every rule names
  its channels, every other collective gets the rules of NCCL's own choice, and one last rule for
  each collective catches all that is left, with a ring, which is always available.
- It knows no header, takes unknown words for allreduce, ring or simple, and breaks lines at 255 characters.
- Ranges include both ends and leave no gap: from 0 to the largest unsigned 64-bit number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.names import FUNCTIONS, check_function
from sim.libraries.nccl.tuning.channels import launch
from sim.libraries.nccl.tuning.tuner import cost_table
from sim.pick import Pair, Pick

MAX_BYTES = 2**64 - 1

ANY = -1


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of the plugin's file."""

    kind: str
    min_bytes: int
    max_bytes: int
    algorithm: str
    protocol: str
    channels: int
    nodes: int = ANY
    ranks: int = ANY

    def __str__(self) -> str:
        fields = (self.kind.replace("_", ""), self.min_bytes, self.max_bytes, self.algorithm, self.protocol)
        return ",".join(map(str, (*fields, self.channels, self.nodes, self.ranks, ANY, ANY)))


def tuner_csv(
    comms: Mapping[int, Communicator],
    kind: str,
    picks: Sequence[Pick],
    dtype: str = "float32",
    redop: str = "sum",
) -> str:
    """The file, ready for NCCL_TUNER_CONFIG_FILE; ``comms`` by node count, ``picks`` those of ``kind``.

    A size between two that were picked for goes with the smaller one.
    """
    check_function(kind)
    counts = sorted({pick.nodes for pick in picks})
    if not counts:
        raise ValueError("no picks to write rules of; pick for at least one node count and size")
    rules: list[Rule] = []
    for nodes in counts:
        comm, mine = comms[nodes], [pick for pick in picks if pick.nodes == nodes]
        for other in (kind, *(name for name in FUNCTIONS if name != kind)):
            pairs = {pick.nbytes: pick.pair for pick in mine}
            if other != kind:
                pairs = {nbytes: _own_choice(comm, other, nbytes, dtype, redop) for nbytes in pairs}
            rules += _rules(comm, other, pairs)
    most = comms[counts[-1]].channels
    rules += [Rule(name, 0, MAX_BYTES, "ring", "simple", most) for name in FUNCTIONS]
    return "".join(f"{line}\n" for line in (*_header(comms, kind, counts), *rules))


def _header(comms: Mapping[int, Communicator], kind: str, counts: list[int]) -> Iterator[str]:
    comm = comms[counts[0]]
    yield f"# {kind} as picked by Ringside for {comm.system.name}, {comm.gpus} GPUs a node."
    yield "# The other collectives keep NCCL's own choice. A node count without rules gets the last ones:"
    yield "# pick for every count that you run."


def _own_choice(comm: Communicator, kind: str, nbytes: int, dtype: str, redop: str) -> Pair:
    choice = cost_table(comm, kind, dtype, redop).choose(nbytes)
    return choice.algorithm, choice.protocol


def _rules(comm: Communicator, kind: str, pairs: Mapping[int, Pair]) -> list[Rule]:
    """One collective's rules on one communicator: a new one where the pair or its channels change."""
    rules: list[Rule] = []
    for nbytes, (algorithm, protocol) in sorted(pairs.items()):
        channels, _ = launch(comm, algorithm, protocol, nbytes)
        new = Rule(kind, nbytes, MAX_BYTES, algorithm, protocol, channels, comm.nodes, comm.ranks)
        if not rules:
            rules.append(replace(new, min_bytes=0))
        elif replace(rules[-1], min_bytes=nbytes) != new:
            rules[-1] = replace(rules[-1], max_bytes=nbytes - 1)
            rules.append(new)
    return rules
