"""Whether ranks reduce their gradients in some groups, which is the evidence that they are data-parallel.

What a step reduces or scatters there, in elements that each rank keeps, is as much as its optimizer updates,
or as the parameters that it holds. Ranks that exchange activations, as in tensor parallelism, reduce another
number of elements.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from math import isclose

from ringside.sim.recorded.job import Action, GroupCall, Operator, RecordedJob, RecordedRank, itemsize
from ringside.sim.recorded.kernels import is_of_lists, short_name

ROUNDING = 0.01
"""Share by which sums of bytes or elements may differ: allocations are rounded, norms and losses reduced."""

PARAMETER = (2, 4)
"""Bytes that are held of a parameter's element."""

WRITTEN = {"_foreach_": (1,), "_fused_": (2, 3, 4)}
"""Tensors that list operators write of each parameter: fused ones write gradients and states too."""


def elements(call: GroupCall) -> int:
    """Return the elements of a call's bytes."""
    return call.nbytes // itemsize(call.dtype)


def are_reduced(job: RecordedJob, groups: Mapping[str, int]) -> bool:
    """Return whether every rank with parameters reduces its gradients in these groups, given their sizes."""
    training = [one for one in job.recorded if one.held.get("parameters")]
    return bool(training) and all(_reduces_all(one, groups) for one in training)


def _reduces_all(one: RecordedRank, groups: Mapping[str, int]) -> bool:
    actions = [one.actions[entry.action] for entry in one.entries]
    kept = sum(_kept(action, groups) for action in actions)
    return any(kept and isclose(own, kept, rel_tol=ROUNDING) for own in _parameters(one, actions))


def _kept(action: Action, groups: Mapping[str, int]) -> float:
    """Return the elements that a rank keeps of a reduction in these groups."""
    if not (isinstance(action, GroupCall) and action.group in groups and "float" in action.dtype):
        return 0
    share = {"all_reduce": 1.0, "reduce_scatter": 1 / groups[action.group]}
    return elements(action) * share.get(action.collective, 0)


def _parameters(one: RecordedRank, actions: list[Action]) -> Iterator[float]:
    """Yield what may be the elements of all parameters with gradients."""
    yield from (one.held["parameters"] / nbytes for nbytes in PARAMETER)
    updated: Counter[str] = Counter()
    for action in actions:
        if isinstance(action, Operator) and is_of_lists(action):
            updated[short_name(action)] += sum(tensor.elements for tensor in action.outputs)
    for kind, written in WRITTEN.items():
        for count in (count for name, count in updated.items() if name.startswith(kind)):
            yield from (count / tensors for tensors in written)
