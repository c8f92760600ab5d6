"""The process groups of torch.distributed: rules of how operations queue, match and end."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """One backend's rules; ``workers`` operations of a member may run at once.

    ``on_stream``: operations, messages too, run one after another on a GPU's stream while the host goes on,
    as NCCL's; else threads of the host carry them out, as Gloo's.
    """

    name: str
    workers: int
    on_stream: bool


GLOO = Rules("gloo", workers=2, on_stream=False)
"""ProcessGroupGloo has two threads that run collectives from one queue (``Options.threads``)."""

NCCL = Rules("nccl", workers=1, on_stream=True)
"""ProcessGroupNCCL has one stream for each group and device."""

RENDEZVOUS = 1
"""One-way latencies before the first message of a collective over Gloo can leave."""

RULES = {rules.name: rules for rules in (GLOO, NCCL)}


def rules_of(backend: str | None) -> Rules:
    """Return a backend's rules: Gloo's, or NCCL's, which are assumed for every other one."""
    return RULES.get(backend or "", NCCL)
