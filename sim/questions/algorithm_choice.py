"""Which algorithm wins at each size and node count."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from ringside.sim.collective import kind_of
from ringside.sim.libraries.find import LIBRARIES, check_pickable, default_library
from ringside.sim.libraries.library import Library
from ringside.sim.pick import BY, Pair, Pick, default_of, doubt_of, pick, times_of
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.fields import ByLibrary, OfType
from ringside.sim.questions.question import (
    BySize,
    QuestionError,
    argument,
    choices,
    option,
    parse_counts,
    without_count,
)
from ringside.topologies.catalogue import split
from ringside.topologies.placement import placement_notes
from ringside.topologies.units import format_size, parse_size


@dataclass(frozen=True, kw_only=True)
class AlgorithmChoice(BySize, OfType, ByLibrary):
    """Which algorithm wins at each size and node count, and by how much.

    ``nodes`` defaults to the cluster's own count. ``by`` ``algorithm`` lets each algorithm compete with its
    fastest protocol.
    """

    schema: ClassVar[str] = "pick"

    collective: str = argument("all_reduce, all_gather, reduce_scatter, broadcast, ...", parse=kind_of)
    nodes: tuple[int, ...] | None = option(
        "Counts of machines, or of ranks.",
        metavar="N,N,...", default=None, default_text="as --cluster NAME:COUNT", parse=parse_counts,
        minimum=1,
    )  # fmt: skip
    begin: int = option(
        "Smallest size.", "-b", "--begin", metavar="SIZE", default="1K", parse=parse_size, minimum=0
    )
    end: int = option(
        "Largest size.", "-e", "--end", metavar="SIZE", default="1G", parse=parse_size, minimum=0
    )
    by: str = option(
        "Candidates; algorithm: each with its fastest protocol.", metavar=choices(BY), default=BY[0]
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        cluster, count = without_count(self.cluster, self.nodes), split(self.cluster)[1]
        if count is None and self.nodes is None:
            raise QuestionError(f"no node count; write `cluster` {self.cluster}:16, or `nodes` 1,2,4,8")
        object.__setattr__(self, "cluster", cluster)
        object.__setattr__(self, "nodes", self.nodes or (count,))

    def ask(self) -> "AlgorithmPicks":
        """Time all candidates; raise ValueError if there is no choice."""
        name = self.library or default_library(self.cluster, self.options)
        check_pickable(name)
        calibration, (first, *_) = self.read_calibration(), self.nodes or (1,)
        libraries = {
            count: self.bound_to(f"{self.cluster}:{count}", self.settings, calibration)
            for count in self.nodes or ()
        }
        is_one = self.algorithm != "auto" and not {",", "^"} & set(self.algorithm)
        if is_one and not libraries[first].has_tuner:
            raise QuestionError(
                f"`algorithm` {self.algorithm} leaves {name} no choice; write several (ring,tree), or "
                "remove it"
            )
        for nodes, library in libraries.items():
            library.check_pick(self.collective)
            if library.has_tuner and library.comm is None:
                raise QuestionError(
                    f"{self.cluster} on {nodes} node is one rank without peers; write more nodes"
                )
        return AlgorithmPicks(self, libraries)


@dataclass(frozen=True)
class AlgorithmPicks(AnswerOnDemand):
    """The answer: the library by node count, and the winners."""

    question: AlgorithmChoice
    libraries: Mapping[int, Library]

    @property
    def library(self) -> Library:
        """The library on the first node count."""
        return next(iter(self.libraries.values()))

    @cached_property
    def picks(self) -> list[Pick]:
        """The winner for each node count and size, node counts outer."""
        return self.picked(list(self.libraries), self.question.sizes)

    def picked(self, nodes: Sequence[int], sizes: Sequence[int]) -> list[Pick]:
        """Return the winners at other node counts and sizes."""
        question, of = self.question, self.libraries.__getitem__
        elements = question.collective, question.dtype, question.redop
        default = default_of(of, *elements) if LIBRARIES[self.library.name].by_default else None
        return pick(
            times_of(of, *elements), nodes, sizes, error=doubt_of(of, *elements), default=default,
            by=question.by,
        )  # fmt: skip

    @property
    def is_measured(self) -> bool:
        """Whether any times are measured."""
        return any(one.measurements for one in self.libraries.values())

    @property
    def clock(self) -> str:
        """The source of the times: measured, tuner or simulated."""
        clock = "measured" if self.is_measured else "tuner" if self.library.has_tuner else "simulated"
        return self.question.times or clock

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs: the library, and with a tuner its release and source of times."""
        inputs = self.question.inputs() | {"library": self.library.name}
        if self.library.has_tuner:
            inputs |= {"times": self.clock, "nccl_version": self.library.version}
        return inputs

    @property
    def headline(self) -> str:
        """Which algorithms win, and how many of their margins are clear."""
        picks = self.picks
        often = Counter(way_of(one.pair) for one in picks).most_common()
        close = sum(one.too_close for one in picks)
        if len(picks) == 1:
            (one,) = picks
            margin = "alone" if not one.next_best else (
                f"{way_of(one.next_best)} takes {one.margin:.1%} longer, "
                + ("too close to call" if close else "which is clear")
            )  # fmt: skip
            return f"{way_of(one.pair)} wins: {margin}"
        verdict = "all of them are clear"
        if close:
            verdict = f"{close if close < len(picks) else 'all'} of them are too close to call"
        (first, count), *others = often
        rest = "".join(f", {name} {count}" for name, count in others)
        return f"{first} wins {count} of {len(picks)} sizes and node counts{rest}; {verdict}"

    @property
    def grounds(self) -> str:
        """The source of the times."""
        one = self.library
        return f"times {one.basis}" if one.measurements else f"{self.clock} times; no measurement set them"

    @property
    def losses(self) -> list[str]:
        """The sizes at which the library's own choice loses, a sentence each."""
        losses = []
        for one in self.picks:
            if one.loss:
                default, best = way_of(one.default or ("-", "auto")), way_of(one.pair)
                sure = "" if one.loss >= one.loss_error else f", which may be off by {one.loss_error:.0%}"
                losses.append(
                    f"{one.nodes} nodes, {format_size(one.nbytes)}: {LIBRARIES[self.library.name].title}'s "
                    f"default {default} takes {one.loss:.1%} longer than {best}{sure}"
                )
        return losses

    @property
    def doubts(self) -> list[str]:
        """Where the library's own choice loses most."""
        losing = [one for one in self.picks if one.loss]
        if not losing:
            return []
        worst = max(losing, key=lambda one: one.loss or 0.0)
        others = f" (it loses at {len(losing)} of {len(self.picks)})" if len(self.picks) > 1 else ""
        return [self.losses[losing.index(worst)] + others]

    @property
    def notes(self) -> list[str]:
        """The placement of ranks and the source of times, a sentence each."""
        question, notes = self.question, dict[str, None]()
        for one in self.libraries.values():
            notes |= dict.fromkeys(placement_notes(question.ranks, question.placement, one.placed))
        for one in self.libraries.values():
            measured = [f"times {one.basis}"] if one.measurements else []
            notes |= dict.fromkeys([*measured, *one.notes])
        return list(notes)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each node count and size: seconds, bytes, fractions."""
        return [_row(one) for one in self.picks]


def way_of(pair: Pair) -> str:
    """Return an algorithm, with its protocol where the library has several."""
    algorithm, protocol = pair
    return algorithm if protocol == "auto" else f"{algorithm}/{protocol}"


def _row(one: Pick) -> dict[str, Any]:
    return {
        "num_nodes": one.nodes,
        "size_bytes": one.nbytes,
        "algorithm": one.algorithm,
        "protocol": one.protocol,
        "time_s": one.time_s,
        "next_best": "/".join(one.next_best) if one.next_best else None,
        "margin": one.margin if math.isfinite(one.margin) else None,
        "too_close_to_call": one.too_close,
        "default": "/".join(one.default) if one.default else None,
        "default_loss": one.loss,
        "margin_error": one.error,
        "default_loss_error": one.loss_error,
    }
