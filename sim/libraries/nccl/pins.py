"""A user's limits of NCCL's choice: the variables NCCL_ALGO and NCCL_PROTO.

``list`` or ``function:list``, several joined by ``;``. Only the first may omit its function and then applies
to all functions. A list is names joined by commas; ``^`` before it means all but these. A later group
replaces an earlier one of its function.

    >>> Pins(algorithm="ring;allreduce:tree").algorithms["all_reduce"]
    frozenset({'tree'})
    >>> Pins(algorithm="ring;allreduce:tree").algorithms["all_gather"]
    frozenset({'ring'})

Case does not matter to NCCL; here underscores do not either. Values that NCCL refuses raise its own message
(src/graph/tuning.cc, v2.30.7).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringside.sim.libraries.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS
from ringside.topologies.names import nearest


@dataclass(frozen=True, slots=True)
class Pins:
    """NCCL_ALGO and NCCL_PROTO as text; empty where unset.

    ``algorithms`` and ``protocols`` are those allowed for each collective. Where protocols are unset the
    collective is missing: LL128 is then used only where it is safe.
    """

    algorithm: str = ""
    protocol: str = ""
    algorithms: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)
    protocols: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        unset = dict.fromkeys(FUNCTIONS, frozenset(ALGORITHMS))
        object.__setattr__(self, "algorithms", unset | _parse("NCCL_ALGO", self.algorithm, ALGORITHMS))
        object.__setattr__(self, "protocols", _parse("NCCL_PROTO", self.protocol, PROTOCOLS))

    def refusal(self, kind: str, dtype: str, possible: list[str]) -> str:
        """Return NCCL's message if nothing is left for a collective, and the values to write instead."""
        set_to = "".join(
            f" {variable} was set to {text}."
            for variable, text in (("NCCL_ALGO", self.algorithm), ("NCCL_PROTO", self.protocol))
            if text
        )
        message = (
            f"No algorithm/protocol available for function {FUNCTIONS[kind]} with datatype {dtype}.{set_to}"
        )
        if not possible:
            return f"{message} No algorithm can carry it out here with any setting."
        message += f" Possible here: {', '.join(possible)}."
        if kind != "all_reduce" and self.algorithm and not set(self.algorithm) & set(";:"):
            message += (
                f" Write for example {possible[0].split('/')[0].lower()};allreduce:{self.algorithm.lower()}"
            )
        return message


def _parse(variable: str, text: str, names: Mapping[str, str]) -> dict[str, frozenset[str]]:
    allowed: dict[str, frozenset[str]] = {}
    for index, group in enumerate(part for part in text.split(";") if part):
        function, colon, elements = group.partition(":")
        if not colon:
            function, elements = "", group
            if index:
                raise ValueError(
                    f"{variable}: all entries except the first must have a prefix: {text!r}; "
                    f"write for example allreduce:{group}"
                )
        kinds = [_kind(variable, function, text)] if colon else list(FUNCTIONS)
        chosen = _elements(variable, elements, names, text)
        allowed |= dict.fromkeys(kinds, chosen)
    return allowed


def _kind(variable: str, function: str, text: str) -> str:
    kinds = {_bare(kind): kind for kind in FUNCTIONS}
    if _bare(function) not in kinds:
        raise ValueError(
            f"{variable}: unrecognized prefix token {function!r} when parsing {text!r}; "
            f"write one of {', '.join(kinds)}"
        )
    return kinds[_bare(function)]


def _elements(variable: str, elements: str, names: Mapping[str, str], text: str) -> frozenset[str]:
    known = {_bare(name): name for name in names}
    named = [token for token in elements.removeprefix("^").split(",") if token]
    for token in named:
        if _bare(token) not in known:
            suggestion = nearest(token, names.values())
            raise ValueError(
                f"{variable}: unrecognized element token {token!r} when parsing {text!r}; write some of "
                f"{', '.join(names.values())}, joined by commas, or ^ and those to exclude"
                + (f"; did you mean {suggestion}?" if suggestion else "")
            )
    chosen = frozenset(known[_bare(token)] for token in named)
    return frozenset(names) - chosen if elements.startswith("^") else chosen


def _bare(token: str) -> str:
    return token.lower().replace("_", "")
