"""Dispatch of tokens to the ranks that have their experts, and the return of results.

As in Megatron-LM's dispatchers (megatron/core/transformer/moe/token_dispatcher.py). With all-to-alls ranks
exchange how many tokens go to each expert, and the host waits for these counts, which set the sizes of the
parts. Tokens are sorted by expert and sent, then their probabilities; the results return the same way. Ranks
that share an expert gather each other's tokens for that. The all-gather dispatcher gathers the tokens of all
these ranks, what each of them routes where, and the probabilities; each rank computes those of its experts,
and a reduce-scatter returns the sums. Backward sends gradients in reverse.

DeepEP's dispatcher (its flex dispatcher with that backend) sends a token once to each rank, with its
probabilities; the kernels of `ringside.sim.libraries.experts` take the tokens as they lie and add up what
returns. The host waits for the counts that arrive; copies put tokens in the order of experts. Backward of
either phase is the other one.
"""

from dataclasses import dataclass
from math import ceil

from ringside.sim.collective import Collective
from ringside.sim.compute.prices import StackOnGpu
from ringside.sim.libraries.experts.tokens import ExpertTokens
from ringside.sim.training.layers import Exchange, Kernels, Pass
from ringside.sim.training.tensor.cut import Cut
from ringside.sim.training.tensor.passes import DTYPES
from ringside.sim.workload.decoder_parts import Experts
from ringside.topologies.names import one_of

DEEPEP = "deepep"

DISPATCHERS = ("alltoall", "allgather", DEEPEP)

