"""Whose gradients a training run shares, and over what: from ``--cluster``, ``--library`` and ``-g``."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

from ringside.request import LIBRARIES
from sim.collective import Collective
from sim.libraries import nccl
from sim.libraries.gloo import RENDEZVOUS
from sim.libraries.ideal import uniform
from sim.libraries.nccl.graph.system import find_system, nvlink_as_nccl_reckons
from sim.parameters import preset_of
from sim.predict import predict
from sim.training.groups import GLOO_WORKERS, ProcessGroup, SimulatedGroup, TimedGroup, nccl_time
from topologies import Topology, load, num_machines, parse_settings, ranks
from topologies.units import parse_rate

ALONE = TimedGroup(1, lambda _: 0.0)
"""One rank that shares its gradients with nobody."""

_DEVICES = {
    "dgx1-v100": "v100",
    "dgx2-v100": "v100",
    "dgx-a100": "a100",
    "a100-pcie4": "a100",
    "dgx-h100": "h100",
    "h100-1gpu": "h100",
    "nvlink_switch": "h100",
}
MANY = 64
"""Ranks above which not every algorithm is simulated for every bucket."""

_RATES = ("nvlink", "nic", "pcie", "socket")


@dataclass(frozen=True, slots=True)
class Group:
    """A process group on ``nodes`` machines; ``library`` is the one that was taken."""

    nodes: int
    library: str
    process_group: ProcessGroup


def group(cluster: str, settings: list[str], count: int | None, library: str) -> Group:
    """The process group of ``count`` ranks, or of all that the cluster has.

    ``auto`` is NCCL on the machines whose graphs are known, ``ideal`` elsewhere. NCCL's collectives
    take what its tuner believes; the ideal library's what its quickest algorithm takes alone, for they
    run one after another; Gloo's, of which two run at once, are simulated on one network.
    """
    name = cluster.partition(":")[0]
    if library == "auto":
        library = "nccl" if name in nccl.SYSTEMS else "ideal"
    if library not in LIBRARIES:
        raise ValueError(f"{library!r} is no known library; write one of {', '.join(LIBRARIES)}")
    if count is not None and count < 1:
        raise ValueError(f"-g {count}; write 1 rank or more")
    if library == "nccl":
        return _nccl_group(cluster, settings, count)
    graph = load(cluster, parse_settings(settings), ranks=count)
    total = count or len(ranks(graph))
    if total > len(ranks(graph)):
        raise ValueError(
            f"{total} ranks, but {graph.graph['name']} has {len(ranks(graph))}; "
            f"write fewer ranks or a larger cluster"
        )
    if library == "gloo":
        announced_s = RENDEZVOUS * preset_of(graph).alpha
        gloo = SimulatedGroup(graph, total, library="gloo", launch_s=announced_s, workers=GLOO_WORKERS)
        return Group(num_machines(graph), library, gloo)
    return Group(num_machines(graph), library, TimedGroup(total, _ideal_time(graph, total)))


def device_of(cluster: str) -> str:
    """The GPU that a cluster's machines have; plain networks, which have none, are given A100."""
    name = cluster.partition(":")[0]
    if name in nccl.SYSTEMS and name not in _DEVICES:
        raise ValueError(f"the peak rates of {name}'s GPUs are not known; add --device, for example h100")
    return _DEVICES.get(name, "a100")


def _ideal_time(graph: Topology, total: int) -> Callable[[Collective], float]:
    """The quickest algorithm's time; of an all-reduce on many ranks the quickest that can be told at once.

    Those are ring and halving-doubling by their closed forms where all links are alike, else
    halving-doubling alone, which takes n log n transfers to simulate.
    """
    alike = uniform(graph)

    @lru_cache(maxsize=4096)
    def time(collective: Collective) -> float:
        if total <= MANY or collective.kind != "all_reduce":
            return predict(collective, graph).time_s
        names = ("ring", "halving_doubling") if alike else ("halving_doubling",)
        engine = "model" if alike else "simpy"
        return min(predict(collective, graph, algorithm=name, engine=engine).time_s for name in names)

    return time


def _nccl_group(cluster: str, settings: list[str], count: int | None) -> Group:
    name, _, machines = cluster.partition(":")
    system = _changed(find_system(name), settings)
    if machines and (not machines.isdecimal() or not int(machines)):
        raise ValueError(f"{cluster!r}: {machines!r} is not a count; write for example {name}:4")
    nodes = int(machines) if machines else -(-(count or 1) // system.gpus)
    gpus, rest = divmod(count or nodes * system.gpus, nodes)
    if rest or not 1 <= gpus <= system.gpus:
        raise ValueError(
            f"{count} ranks on {nodes} {name} with {system.gpus} GPUs each; write as many for every machine"
        )
    if nodes * gpus == 1:
        return Group(1, "nccl", ALONE)
    return Group(nodes, "nccl", TimedGroup(nodes * gpus, nccl_time(nccl.communicator(system, nodes, gpus))))


def _changed(system: nccl.System, settings: list[str]) -> nccl.System:
    """The machine with other bandwidths, given as its topology takes them, as NCCL would reckon them."""
    rates = {rate: getattr(system, rate) for rate in _RATES}
    for key, value in parse_settings(settings).items():
        if key not in rates:
            raise ValueError(
                f"{system.name}: {key}: NCCL's tuner goes by {', '.join(_RATES)} and its own latencies; "
                f"write one of these, or --library ideal"
            )
        rates[key] = parse_rate(value)
        if key == "nvlink":
            rates[key] = nvlink_as_nccl_reckons(rates[key], system.compute_capability)
    return replace(
        system, nvlink=rates["nvlink"], nic=rates["nic"], pcie=rates["pcie"], socket=rates["socket"]
    )
