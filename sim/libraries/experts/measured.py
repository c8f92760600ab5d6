"""The fitted values of each mechanism's phases, and how far measured times are from them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, hypot, log2
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ringside.sim.libraries.experts.kernels import SHARPNESS
from ringside.sim.libraries.experts.mechanisms import MECHANISMS
from ringside.sim.libraries.experts.ports import ExpertPorts
from ringside.sim.libraries.experts.tokens import ExpertTokens
from ringside.sim.libraries.experts.work import Floats, Task, work_of
from ringside.topologies import strict_yaml

SHIPPED = Path(__file__).with_name("fitted.yaml")

CALLERS = ("kernels", "vllm", "trtllm")
"""What a time includes: the kernels alone, or all that a framework's call does."""


@dataclass(frozen=True, slots=True)
class PhaseFit:
    """The values of one phase, fitted to ``rows``.

    Four of five held-out times are within a factor of exp(``spread``) of the prediction; every doubling of
    domains beyond ``nodes`` adds ``doubling`` to it, as an independent error. Up to ``ranks`` were measured.
    """

    values: Mapping[str, float]
    spread: float
    rows: int
    nodes: int
    ranks: int
    doubling: float

    def beyond(self, nodes: int, ranks: int) -> float:
        """Return the doublings of domains, or of ranks in a single one, beyond the measured ones."""
        return log2(max(nodes / self.nodes if nodes > 1 else ranks / self.ranks, 1.0))

    def factor(self, nodes: int, ranks: int) -> float:
        """Return the factor between a time and the end of its interval."""
        return exp(hypot(self.spread, self.doubling * self.beyond(nodes, ranks)))


@dataclass(frozen=True, slots=True)
class CallFit:
    """What a framework's call adds: it lasts ``host_us`` at least, and ``factor`` times the kernels.

    ``arm`` is a factor on the first for hosts with Arm's CPUs, ``blackwell`` on the second for such GPUs.
    """

    host_us: float
    arm: float
    factor: float
    blackwell: float
    spread: float

    def us(self, kernels: Floats, ports: Sequence[ExpertPorts]) -> Floats:
        """Return the microseconds of calls with these kernels; the host works beside them."""
        host = self.host_us * np.where([one.cpu == "arm" for one in ports], self.arm, 1.0)
        factor = self.factor * np.where([one.is_blackwell for one in ports], self.blackwell, 1.0)
        total: Floats = (host**SHARPNESS + (factor * kernels) ** SHARPNESS) ** (1 / SHARPNESS)
        return total


@dataclass(frozen=True, slots=True)
class ExpertModel:
    """All fits: of phases by mechanism and phase, of calls by caller, mechanism and phase."""

    phases: Mapping[str, Mapping[str, PhaseFit]]
    calls: Mapping[str, Mapping[str, Mapping[str, CallFit]]]

    def kernels_us(self, mechanism: str, phase: str, tasks: Sequence[Task]) -> Floats:
        """Return the microseconds of one phase's kernels in each task."""
        made = MECHANISMS[mechanism]
        seen = [(exchange, made.seen(ports)) for exchange, ports in tasks]
        return made.phases[phase](work_of(seen, phase.split()[0]), self.phases[mechanism][phase].values)

    def call(self, caller: str, mechanism: str, phase: str) -> CallFit | None:
        """Return what a caller adds, None if it was not measured with this mechanism."""
        return self.calls.get(caller, {}).get(mechanism, {}).get(phase)

    def phase_of(self, mechanism: str, name: str, exchange: ExpertTokens) -> str | None:
        """Return the fitted phase of that name, None where the mechanism has none."""
        phase = MECHANISMS[mechanism].phase(name, exchange)
        return phase if phase in self.phases[mechanism] else None

    @property
    def content(self) -> dict[str, Any]:
        """The plain content of a file."""
        return {
            "phases": {
                name: {phase: _plain(fit) for phase, fit in fits.items()}
                for name, fits in self.phases.items()
            },
            "calls": {
                caller: {
                    name: {phase: _plain(fit) for phase, fit in fits.items()} for name, fits in of.items()
                }
                for caller, of in self.calls.items()
            },
        }

    def write(self, path: Path = SHIPPED) -> None:
        """Write the fits to a file."""
        path.write_text(yaml.safe_dump(self.content, sort_keys=False), encoding="utf-8")


def _plain(fit: PhaseFit | CallFit) -> dict[str, Any]:
    content = {name: getattr(fit, name) for name in fit.__slots__}
    return {name: _rounded(value) for name, value in content.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def read_model(path: Path = SHIPPED) -> ExpertModel:
    """Read fits from a file."""
    content = strict_yaml.loads(path.read_text(encoding="utf-8"))
    return ExpertModel(
        {
            name: {phase: PhaseFit(**fit) for phase, fit in fits.items()}
            for name, fits in content["phases"].items()
        },
        {
            caller: {
                name: {phase: CallFit(**fit) for phase, fit in fits.items()} for name, fits in of.items()
            }
            for caller, of in content["calls"].items()
        },
    )


@cache
def shipped_model() -> ExpertModel:
    """Return the shipped fits."""
    return read_model()
