"""The shape of an action: the properties that ranks of one role have in common."""

from typing import Any

from ringside.sim.program.operations import Call, Compute, Group, Join, Lost, Raise, Recv, Send, Together

ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Collectives in which one rank differs from the others."""


BARRIERS = ("barrier", "monitored_barrier")
"""Calls that move nothing; only with NCCL they are an all_reduce."""


def shape(action: Any) -> tuple[object, ...]:
    """Return an action without the identities of its peers and of its group."""
    return (type(action), *_figures(action))


def root(action: Any) -> int:
    """Return the rank at which a collective begins or ends, or -1 if it has none."""
    if isinstance(action, Call) and action.collective.kind in ROOTED:
        return action.group.ranks[action.collective.root]
    return -1


def _figures(action: Any) -> tuple[object, ...]:
    match action:
        case Compute(seconds):
            return (seconds,)
        case Call(group, name, collective):
            return (name, collective.kind, collective.nbytes, collective.redop, _kind(group))
        case Send(group, _, nbytes) | Recv(group, _, nbytes):
            return (nbytes, _kind(group))
        case Together(group, parts):
            return (_kind(group), *map(shape, parts))
        case Join(group):
            return (_kind(group),)
        case Raise(message) | Lost(_, message):
            return (message,)
    return ()


def _kind(group: Group) -> tuple[str, int, int]:
    return group.library, group.workers, len(group.ranks)
