"""Detect data-parallel groups of a recorded job: those in which ranks reduce their gradients.

The all-reduces and reduce-scatters of a step in these groups leave each rank as many elements as its
optimizer updates, or as its parameters have. Groups that exchange activations, as in tensor parallelism,
do not.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from math import isclose

from ringside.sim.recorded.job import Action, GroupCall, Operator, RecordedJob, RecordedRank, itemsize
from ringside.sim.recorded.kernels import is_of_lists, short_name

ROUNDING = 0.01
"""Relative tolerance of these sums: allocations are rounded, and norms and losses are reduced as well."""

PARAMETER = (2, 4)
"""Bytes of a parameter's element."""

WRITTEN = {"_foreach_": (1,), "_fused_": (2, 3, 4)}
"""Number of tensors that a list operator writes per parameter: fused ones write gradients and states too."""


def elements(call: GroupCall) -> int:
    """Return the elements of a call's bytes."""
    return call.nbytes // itemsize(call.dtype)


def are_reduced(job: RecordedJob, groups: Mapping[str, int]) -> bool:
    """Return whether every rank with parameters reduces its gradients in these groups, given by size."""
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
    """Yield estimates of the number of elements of all parameters with gradients."""
    yield from (one.held["parameters"] / nbytes for nbytes in PARAMETER)
    updated: Counter[str] = Counter()
    for action in actions:
        if isinstance(action, Operator) and is_of_lists(action):
            updated[short_name(action)] += sum(tensor.elements for tensor in action.outputs)
    for kind, written in WRITTEN.items():
        for count in (count for name, count in updated.items() if name.startswith(kind)):
            yield from (count / tensors for tensors in written)