HOST_SYNC_S = 20e-6
"""Seconds that a GPU idles while its host waits for counts and launches again.

A round figure: a copy to the host and the launch of a kernel take some 10 microseconds each.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertParallel:
    """Expert parallelism among ``degree`` ranks, each with the same number of a layer's experts.

    The simulated rank gets ``imbalance`` times the mean number of tokens. With a ``capacity`` factor
    each expert gets that many times the mean: missing tokens are padded, further ones are dropped, and
    ranks need not exchange counts. ``tensor`` ranks share each expert, None those that share a layer.
    ``dispatcher`` is one of `DISPATCHERS`.
    """

    degree: int = 1
    tensor: int | None = None
    dispatcher: str = "alltoall"
    imbalance: float = 1.0
    capacity: float | None = None

    def __post_init__(self) -> None:
        if self.degree < 1:
            raise ValueError(f"expert parallelism among {self.degree} ranks; write 1 or more")
        if not 1 <= self.imbalance <= self.degree:
            raise ValueError(
                f"the busiest of {self.degree} expert-parallel ranks has {self.imbalance:g} times the mean; "
                f"write 1 to {self.degree}"
            )
        if self.capacity is not None and not 0 < self.capacity < float("inf"):
            raise ValueError(f"a capacity of {self.capacity:g} times the even part; write for example 1.25")
        if self.dispatcher not in DISPATCHERS:
            raise ValueError(
                f"unknown dispatcher {self.dispatcher!r}; write {one_of(DISPATCHERS, self.dispatcher)}"
            )
        if self.capacity is not None and self.dispatcher != "alltoall":
            name = "all-gather" if self.dispatcher == "allgather" else self.dispatcher
            raise ValueError(
                f"the {name} dispatcher drops no tokens; leave the capacity out, or write alltoall"
            )
        if self.capacity is not None and self.imbalance > 1:
            raise ValueError("a capacity balances the experts, so imbalance is 1; remove one of them")


@dataclass(frozen=True, slots=True)
class Dispatch:
    """Exchanges of a layer with experts on one rank with ``tokens`` of its own, and copies around them."""

    computing: StackOnGpu
    cut: Cut
    parallel: ExpertParallel
    experts: Experts
    tokens: int

    def __post_init__(self) -> None:
        if self.parallel.dispatcher != DEEPEP or self.parallel.degree == 1:
            return
        if self.tensor > 1:
            raise ValueError(f"{DEEPEP} with {self.tensor} ranks that share an expert; write `etp` 1")
        if self.computing.itemsize != 2:
            raise ValueError(f"{DEEPEP} sends tokens of 2 bytes an element; write `precision` bf16")

    @property
    def tensor(self) -> int:
        """Number of ranks that share an expert."""
        return self.parallel.tensor or self.cut.parallel.degree

    @property
    def got(self) -> int:
        """Tokens that the rank's experts compute."""
        return self._routed * self.tensor

    @property
    def outer_ordering_s(self) -> float:
        """Return the seconds to copy own tokens into expert order, once per expert, or to sum them up."""
        by_kernels = self._gathers or self._exchange is not None
        return 0.0 if by_kernels else self._copied_s(self.tokens * (1 + self.experts.active))

    @property
    def inner_ordering_s(self) -> float:
        """Return the seconds to sort tokens from several ranks by the rank's experts."""
        if self._gathers:
            return self._copied_s(self._ranks * self.tokens + self.got)
        if self._exchange:
            arrived = self.tokens * self.parallel.imbalance * self._exchange.distinct(self.parallel.degree)
            return self._copied_s(round(arrived) + self.got)
        if self._ranks == 1 or self.experts.count == self.parallel.degree:
            return 0.0
        return self._copied_s(2 * self.got)

    def _copied_s(self, tokens: int) -> float:
        """Return the seconds to read or write this many tokens."""
        return self.computing.streamed_s(tokens * self.cut.decoder.width, 2.0)

    @property
    def dispatched(self) -> Pass:
        """Return forward's exchanges before the experts."""
        if self._gathers:
            each = self._ranks * self.tokens * self.experts.count
            routes = self._among_all("all_gather", each, "uint8")
            chosen = self._among_all("all_gather", 4 * each, "float32")
            wait = (Kernels(HOST_SYNC_S),) if routes else ()
            return (*routes, *chosen, *self.exchanged("all_gather"), *wait)
        if self._exchange:
            return (*self._phase(self._exchange, "dispatch"), Kernels(HOST_SYNC_S))
        return (*self._told, *self._sent, *self._probabilities, *self._tensor_exchange("all_gather"))

    @property
    def returned(self) -> Pass:
        """Return backward's exchanges of gradients of what was dispatched."""
        if self._gathers:
            each = self._ranks * self.tokens * self.experts.count
            chosen = self._among_all("reduce_scatter", 4 * each, "float32")
            return (*self.exchanged("reduce_scatter"), *chosen)
        if self._exchange:
            return self._phase(self._exchange, "combine")
        return (*self._tensor_exchange("reduce_scatter"), *self._probabilities, *self._sent)

    def exchanged(self, kind: str) -> Pass:
        """Return the way of results back to their ranks, or as ``all_gather`` that of their gradients."""
        if self._gathers:
            itemsize = self.computing.itemsize
            nbytes = self._ranks * self.tokens * self.cut.decoder.width * itemsize
            return self._among_all(kind, nbytes, DTYPES[itemsize])
        if self._exchange:
            return self._phase(self._exchange, "dispatch" if kind == "all_gather" else "combine")
        between = self._tensor_exchange(kind)
        return (*self._sent, *between) if kind == "all_gather" else (*between, *self._sent)

    @property
    def _routed(self) -> int:
        """Tokens that arrive at the rank, once for each of their experts, before tensor parallelism."""
        experts, capacity = self.experts, self.parallel.capacity
        even = self.tokens * experts.active
        if capacity is not None:
            return experts.count * ceil(even / experts.count * capacity)
        return ceil(even * self.parallel.imbalance)

    @property
    def _along(self) -> str:
        """The dimension of these ranks."""
        return "tensor" if self.tensor == self.cut.parallel.degree else "expert_tensor"

    @property
    def _ranks(self) -> int:
        """Number of ranks that have all experts together."""
        return self.parallel.degree * self.tensor

    @property
    def _gathers(self) -> bool:
        return self.parallel.dispatcher == "allgather"

    @property
    def _exchange(self) -> ExpertTokens | None:
        """The tokens that kernels of another library than NCCL exchange; None without any."""
        if self.parallel.dispatcher != DEEPEP or self.parallel.degree == 1:
            return None
        return ExpertTokens(
            tokens=self.tokens, hidden=self.cut.decoder.width, topk=self.experts.active,
            experts=self.experts.count, dispatch_dtype="bf16", imbalance=self.parallel.imbalance,
        )  # fmt: skip

    def _phase(self, exchange: ExpertTokens, name: str) -> Pass:
        nbytes = self._routed * self.cut.decoder.width * self.computing.itemsize
        moved = Collective(
            "all_to_all", self.parallel.degree, nbytes, dtype=DTYPES[self.computing.itemsize],
            tokens=exchange.phase(name, self.parallel.dispatcher),
        )  # fmt: skip
        return (Exchange(("expert",), moved),)

    @property
    def _told(self) -> Pass:
        """Exchange the number of tokens per expert, for which the host waits."""
        if self.parallel.capacity is not None:
            return ()
        counts = self._among_all("all_gather", 8 * self._ranks * self.experts.count, "int64")
        return (*counts, Kernels(HOST_SYNC_S)) if counts else ()

    @property
    def _sent(self) -> Pass:
        itemsize = self.computing.itemsize
        return self._all_to_all(self._routed * self.cut.decoder.width * itemsize, DTYPES[itemsize])

    @property
    def _probabilities(self) -> Pass:
        return self._all_to_all(4 * self._routed, "float32")

    def _all_to_all(self, nbytes: int, dtype: str) -> Pass:
        return _exchange(("expert",), "all_to_all", self.parallel.degree, nbytes, dtype)

    def _among_all(self, kind: str, nbytes: int, dtype: str) -> Pass:
        return _exchange((self._along, "expert"), kind, self._ranks, nbytes, dtype)

    def _tensor_exchange(self, kind: str) -> Pass:
        """Gather the tokens of all ranks that share an expert, or sum their results."""
        itemsize = self.computing.itemsize
        nbytes = self.got * self.cut.decoder.width * itemsize
        return _exchange((self._along,), kind, self.tensor, nbytes, DTYPES[itemsize])


def _exchange(along: tuple[str, ...], kind: str, ranks: int, nbytes: int, dtype: str) -> Pass:
    """Return a collective, or nothing on a single rank."""
    return (Exchange(along, Collective(kind, ranks, nbytes, dtype=dtype)),) if ranks > 1 else ()
