"""The textbook's closed forms, on a network of alpha, beta and gamma.

Where every rank has the same port into one switch, the algorithms that do not pipeline have closed forms;
docs/model.md derives them.
"""

from collections.abc import Callable
from math import log2

from ringside.sim.collective import Collective
from ringside.sim.parameters import Parameters
from ringside.topologies import Topology

Seconds = float
_Form = Callable[[int, float, Parameters], Seconds]


def _ring_all_reduce(n: int, s: float, p: Parameters) -> Seconds:
    return 2 * (n - 1) * (p.alpha + s / n * p.beta) + (n - 1) * s / n * p.gamma


def _ring_reduce_scatter(n: int, s: float, p: Parameters) -> Seconds:
    return (n - 1) * (p.alpha + s / n * (p.beta + p.gamma))


def _ring_all_gather(n: int, s: float, p: Parameters) -> Seconds:
    return (n - 1) * (p.alpha + s / n * p.beta)


def _halving_doubling_all_reduce(n: int, s: float, p: Parameters) -> Seconds:
    return 2 * log2(n) * p.alpha + (n - 1) / n * s * (2 * p.beta + p.gamma)


def _recursive_doubling_all_reduce(n: int, s: float, p: Parameters) -> Seconds:
    return log2(n) * (p.alpha + s * (p.beta + p.gamma))


def _log_all_gather(n: int, s: float, p: Parameters) -> Seconds:
    return log2(n) * p.alpha + (n - 1) / n * s * p.beta


def _recursive_halving_reduce_scatter(n: int, s: float, p: Parameters) -> Seconds:
    return log2(n) * p.alpha + (n - 1) / n * s * (p.beta + p.gamma)


def _neighbor_exchange_all_gather(n: int, s: float, p: Parameters) -> Seconds:
    return n / 2 * p.alpha + (n - 1) / n * s * p.beta


def _bruck_all_to_all(n: int, s: float, p: Parameters) -> Seconds:
    return log2(n) * (p.alpha + s / 2 * p.beta)


def _binomial_broadcast(n: int, s: float, p: Parameters) -> Seconds:
    return log2(n) * (p.alpha + s * p.beta)


def _binomial_reduce(n: int, s: float, p: Parameters) -> Seconds:
    return log2(n) * (p.alpha + s * (p.beta + p.gamma))


def _binomial_all_reduce(n: int, s: float, p: Parameters) -> Seconds:
    return _binomial_reduce(n, s, p) + _binomial_broadcast(n, s, p)


def _pairwise_all_to_all(n: int, s: float, p: Parameters) -> Seconds:
    return (n - 1) * (p.alpha + s / n * p.beta)


def _direct_broadcast(n: int, s: float, p: Parameters) -> Seconds:
    return p.alpha + (n - 1) * s * p.beta if n > 1 else 0.0


def _direct_reduce(n: int, s: float, p: Parameters) -> Seconds:
    return _direct_reduce_scatter(n, n * s, p)


def _direct_all_to_all(n: int, s: float, p: Parameters) -> Seconds:
    return p.alpha + (n - 1) / n * s * p.beta if n > 1 else 0.0


def _direct_reduce_scatter(n: int, s: float, p: Parameters) -> Seconds:
    quick, slow = sorted((p.beta, p.gamma))
    return p.alpha + s / n * (quick + (n - 1) * slow) if n > 1 else 0.0


def _direct_all_reduce(n: int, s: float, p: Parameters) -> Seconds:
    return _direct_reduce_scatter(n, s, p) + _direct_all_to_all(n, s, p)


def _direct_sendrecv(n: int, s: float, p: Parameters) -> Seconds:
    return p.alpha + s * p.beta if n > 1 else 0.0


CLOSED_FORMS: dict[tuple[str, str], _Form] = {
    ("ring", "all_reduce"): _ring_all_reduce,
    ("ring", "reduce_scatter"): _ring_reduce_scatter,
    ("ring", "all_gather"): _ring_all_gather,
    ("halving_doubling", "all_reduce"): _halving_doubling_all_reduce,
    ("direct", "all_reduce"): _direct_all_reduce,
    ("direct", "reduce_scatter"): _direct_reduce_scatter,
    ("direct", "all_to_all"): _direct_all_to_all,
    ("direct", "gather"): _direct_all_to_all,
    ("direct", "scatter"): _direct_all_to_all,
    ("direct", "all_gather"): _direct_all_to_all,
    ("direct", "sendrecv"): _direct_sendrecv,
    ("direct", "broadcast"): _direct_broadcast,
    ("direct", "reduce"): _direct_reduce,
    ("halving_doubling", "reduce"): _halving_doubling_all_reduce,
    ("recursive_doubling", "all_reduce"): _recursive_doubling_all_reduce,
    ("recursive_doubling", "all_gather"): _log_all_gather,
    ("recursive_halving", "reduce_scatter"): _recursive_halving_reduce_scatter,
    ("neighbor_exchange", "all_gather"): _neighbor_exchange_all_gather,
    ("bruck", "all_gather"): _log_all_gather,
    ("bruck", "all_to_all"): _bruck_all_to_all,
    ("binomial", "all_reduce"): _binomial_all_reduce,
    ("binomial", "broadcast"): _binomial_broadcast,
    ("binomial", "reduce"): _binomial_reduce,
    ("binomial", "gather"): _log_all_gather,
    ("binomial", "scatter"): _log_all_gather,
    ("pairwise", "all_to_all"): _pairwise_all_to_all,
}
"""Seconds by ranks, bytes and parameters, for each algorithm and collective with a closed form."""

_POWERS_OF_TWO = ("halving_doubling", "recursive_doubling", "recursive_halving", "bruck", "binomial")
"""Algorithms with a closed form only for some numbers of ranks."""


def closed_form(algorithm: str, collective: Collective, parameters: Parameters) -> Seconds | None:
    """Return the closed form's time on the textbook network, or None where there is none.

    Chunks count as S/n bytes even where elements do not divide evenly. Algorithms that halve or double have
    no form for surplus ranks, whose data compete with the first exchange.
    """
    if not has_closed_form(algorithm, collective):
        return None
    form = CLOSED_FORMS[algorithm, collective.kind]
    return form(collective.ranks, collective.nbytes, parameters)


def has_closed_form(algorithm: str, collective: Collective) -> bool:
    """Check for a closed form of this algorithm on this number of ranks."""
    if collective.splits is not None:
        return False
    odd, surplus = collective.ranks % 2, collective.ranks & (collective.ranks - 1)
    without = surplus if algorithm in _POWERS_OF_TWO else odd if algorithm == "neighbor_exchange" else 0
    return (algorithm, collective.kind) in CLOSED_FORMS and not without


def uniform(graph: Topology) -> bool:
    """Check for the textbook network: one switch, equal ports for all ranks, whole messages."""
    links = {(link["bandwidth"], link["latency"]) for _, _, link in graph.edges(data=True)}
    switches = [node for node, data in graph.nodes(data=True) if data["kind"] != "gpu"]
    if "segment" in graph.graph:
        return False
    return len(switches) == 1 and len(links) <= 1 and all(switches[0] in edge for edge in graph.edges)
