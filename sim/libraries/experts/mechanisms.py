"""The libraries that exchange the tokens of experts: their kernels in each phase, and where they run."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ringside.sim.libraries.experts.kernels import (
    KernelTime,
    domain_us,
    each_us,
    indices_us,
    notice_us,
    once_us,
)
from ringside.sim.libraries.experts.ports import ExpertPorts
from ringside.sim.libraries.experts.tokens import ExpertTokens
from ringside.sim.libraries.experts.work import Floats, PhaseWork

QUANTIZED = "combine nvfp4"
"""A combine that quantizes results before it sends them."""

NVLINK_PEERS = 8
"""Ranks among which DeepEP's normal kernels hand on (NUM_MAX_NVL_PEERS of csrc/kernels/configs.cuh)."""


def _anywhere(ports: ExpertPorts) -> str:
    return "" if ports.nodes == 1 or ports.network else "there is no network card between its machines"


def _in_whole_eights(ports: ExpertPorts) -> str:
    inside = ports.ranks // ports.nodes
    if inside > NVLINK_PEERS and inside % NVLINK_PEERS:
        return f"its {inside} ranks of an NVLink domain are no multiple of {NVLINK_PEERS}"
    return _anywhere(_in_eights(ports))


def _in_a_domain(ports: ExpertPorts) -> str:
    return "" if ports.nodes == 1 else f"it needs one NVLink domain, and the ranks are on {ports.nodes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mechanism:
    """A library's exchange: the kernels of its ``phases``, and those before them (``prepare``).

    ``refuses`` says why it does not run on some ports, empty where it does. ``traffic`` gives the
    microseconds of NVLink and cards at full rate. ``usual`` says where the library chooses it itself,
    ``seen`` the ports as it uses them.
    """

    title: str
    phases: Mapping[str, KernelTime]
    traffic: Callable[[PhaseWork], tuple[Floats, Floats]]
    refuses: Callable[[ExpertPorts], str]
    usual: Callable[[ExpertPorts], bool] = field(default=lambda _: True)
    seen: Callable[[ExpertPorts], ExpertPorts] = field(default=lambda ports: ports)

    def phase(self, name: str, exchange: ExpertTokens) -> str:
        """Return the phase whose kernel runs, by its name in the fits."""
        quantized = f"{name} {exchange.combine_dtype}"
        return quantized if quantized in self.phases else name


def _in_eights(ports: ExpertPorts) -> ExpertPorts:
    """Return the ports as DeepEP's normal kernels see them: ranks beyond eight are over the network."""
    groups = -(-ports.ranks // ports.nodes // NVLINK_PEERS)
    return replace(ports, nodes=ports.nodes * groups) if groups > 1 else ports


def _is_grace(ports: ExpertPorts) -> bool:
    """TensorRT-LLM takes its NVLink exchange on Arm hosts only (tensorrt_llm/_mnnvl_utils.py)."""
    return ports.cpu == "arm"


MECHANISMS = {
    "deepep": Mechanism(
        title="DeepEP's normal kernels",
        phases={"prepare": notice_us, "dispatch": once_us, "combine": once_us},
        traffic=PhaseWork.once_s, refuses=_in_whole_eights, seen=_in_eights,
    ),
    "deepep_ll": Mechanism(
        title="DeepEP's kernels of low latency",
        phases={"dispatch": each_us, "combine": each_us}, traffic=PhaseWork.each_s, refuses=_anywhere,
    ),
    "nvlink": Mechanism(
        title="TensorRT-LLM's one-sided exchange over NVLink",
        phases={"dispatch": domain_us, "combine": domain_us}, traffic=PhaseWork.once_s,
        refuses=_in_a_domain, usual=_is_grace,
    ),
    "nvlink_two_sided": Mechanism(
        title="TensorRT-LLM's two-sided exchange over NVLink",
        phases={"prepare": indices_us, "dispatch": domain_us, "combine": domain_us, QUANTIZED: domain_us},
        traffic=PhaseWork.once_s, refuses=_in_a_domain, usual=_is_grace,
    ),
}  # fmt: skip
"""The mechanisms with fitted kernels, by name; a library's own all-to-all is one more."""

OWN = "nccl"
"""The library's own all-to-all, by name."""

NAMES = (*MECHANISMS, OWN)
