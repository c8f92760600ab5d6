"""Priors of the parameters between nodes, learnt from measured machines on the same kind of network.

The posterior of a machine is divided by its prior, which leaves the information of its rows. Machines of
one network differ, so each weighs by its own uncertainty and by that difference (a random-effects mean:
DerSimonian and Laird, Controlled Clinical Trials 7, 1986, here with a given variance between machines).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ringside.sim.libraries.nccl.graph.system import System
from ringside.validation.nccl.priors import Prior, priors

DIFFER = 0.5
"""Deviation between machines of one network, as a share of a prior's own."""

INFORMED = 0.95
"""A parameter whose spread is below this share of its prior's has learned from the rows."""

_FARTHEST = 2.5
"""Deviations of the prior beyond which a machine's figure counts as that far."""

_BESIDE = ("tree_two", "tree_many", "tree_burst", "nvls_tree", "nvls_tree_many", "collnet")


@dataclass(frozen=True, eq=False, slots=True)
class Learnt:
    """Priors of a network: each parameter's value over the usual prior's, and its deviation in log time.

    ``machines`` are those whose rows it rests on.
    """

    machines: tuple[str, ...] = ()
    parameters: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def of(self, system: System) -> tuple[Prior, ...]:
        """Return the priors of a machine on this network."""
        return tuple(
            replace(prior, value=prior.value * factor, sigma=sigma)
            for prior in priors(system)
            for factor, sigma in [self.parameters.get(prior.name, (1.0, prior.sigma))]
        )


def is_between(name: str) -> bool:
    """Return whether a parameter is of the network between nodes."""
    return name.startswith(("between", "tree_rate")) or name in _BESIDE


def learnt(posteriors: Mapping[str, Iterable[tuple[Prior, float, float]]]) -> Learnt:
    """Return a network's priors; ``posteriors`` has the priors, values and log deviations of each machine."""
    shifts: dict[str, list[tuple[float, float]]] = {}
    sigmas: dict[str, float] = {}
    for figures in posteriors.values():
        for prior, value, sigma in figures:
            if is_between(prior.name) and sigma < INFORMED * prior.sigma:
                share = 1 - (sigma / prior.sigma) ** 2  # of the posterior's information that rows gave
                shift = float(np.log(value / prior.value)) / share
                limit = _FARTHEST * prior.sigma
                spread = sigma**2 / share + (DIFFER * prior.sigma) ** 2
                shifts.setdefault(prior.name, []).append((float(np.clip(shift, -limit, limit)), spread))
                sigmas[prior.name] = prior.sigma
    parameters = {}
    for name, seen in shifts.items():
        weights = [1 / spread for _, spread in seen]
        information = 1 / sigmas[name] ** 2 + sum(weights)
        mean = sum(weight * shift for weight, (shift, _) in zip(weights, seen, strict=True)) / information
        deviation = np.hypot(DIFFER * sigmas[name], information**-0.5)
        parameters[name] = float(np.exp(mean)), float(min(deviation, sigmas[name]))
    return Learnt(tuple(sorted(posteriors)), parameters)


NOTHING = Learnt()
"""What is learnt of an unknown network: its priors are the usual ones."""
