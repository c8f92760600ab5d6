"""Fields of real runs: on this machine, or on a network emulated in it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from ringside.sim.questions.question import Question, QuestionError, option, settings_option
from ringside.topologies import Topology, load
from ringside.topologies import ranks as ranks_of


@dataclass(frozen=True, kw_only=True)
class OnNetwork(Question):
    """The network of this machine, or one that is emulated."""

    emulate: str | None = option(
        "Run on a real network emulated in this machine.", metavar="NAME[:COUNT]|FILE", default=None
    )
    settings: Mapping[str, str] = settings_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.settings and self.emulate is None:
            name, value = next(iter(self.settings.items()))
            raise QuestionError(
                f"`settings` {name}={value} changes an emulated network; add `emulate`, for example star:4"
            )


@dataclass(frozen=True, kw_only=True)
class OnRanks(OnNetwork):
    """The ranks to start, and how long they wait for one another."""

    ranks: int | None = option(
        "Ranks on this node, or emulated.",
        "-g", "--ranks", default=None, default_text="2; emulated: all",
    )  # fmt: skip
    timeout: float = option("Longest wait of a rank for another.", metavar="SECONDS", default=60.0)

    @cached_property
    def graph(self) -> "Topology | None":
        """The network to emulate, if any."""
        return load(self.emulate, self.settings, ranks=self.ranks) if self.emulate else None

    @property
    def count(self) -> int:
        """The number of ranks: 2, or all of an emulated network, unless given."""
        if self.ranks is not None:
            return self.ranks
        return 2 if self.graph is None else len(ranks_of(self.graph))
