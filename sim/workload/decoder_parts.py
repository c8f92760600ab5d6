"""Parts that some decoders have: a mixture of experts, and latent attention."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """A mixture of experts: ``count`` networks of width ``hidden``; a token passes ``active`` of them.

    All tokens pass another one of width ``shared_hidden``, if there is one. They are gated if the decoder is,
    and have no biases. Every ``every``-th layer has experts, from that behind the first
    ``dense_layers`` on; others have a feed-forward network instead. ``biased`` says that the router has a
    bias per expert, which balances loads and has no gradient.
    """

    count: int
    active: int
    hidden: int
    shared_hidden: int = 0
    dense_layers: int = 0
    every: int = 1
    biased: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.active <= self.count:
            raise ValueError(f"{self.active} of {self.count} experts for a token; write 1 to {self.count}")
        if self.every < 1:
            raise ValueError(f"experts every {self.every} layers; write 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention: queries, and keys with values, are projected from narrow vectors.

    A head's query and key have ``plain`` elements of its own and ``rotary`` ones, which all heads' keys
    share; its value has ``value``. ``query_rank`` and ``key_value_rank`` are the narrow vectors' widths
    (DeepSeek-AI, arXiv:2405.04434, section 2.1).
    """

    query_rank: int
    key_value_rank: int
    plain: int
    rotary: int
    value: int

    @property
    def norms(self) -> int:
        """Parameters of the narrow vectors' norms."""
        return self.query_rank + self.key_value_rank

    def inputs(self, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return inputs and outputs of the two products that make the narrow vectors."""
        return (width, self.query_rank), (width, self.key_value_rank + self.rotary)

    def widened(self, heads: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return inputs and outputs of the two products that make the heads' queries, and keys and values."""
        return (
            (self.query_rank, heads * (self.plain + self.rotary)),
            (self.key_value_rank, heads * (self.plain + self.value)),
        )
