"""Tokens that are sent to the ranks of their experts, and results that return: what one exchange moves."""

from dataclasses import dataclass
from math import comb, isfinite

from ringside.topologies.names import one_of

TOKEN_BYTES = {"bf16": 2.0, "fp8": 1 + 4 / 128, "nvfp4": 1 / 2 + 1 / 16}
"""Bytes per element by type, with its scales: a float32 for 128 elements, or a byte for 16."""

ROUTINGS = ("random", "spread")
"""``random``: each token's experts are drawn; ``spread``: they are on as many ranks as possible."""

PHASES = ("dispatch", "combine")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertTokens:
    """One layer's exchange: each rank has ``tokens`` of ``hidden`` elements, each for ``topk`` experts.

    The busiest rank gets ``imbalance`` times the mean. A token's experts are in at most ``topk_groups`` of
    ``groups`` groups of neighbouring experts. Without ``groups`` each machine is a group, and a token's
    experts may be in any of them.
    ``sms`` thread blocks work where the library lets the user choose. Types are of `TOKEN_BYTES`, ``routing``
    is one of `ROUTINGS`.
    """

    tokens: int
    hidden: int = 7168
    topk: int = 8
    experts: int = 256
    dispatch_dtype: str = "fp8"
    combine_dtype: str = "bf16"
    routing: str = "random"
    groups: int | None = None
    topk_groups: int = 4
    imbalance: float = 1.0
    sms: int = 20

    def __post_init__(self) -> None:
        for name in ("tokens", "hidden", "topk", "experts", "groups", "topk_groups"):
            if (given := getattr(self, name)) is not None and given < 1:
                raise ValueError(f"`{name}` {given}; write 1 or more")
        if self.topk > self.experts:
            raise ValueError(f"`topk` {self.topk} of {self.experts} experts; write {self.experts} or less")
        if self.sms < 2 or self.sms % 2:
            raise ValueError(f"`sms` {self.sms}; a channel has two, write an even number from 2 on")
        if not (isfinite(self.imbalance) and self.imbalance >= 1):
            raise ValueError(f"`imbalance` {self.imbalance:g} times the mean; write 1 or more")
        for what in ("dispatch_dtype", "combine_dtype"):
            if getattr(self, what) not in TOKEN_BYTES:
                given = getattr(self, what)
                raise ValueError(f"`{what}` {given!r}; write {one_of(TOKEN_BYTES, given)}")
        if self.routing not in ROUTINGS:
            raise ValueError(f"unknown routing {self.routing!r}; write {one_of(ROUTINGS, self.routing)}")

    def nbytes(self, phase: str) -> float:
        """Return the bytes of one token in ``dispatch`` or ``combine``."""
        dtype = self.dispatch_dtype if phase == "dispatch" else self.combine_dtype
        return self.hidden * TOKEN_BYTES[dtype]

    def check(self, ranks: int) -> None:
        """Raise ValueError unless each of the ranks has the same number of experts."""
        if self.experts % ranks:
            raise ValueError(
                f"{self.experts} experts do not divide by {ranks} ranks; write a multiple, or `ranks`"
            )
        if self.groups and (self.experts % self.groups or (self.groups % ranks and ranks % self.groups)):
            raise ValueError(
                f"{self.groups} groups of {self.experts} experts on {ranks} ranks; write a divisor of the "
                "experts that divides the ranks, or is a multiple of them"
            )
        if self.imbalance > ranks:
            raise ValueError(
                f"the busiest of {ranks} ranks has {self.imbalance:g} times the mean; write 1 to {ranks}"
            )

    def phase(self, name: str, by: str) -> "TokenPhase":
        """Return one of `PHASES` by this library."""
        return TokenPhase(self, name, by)

    def distinct(self, places: int, nodes: int = 1) -> float:
        """Return the mean number of places, on ``nodes`` machines, with a token's experts.

        Drawn without replacement, k of n experts miss m of them with probability C(n - m, k) / C(n, k). A
        place has a part of a group, or several whole groups, and any number of these may be chosen.
        """
        groups = nodes if self.groups is None else self.groups
        size = self.experts // groups
        least = -(-self.topk // size) if self.groups is None else 1
        chosen = min(max(self.topk_groups, least), groups)
        drawn = chosen * size
        if self.topk > drawn:
            raise ValueError(
                f"`topk` {self.topk} of {drawn} experts in {chosen} of {groups} groups; write {drawn} or less"
            )
        if groups <= places:
            share = places * chosen / groups
            if self.routing == "spread":
                return min(float(self.topk), share)
            return share * (1 - _missed(drawn, self.experts // places, self.topk))
        if self.routing == "spread":
            return float(min(self.topk, chosen, places))
        own = groups // places
        ways = comb(groups, chosen)
        missed = sum(
            comb(own, here)
            * comb(groups - own, chosen - here)
            / ways
            * _missed(drawn, here * size, self.topk)
            for here in range(min(own, chosen) + 1)
        )
        return places * (1 - missed)


def _missed(experts: int, own: int, topk: int) -> float:
    """Return the probability that none of ``own`` of these experts is drawn."""
    return comb(experts - own, topk) / comb(experts, topk)


@dataclass(frozen=True, slots=True)
class TokenPhase:
    """One phase of an exchange by a library, named as in `ringside.sim.libraries.experts.mechanisms`."""

    exchange: ExpertTokens
    name: str
    by: str
