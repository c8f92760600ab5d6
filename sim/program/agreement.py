"""How libraries react when members of a group make different calls, and which ranks may leave early.

Gloo matches collectives by kind and number. Calls of the same kind match (its reduce_scatter is an
all_reduce); others wait forever. Gloo sends no sizes ahead: a rank that receives more than its buffer holds
is killed, a rank that receives less is not notified. Each rank cuts a ring by its own size, so where sizes
differ the other ranks' messages are too large or missing. NCCL has no barrier: torch's is an all_reduce of
four bytes.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from ringside.sim.collective import Collective
from ringside.sim.libraries import gloo
from ringside.sim.program.operations import BARRIERS, ROOTED, Action, Call, Join, Send, Together

EAGER = 16 * 1024
"""Bytes of a message that NCCL may push into its buffer before the receive is posted: up to this size it
sends by LL (NCCL_P2P_LL_THRESHOLD, src/enqueue.cc)."""

MOST_FOLLOWED = 64
"""Largest broadcast, in ranks, whose meetings are followed one by one; in a larger one all wait for all."""

IDLE = ("all_reduce", "reduce", "all_gather", "reduce_scatter")
"""Collectives that Gloo returns from at once when there are no bytes to move."""

FITS = {
    "broadcast": lambda size, of_root: size >= of_root,
    "scatter": lambda size, of_root: size >= of_root,
    "gather": lambda size, of_root: size <= of_root,
}
"""Whether a member's size matches that of Gloo's root, the only rank it exchanges messages with."""


class Agreement(NamedTuple):
    """The outcome of one call of a group.

    ``meets`` is true where the members take part in one collective. ``doubt`` is a warning about a call that
    ends. The library kills the member ``killed``; unless that is ``certain`` the collective may hang instead.
    """

    meets: bool = True
    doubt: str = ""
    killed: int | None = None
    certain: bool = True


ALIKE = Agreement()


def agreement(called: Mapping[int, Action]) -> Agreement:
    """Decide what happens to a call of a group, given the calls of the members that have arrived."""
    first, *others = called.values()
    if isinstance(first, Join) or all(action is first for action in others):
        return ALIKE
    if any(isinstance(action, Together) for action in called.values()):
        return _unequal_parts(called)
    calls = {rank: action for rank, action in called.items() if isinstance(action, Call)}
    group = next(iter(calls.values())).group
    return (_by_nccl if group.rules.on_stream else _by_gloo)(calls)


def _by_gloo(called: Mapping[int, Call]) -> Agreement:
    slots = {rank: _slot(call) for rank, call in called.items()}
    apart = [
        {rank: called[rank] for rank in called if slots[rank] == slot}
        for slot in dict.fromkeys(slots.values())
    ]
    killed = [outcome for outcome in map(_of_one_slot, apart) if outcome.killed is not None]
    if len(apart) > 1:
        return killed[0]._replace(certain=False) if killed else Agreement(meets=False)
    return _of_one_slot(called)


def _of_one_slot(called: Mapping[int, Call]) -> Agreement:
    if len({call.collective.nbytes for call in called.values()}) > 1:
        return _sizes_differ(called)
    return _silent_mismatch(called)


def _slot(call: Call) -> tuple[str, int]:
    """Return what Gloo's calls must share to meet: the kind that is carried out, and the root."""
    kind = call.collective.kind
    if call.name in BARRIERS:
        kind = call.name
    elif kind == "reduce_scatter":
        kind = "all_reduce"
    return kind, call.collective.root if kind in ROOTED else 0


def _by_nccl(called: Mapping[int, Call]) -> Agreement:
    first, *others = called.values()
    if any(call.collective != first.collective for call in others):
        return Agreement(meets=False)
    return _silent_mismatch(called)


def _silent_mismatch(called: Mapping[int, Call]) -> Agreement:
    """Return the doubt about calls that meet although they differ."""
    names = {rank: _word(call) for rank, call in called.items()}
    if len(set(names.values())) == 1:
        return ALIKE
    first, name = next(iter(names.items()))
    other = next(rank for rank in names if names[rank] != name)
    library = called[first].group.library
    return Agreement(
        doubt=f"rank {first} calls {name} where rank {other} calls {names[other]}; {library} treats them as "
        "the same without an error"
    )


def _word(call: Call) -> str:
    """Describe the difference of a call from others that its library treats as the same."""
    collective = call.collective
    if call.name in (*BARRIERS, "reduce_scatter"):
        return call.name
    reduces = collective.kind in ("all_reduce", "reduce", "reduce_scatter")
    return collective.kind + (f" by {collective.redop}" if reduces else "")


