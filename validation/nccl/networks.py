"""Priors learnt from other measured machines: between nodes from those on the same kind of network.

Inside a node the latencies are learnt from those with the same generation of GPU in other nodes. The
posterior of a machine is divided by its prior, which leaves the information of its rows. Machines differ, so
each weighs by its own uncertainty and by that difference (a random-effects mean: DerSimonian and Laird,
Controlled Clinical Trials 7, 1986, here with a given variance between machines).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from ringside.sim.libraries.nccl.constants import HOP_US
from ringside.sim.libraries.nccl.graph.system import System
from ringside.sim.libraries.nccl.message_times import ALGORITHMS, PROTOCOLS
from ringside.validation.nccl.priors import NVLS_TREE, Prior, priors

DIFFER = 0.5
"""Deviation between such machines, as a share of a prior's own."""

INFORMED = 0.95
"""A parameter whose spread is below this share of its prior's has learned from the rows."""

_FARTHEST = 2.5
"""Deviations of the prior beyond which a machine's figure counts as that far."""

_BESIDE = (
    *("tree_two", "tree_many", "tree_burst"),
    *("nvls_tree", "nvls_tree_loop_us", "nvls_tree_many", "collnet"),
)


@dataclass(frozen=True, eq=False, slots=True)
class Learnt:
    """Priors of a machine: each parameter's value over the usual prior's, and its deviation in log time.

    ``machines`` are those on its network whose rows it rests on.
    """

    machines: tuple[str, ...] = ()
    parameters: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def then(self, more: "Learnt") -> "Learnt":
        """Return these priors, moved by what more machines tell that began with them."""
        moved = {
            name: (factor * self.parameters.get(name, (1.0, sigma))[0], sigma)
            for name, (factor, sigma) in more.parameters.items()
        }
        return Learnt((*self.machines, *more.machines), {**self.parameters, **moved})

    def of(self, system: System) -> tuple[Prior, ...]:
        """Return the priors of this machine."""
        return tuple(
            replace(prior, value=prior.value * factor, sigma=sigma)
            for prior in priors(system)
            for factor, sigma in [self.parameters.get(prior.name, (1.0, prior.sigma))]
        )


def is_between(name: str) -> bool:
    """Return whether a parameter is of the network between nodes."""
    return name.startswith(("between", "tree_rate")) or name in _BESIDE


def is_of_gpu(name: str) -> bool:
    """Return whether a parameter is a latency of the GPU: a kernel's start, or a hop inside a node."""
    return name in ("launch_us", "base", "inside") or name.startswith("inside.")


Posterior = Iterable[tuple[Prior, float, float]]
"""The priors, values and log deviations of a machine."""


def learnt(posteriors: Mapping[str, Posterior], is_shared: Callable[[str], bool] = is_between) -> Learnt:
    """Return what machines tell of the parameters that they share with others."""
    shifts: dict[str, list[tuple[float, float]]] = {}
    sigmas: dict[str, float] = {}
    for figures in posteriors.values():
        for prior, value, sigma in figures:
            if is_shared(prior.name) and sigma < INFORMED * prior.sigma:
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

_EFA_US = {"ll": 20.0, "ll128": 20.0, "simple": 23.0}
"""Microseconds of a hop over EFA by which AWS's plugin for NCCL chooses: its network latency of 20, and 3 for
the completion that Simple waits for (aws-ofi-nccl, include/nccl_ofi_tuner.h, v1.9)."""

_HOP_SIGMA = 0.3

KNOWN = {
    "EFA": Learnt(
        parameters={
            f"between.{algorithm}.{protocol}": (
                _EFA_US[protocol] / HOP_US["net"][algorithm][column],
                _HOP_SIGMA,
            )
            for algorithm in ALGORITHMS
            for column, protocol in enumerate(PROTOCOLS)
        }
        | {"nvls_tree": (_EFA_US["simple"] / (NVLS_TREE * HOP_US["net"]["nvls_tree"][2]), _HOP_SIGMA)}
    )
}
"""Networks whose priors begin elsewhere than InfiniBand's, by a source that is no measured collective."""
