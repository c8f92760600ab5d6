"""``ringside pick --tuner-csv``: the winners as rules for a tuner plugin of NCCL."""

from pathlib import Path

from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.libraries.nccl.files.rules import own_stretches, picked_stretches, tuner_csv, tuner_json
from ringside.sim.pick import Pair
from ringside.sim.questions.algorithm_choice import AlgorithmPicks
from ringside.topologies.disk import write_file
from ringside.topologies.units import format_size


def write_rules(answer: AlgorithmPicks, path: Path) -> list[str]:
    """Write rules of NCCLX's tuner (.json) or of NCCL's example plugin; return the differences from NCCL.

    Rules by NCCL's own times are exact. By measured times they keep NCCL's own choice unless it certainly
    loses.
    """
    question = answer.question
    if not answer.library.has_tuner:
        title = LIBRARIES[answer.library.name].title
        raise ValueError(f"NCCL's tuner has no algorithms of {title}; write --library nccl")
    comms = {nodes: one.comm for nodes, one in answer.libraries.items() if one.comm}
    kind, types = question.collective, (question.dtype, question.redop)
    stretches = {}
    for nodes, comm in comms.items():

        def winners(sizes: list[int], nodes: int = nodes) -> list[Pair]:
            return [one.pair if question.times else one.advised for one in answer.picked([nodes], sizes)]

        if not answer.is_measured and question.times in (None, "tuner"):
            stretches[nodes] = own_stretches(comm, kind, *types)
        else:
            stretches[nodes] = picked_stretches(comm, kind, question.sizes, winners, *types)
    is_json = path.suffix == ".json"
    rules = tuner_json(comms, kind, stretches) if is_json else tuner_csv(comms, kind, stretches, *types)
    write_file(path, rules)
    return _departures(answer, path) if answer.is_measured else []


def _departures(answer: AlgorithmPicks, path: Path) -> list[str]:
    """Describe the differences of the rules from NCCL's own choice, a sentence for each node count."""
    sentences = []
    for nodes in answer.libraries:
        moved = [one for one in answer.picks if one.nodes == nodes and one.advised != one.default]
        where = ", ".join(f"{format_size(one.nbytes)} {'/'.join(one.advised)}" for one in moved) or "nowhere"
        sentences.append(
            f"{path}: rules by measured times on {nodes} nodes: {where}; elsewhere NCCL's own choice"
        )
    return sentences