def _sizes_differ(called: Mapping[int, Call]) -> Agreement:
    first = next(iter(called.values()))
    sizes = {rank: call.collective.nbytes for rank, call in called.items()}
    fits = FITS.get(first.collective.kind)
    text = f"sizes of {first.name} differ: " + ", ".join(
        f"{size} bytes on rank {rank}" for rank, size in sorted(sizes.items())[:4]
    )
    if fits is None:
        odd = next(rank for rank, size in sizes.items() if size != first.collective.nbytes)
        text += "; Gloo kills a rank that receives more than its buffer holds, and others may wait forever"
        return Agreement(doubt=text, killed=odd, certain=False)
    root = first.group.ranks[first.collective.root]
    if root not in sizes:
        return ALIKE
    odd_ones = [rank for rank in sizes if not fits(sizes[rank], sizes[root])]
    if odd_ones:
        text += "; Gloo kills a rank that receives more than its buffer holds"
        return Agreement(doubt=text, killed=odd_ones[0])
    return Agreement(doubt=f"{text}; Gloo fills part of the buffer silently")


def _unequal_parts(called: Mapping[int, Action]) -> Agreement:
    """Decide Gloo's all-to-alls with unequal parts: each pair of ranks exchanges two messages."""
    sent: dict[tuple[int, int], int] = {}
    room: dict[tuple[int, int], int] = {}
    for rank, action in called.items():
        if isinstance(action, Together):
            for part in action.parts:
                if isinstance(part, Send):
                    sent[rank, part.peer] = part.nbytes
                else:
                    room[part.peer, rank] = part.nbytes
        elif isinstance(action, Call) and action.collective.kind == "all_to_all":
            each = action.collective.nbytes // action.collective.ranks
            for peer in action.group.members - {rank}:
                sent[rank, peer] = room[peer, rank] = each
        else:
            return Agreement(meets=False)
    for (src, dst), nbytes in sent.items():
        if nbytes > room.get((src, dst), nbytes):
            text = (
                f"all_to_all_single sends {nbytes} bytes from rank {src} to rank {dst}, which has room for "
            )
            return Agreement(doubt=f"{text}{room[src, dst]}; Gloo kills it", killed=dst)
    if all(isinstance(action, Together) for action in called.values()):
        return ALIKE
    equal = next(rank for rank, action in called.items() if isinstance(action, Call))
    other = next(rank for rank, action in called.items() if isinstance(action, Together))
    return Agreement(
        doubt=f"all_to_all_single has equal parts on rank {equal} and lists of parts on rank {other}"
    )


def needs(call: Action, rank: int) -> frozenset[int]:
    """Return the members that must arrive before a rank can leave a call in this library.

    Gloo's messages wait for their receiver, so both sides of a transfer have progressed equally far. NCCL's
    root of a small broadcast, and the senders of a small reduce, wait for no other rank.
    """
    if not isinstance(call, Call):
        assert isinstance(call, Join | Together)
        return call.group.members
    group, _, collective = call
    members = group.members
    root = group.ranks[collective.root]
    if not group.rules.on_stream:
        if not collective.nbytes and collective.kind in IDLE and call.name not in BARRIERS:
            return frozenset({rank})
        if collective.kind in ("gather", "scatter"):
            return members if rank == root else frozenset({root, rank})
        if collective.kind == "broadcast" and len(members) <= MOST_FOLLOWED:
            met = _met(len(group.ranks), collective.root)[group.ranks.index(rank)]
            return frozenset(group.ranks[other] for other in met)
        return members
    if collective.nbytes <= EAGER and collective.kind == "broadcast":
        return frozenset({root, rank})
    if collective.nbytes <= EAGER and collective.kind == "reduce" and rank != root:
        return frozenset({rank})
    return members


@lru_cache(maxsize=1024)
def _met(ranks: int, root: int) -> tuple[frozenset[int], ...]:
    """Return the ranks that have synchronized with each rank at the end of Gloo's broadcast."""
    met = [frozenset({rank}) for rank in range(ranks)]
    plan = gloo.schedule(Collective("broadcast", ranks, ranks, root=root), "auto")
    for step in plan.steps():
        for src, dst in zip(step.src.tolist(), step.dst.tolist(), strict=True):
            met[src] = met[dst] = met[src] | met[dst]
    return tuple(met)
